// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Operators} from "./Operators.sol";

/// Who must answer a batch, and what is whose: 32 bits for each, eight to a storage word, in the order of the plan. Sandboxes of a batch
/// create follow each other in that order too: the first one's share starts at slot 0.
library Batches {
    uint256 private constant PER_WORD = 8;
    uint256 private constant ENTRY_BITS = 32;
    uint256 private constant NUMBER_BITS = Operators.NUMBER_BITS;
    uint256 private constant SHARE_BITS = 8;
    uint256 private constant MARK_SHIFT = NUMBER_BITS + SHARE_BITS;

    /// For `OPERATORS_MAX` parts.
    uint256 private constant WORDS = 4;

    struct Batch {
        uint256[WORDS] words;
    }

    struct Part {
        uint256 number; // of the operator
        uint256 share; // slots, of a batch create
        uint256 firstSlot;
        uint256 mark; // zero until it has answered, then one more than its outcome
    }

    // ─── Writing ────────────────────────────────────────────────────────────────────────────────────────────────────

    function empty() internal pure returns (Batch memory plan) {}

    /// Adds a part to a plan in memory.
    function put(Batch memory plan, uint256 index, uint256 number, uint256 share) internal pure {
        plan.words[index / PER_WORD] |= (number | share << NUMBER_BITS) << (index % PER_WORD * ENTRY_BITS);
    }

    function store(Batch storage self, Batch memory plan, uint256 parts) internal {
        for (uint256 i; i * PER_WORD < parts; ++i) {
            self.words[i] = plan.words[i];
        }
    }

    function setMark(Batch storage self, uint256 index, uint256 mark) internal {
        self.words[index / PER_WORD] |= mark << (MARK_SHIFT + index % PER_WORD * ENTRY_BITS);
    }

    // ─── Reading ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The part of an operator; `index` is `parts` if it has none.
    function find(Batch storage self, uint256 parts, uint256 number)
        internal
        view
        returns (uint256 index, Part memory part)
    {
        for (; index < parts; ++index) {
            _read(self, index, part);
            if (part.number == number) break;
        }
    }

    /// The part that a slot is in; all zero if there is none.
    function findSlot(Batch storage self, uint256 parts, uint256 slot) internal view returns (Part memory part) {
        for (uint256 index = 0; index < parts; ++index) {
            _read(self, index, part);
            if (slot < part.firstSlot + part.share) return part;
        }
        return Part(0, 0, 0, 0);
    }

    /// The next part, where `part` holds the one before it; all zero before the first.
    function next(Batch storage self, uint256 index, Part memory part) internal view {
        _read(self, index, part);
    }

    function _read(Batch storage self, uint256 index, Part memory part) private view {
        uint256 entry = self.words[index / PER_WORD] >> (index % PER_WORD * ENTRY_BITS);
        part.firstSlot += part.share;
        part.number = entry & (1 << NUMBER_BITS) - 1;
        part.share = entry >> NUMBER_BITS & (1 << SHARE_BITS) - 1;
        part.mark = entry >> MARK_SHIFT & 3;
    }
}
