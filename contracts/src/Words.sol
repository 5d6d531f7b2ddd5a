// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// Words of arrays in memory, without the check of the index: for loops over a batch's operators, whose index is bounded by the array's
/// own length. The compiler's check costs as much there as the work itself.
library Words {
    function get(uint256[] memory array, uint256 index) internal pure returns (uint256 word) {
        assembly ("memory-safe") {
            word := mload(add(add(array, 0x20), shl(5, index)))
        }
    }

    function set(uint256[] memory array, uint256 index, uint256 word) internal pure {
        assembly ("memory-safe") {
            mstore(add(add(array, 0x20), shl(5, index)), word)
        }
    }

    function get(address[] memory array, uint256 index) internal pure returns (address word) {
        assembly ("memory-safe") {
            word := mload(add(add(array, 0x20), shl(5, index)))
        }
    }

    function set(address[] memory array, uint256 index, address word) internal pure {
        assembly ("memory-safe") {
            mstore(add(add(array, 0x20), shl(5, index)), word)
        }
    }

    /// 0, 1, … size − 1.
    function counting(uint256 size) internal pure returns (uint256[] memory array) {
        array = new uint256[](size);
        for (uint256 i; i < size; ++i) {
            set(array, i, i);
        }
    }
}
