// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// Reads `sbx-<service>-<call>-<slot>`, alone or as the last path segment of an endpoint. The Rust twin is `protocol`'s.
///
/// Canonical decimals only, so that a sandbox has exactly one name.
library SandboxIds {
    /// "sbx-", two numbers of 20 digits, one of 3, two dashes.
    uint256 internal constant ID_BYTES_MAX = 49;
    uint256 private constant PREFIX_BYTES = 4;
    bytes4 private constant PREFIX = "sbx-";

    /// `ok` is false for anything that is not an id; the rest is then meaningless.
    function parse(bytes calldata text) internal pure returns (bool ok, uint64 serviceId, uint64 callId, uint8 slot) {
        uint256 pos = _lastSegment(text);
        if (text.length - pos > ID_BYTES_MAX || text.length - pos < PREFIX_BYTES) return (false, 0, 0, 0);
        for (uint256 i; i < PREFIX_BYTES; ++i) {
            if (text[pos + i] != PREFIX[i]) return (false, 0, 0, 0);
        }

        uint256[3] memory numbers = [uint256(0), 0, 0];
        pos += PREFIX_BYTES;
        for (uint256 i; i < 3; ++i) {
            (ok, numbers[i], pos) = _number(text, pos, i == 2 ? type(uint8).max : type(uint64).max);
            if (!ok) return (false, 0, 0, 0);
            // Each number ends at a dash, the last one at the end of the text.
            bool atEnd = pos == text.length;
            if (atEnd != (i == 2) || (!atEnd && text[pos] != "-")) return (false, 0, 0, 0);
            ++pos;
        }
        return (true, uint64(numbers[0]), uint64(numbers[1]), uint8(numbers[2]));
    }

    /// The index after the last slash, or one that makes the segment too long to be an id: no further back is looked.
    function _lastSegment(bytes calldata text) private pure returns (uint256 pos) {
        pos = text.length;
        while (pos != 0 && text.length - pos <= ID_BYTES_MAX && text[pos - 1] != "/") --pos;
    }

    /// Reads digits from `pos` on, up to the first other byte; `next` is its index.
    function _number(bytes calldata text, uint256 pos, uint256 max)
        private
        pure
        returns (bool ok, uint256 value, uint256 next)
    {
        next = pos;
        while (next < text.length && text[next] >= "0" && text[next] <= "9") {
            value = value * 10 + (uint8(text[next]) - 48);
            if (value > max) return (false, 0, 0);
            ++next;
        }
        bool leadingZero = next - pos > 1 && text[pos] == "0";
        ok = next != pos && !leadingZero;
    }
}
