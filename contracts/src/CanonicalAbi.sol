// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// Tells whether bytes are exactly what `abi.encode(struct)` gives: nothing missing, nothing trailing, no gap, no overlap, no dirty
/// padding. `abi.decode` accepts much more, and reverts without a name; here two different inputs never mean the same request.
///
/// A shape names a struct's fields in order, one letter each: `8` uint64, `4` uint32, `1` uint8, `b` bool, `w` a full word, `s` string
/// or bytes, `S` string[], `a` address[], `t` a dynamic struct of the shape `nested`. What a string holds is not looked at, UTF-8 included.
library CanonicalAbi {
    uint256 private constant WORD = 32;
    /// No place in the data ends here: what starts with a field is longer.
    uint256 private constant MISMATCH = 0;

    function matches(bytes calldata data, bytes32 shape) internal pure returns (bool) {
        return matches(data, shape, 0);
    }

    function matches(bytes calldata data, bytes32 shape, bytes32 nested) internal pure returns (bool) {
        (uint256 fields, bool dynamic) = _measure(shape);
        // No shape is empty, and of no data at all a mismatch would have the length.
        if (!dynamic) return data.length != 0 && _struct(data, 0, shape, fields, 0) == data.length;
        // A struct with a dynamic field is itself dynamic: one leading offset, of the word that follows.
        if (data.length < WORD || _word(data, 0) != WORD) return false;
        return _struct(data, WORD, shape, fields, nested) == data.length;
    }

    function _measure(bytes32 shape) private pure returns (uint256 fields, bool dynamic) {
        while (fields < WORD && shape[fields] != 0) {
            bytes1 kind = shape[fields++];
            if (kind == "s" || kind == "S" || kind == "a" || kind == "t") dynamic = true;
        }
    }

    // ─── Skipping: from where something starts to where it ends ─────────────────────────────────────────────────────

    function _struct(bytes calldata data, uint256 start, bytes32 shape, uint256 fields, bytes32 nested)
        private
        pure
        returns (uint256 end)
    {
        end = start + fields * WORD;
        if (end > data.length) return MISMATCH;
        for (uint256 i; i < fields; ++i) {
            uint256 word = _word(data, start + i * WORD);
            bytes1 kind = shape[i];
            uint256 largest = _largest(kind);
            if (largest != 0) {
                if (word > largest) return MISMATCH;
                continue;
            }
            // The field's word is where its content starts: right behind the content before it.
            if (word != end - start) return MISMATCH;
            end = _content(data, end, kind, nested);
            if (end == MISMATCH) return MISMATCH;
        }
    }

    function _content(bytes calldata data, uint256 start, bytes1 kind, bytes32 nested) private pure returns (uint256) {
        if (kind == "s") return _string(data, start);
        if (kind == "S") return _strings(data, start);
        if (kind == "a") return _addresses(data, start);
        (uint256 fields,) = _measure(nested);
        return _struct(data, start, nested, fields, 0);
    }

    function _string(bytes calldata data, uint256 start) private pure returns (uint256 end) {
        end = start + WORD;
        if (end > data.length) return MISMATCH;
        uint256 length = _word(data, start);
        if (length > data.length - end) return MISMATCH;
        unchecked {
            uint256 last = length % WORD;
            end += length;
            if (last != 0) {
                end += WORD - last;
                if (end > data.length || _word(data, end - WORD) << (8 * last) != 0) return MISMATCH;
            }
        }
    }

    function _strings(bytes calldata data, uint256 start) private pure returns (uint256 end) {
        uint256 base = start + WORD;
        if (base > data.length) return MISMATCH;
        uint256 count = _word(data, start);
        if (count > (data.length - base) / WORD) return MISMATCH;
        end = base + count * WORD;
        for (uint256 i; i < count; ++i) {
            if (_word(data, base + i * WORD) != end - base) return MISMATCH;
            end = _string(data, end);
            if (end == MISMATCH) return MISMATCH;
        }
    }

    function _addresses(bytes calldata data, uint256 start) private pure returns (uint256 end) {
        uint256 base = start + WORD;
        if (base > data.length) return MISMATCH;
        uint256 count = _word(data, start);
        if (count > (data.length - base) / WORD) return MISMATCH;
        end = base + count * WORD;
        uint256 all = 0;
        for (uint256 at = base; at < end; at += WORD) {
            all |= _word(data, at);
        }
        if (all > type(uint160).max) return MISMATCH;
    }

    // ─── Kinds of fields ────────────────────────────────────────────────────────────────────────────────────────────

    /// The largest value of a field that holds one; zero for a field that holds the place of its content.
    function _largest(bytes1 kind) private pure returns (uint256) {
        if (kind == "s") return 0;
        if (kind == "8") return type(uint64).max;
        if (kind == "b") return 1;
        if (kind == "w") return type(uint256).max;
        if (kind == "1") return type(uint8).max;
        if (kind == "4") return type(uint32).max;
        return 0;
    }

    /// The callers have checked that the word lies within the data.
    function _word(bytes calldata data, uint256 offset) private pure returns (uint256 word) {
        assembly ("memory-safe") {
            word := calldataload(add(data.offset, offset))
        }
    }
}
