// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// How many slots each operator holds of one service: a short list of (number, slots), four to a storage word, none of zero slots.
/// Its length stands in the first word, where a dynamic array would take a word of its own; one more than the length, once the list was
/// opened or used. So the word is never zero again, and the first hold, which is a receipt's, costs a quarter.
library Holdings {
    /// The members of a service are far fewer. What does not fit is not held: a receipt must not fail by it.
    uint256 internal constant COUNT_MAX = type(uint8).max - 1;

    uint256 private constant PER_WORD = 4;
    uint256 private constant ENTRY_BITS = 62;
    uint256 private constant SLOTS_BITS = 30;
    /// The low byte of the first word is the length, of the others nothing.
    uint256 private constant LENGTH_BITS = 8;

    struct List {
        mapping(uint256 index => uint256) words;
    }

    /// Makes the first word one that is not zero.
    function open(List storage self) internal {
        if (self.words[0] == 0) self.words[0] = 1;
    }

    /// False if nothing was added.
    function add(List storage self, uint256 number, uint256 slots) internal returns (bool) {
        if (slots == 0) return false;
        (uint256 index, uint256 size, uint256 held) = _find(self, number);
        if (index == size) {
            if (size == COUNT_MAX) return false;
            self.words[0] = self.words[0] + (self.words[0] == 0 ? 2 : 1);
        }
        _set(self, index, number, held + slots);
        return true;
    }

    /// How many were taken: no more than are held.
    function take(List storage self, uint256 number, uint256 slots) internal returns (uint256 taken) {
        (uint256 index, uint256 size, uint256 held) = _find(self, number);
        taken = slots < held ? slots : held;
        if (taken == 0) return 0;
        if (taken != held) {
            _set(self, index, number, held - taken);
        } else {
            // The last one takes its place.
            (uint256 lastNumber, uint256 lastSlots) = at(self, size - 1);
            _set(self, index, lastNumber, lastSlots);
            _set(self, size - 1, 0, 0);
            self.words[0] = self.words[0] - 1;
        }
    }

    function count(List storage self) internal view returns (uint256) {
        return _length(self.words[0]);
    }

    function slotsOf(List storage self, uint256 number) internal view returns (uint256 held) {
        (,, held) = _find(self, number);
    }

    function at(List storage self, uint256 index) internal view returns (uint256 number, uint256 slots) {
        return _entry(self.words[index / PER_WORD], index % PER_WORD);
    }

    // ─── Words ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Where the number stands, or would be put: then `index` is the list's length.
    function _find(List storage self, uint256 number) private view returns (uint256 index, uint256 size, uint256 held) {
        uint256 word = self.words[0];
        size = _length(word);
        for (; index < size; ++index) {
            if (index != 0 && index % PER_WORD == 0) word = self.words[index / PER_WORD];
            (uint256 found, uint256 slots) = _entry(word, index % PER_WORD);
            if (found == number) return (index, size, slots);
        }
    }

    function _length(uint256 first) private pure returns (uint256) {
        uint256 mark = first & type(uint8).max;
        return mark == 0 ? 0 : mark - 1;
    }

    function _entry(uint256 word, uint256 place) private pure returns (uint256 number, uint256 slots) {
        uint256 entry = word >> (LENGTH_BITS + place * ENTRY_BITS) & (1 << ENTRY_BITS) - 1;
        return (entry >> SLOTS_BITS, entry & (1 << SLOTS_BITS) - 1);
    }

    function _set(List storage self, uint256 index, uint256 number, uint256 slots) private {
        uint256 shift = LENGTH_BITS + index % PER_WORD * ENTRY_BITS;
        uint256 word = self.words[index / PER_WORD] & ~((1 << ENTRY_BITS) - 1 << shift);
        self.words[index / PER_WORD] = word | (number << SLOTS_BITS | slots) << shift;
    }
}
