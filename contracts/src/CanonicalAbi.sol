// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// Tells whether bytes are exactly what `abi.encode(struct)` gives: nothing missing, nothing trailing, no gap, no overlap, no dirty
/// padding. `abi.decode` accepts much more, and reverts without a name; here two different inputs never mean the same request.
///
/// A shape names a struct's fields in order, one letter each: `8` uint64, `4` uint32, `1` uint8, `b` bool, `w` a full word, `s` string or bytes.
/// What a string holds is not looked at, UTF-8 included.
library CanonicalAbi {
    uint256 private constant WORD = 32;

    function matches(bytes calldata data, bytes32 shape) internal pure returns (bool) {
        (uint256 fields, bool dynamic) = _measure(shape);
        uint256 start;
        if (dynamic) {
            // A struct with a dynamic field is itself dynamic: one leading offset, of the word that follows.
            if (data.length < WORD || _word(data, 0) != WORD) return false;
            start = WORD;
        }
        uint256 end = start + fields * WORD;
        if (data.length < end) return false;

        for (uint256 i; i < fields; ++i) {
            uint256 word = _word(data, start + i * WORD);
            bytes1 kind = shape[i];
            if (kind == "s") {
                if (word != end - start || data.length - end < WORD) return false;
                uint256 length = _word(data, end);
                end += WORD;
                if (length > data.length - end) return false;
                uint256 used = length % WORD;
                end += length - used;
                if (used != 0) {
                    if (data.length - end < WORD || _word(data, end) << (8 * used) != 0) return false;
                    end += WORD;
                }
            } else if (word > _largest(kind)) {
                return false;
            }
        }
        return end == data.length;
    }

    function _measure(bytes32 shape) private pure returns (uint256 fields, bool dynamic) {
        while (fields < WORD && shape[fields] != 0) {
            if (shape[fields] == "s") dynamic = true;
            ++fields;
        }
    }

    function _largest(bytes1 kind) private pure returns (uint256) {
        if (kind == "8") return type(uint64).max;
        if (kind == "4") return type(uint32).max;
        if (kind == "1") return type(uint8).max;
        if (kind == "b") return 1;
        return type(uint256).max;
    }

    function _word(bytes calldata data, uint256 offset) private pure returns (uint256) {
        return uint256(bytes32(data[offset:offset + WORD]));
    }
}
