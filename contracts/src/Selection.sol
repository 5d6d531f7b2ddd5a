// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Words} from "./Words.sol";

/// Draws distinct operators from a set by a seed. Stateless: preview and enforcement run the same code. The Rust twin is `fleet`'s.
///
/// The first `count` steps of a Fisher–Yates shuffle of the indexes 0 … size − 1, of which only the displaced ones are kept: step i
/// swaps position i with position i + keccak256(seed ‖ i) mod (size − i). So `count` storage reads suffice however large the set
/// is. The modulo favours no index by more than 2^-224, since sets are smaller than 2^32.
library Selection {
    using Words for uint256[];

    /// Asked for more than there are. The caller bounds `count`: time is quadratic in it, and independent of the set's size.
    error DrawTooLarge(uint256 count, uint256 size);

    /// `count` distinct indexes below `size`, in the order drawn. `size` is below 2^128.
    function indexes(uint256 size, uint256 count, bytes32 seed) internal pure returns (uint256[] memory drawn) {
        if (count > size) revert DrawTooLarge(count, size);
        drawn = new uint256[](count);
        // Step i moves what stood at position i to the position it chose: both in one word, the position in the upper half.
        uint256[] memory moves = new uint256[](count);
        for (uint256 i; i < count; ++i) {
            unchecked {
                uint256 position = i + uint256(_hash(seed, i)) % (size - i);
                (uint256 chosen, uint256 displaced) = _lookUp(moves, i, position);
                drawn.set(i, chosen);
                moves.set(i, position << 128 | displaced);
            }
        }
    }

    /// `indexes(size, size, seed)`, faster: where all positions are drawn, all may as well be kept.
    function shuffle(uint256 size, bytes32 seed) internal pure returns (uint256[] memory order) {
        order = Words.counting(size);
        for (uint256 i; i < size; ++i) {
            unchecked {
                uint256 position = i + uint256(_hash(seed, i)) % (size - i);
                uint256 chosen = order.get(position);
                order.set(position, order.get(i));
                order.set(i, chosen);
            }
        }
    }

    /// What stands at `position` and at position `step` before that step. Of moves to the same position the latest counts.
    function _lookUp(uint256[] memory moves, uint256 step, uint256 position)
        private
        pure
        returns (uint256 atPosition, uint256 atStep)
    {
        (atPosition, atStep) = (position, step);
        assembly ("memory-safe") {
            let end := add(add(moves, 0x20), shl(5, step))
            for { let at := add(moves, 0x20) } lt(at, end) { at := add(at, 0x20) } {
                let move := mload(at)
                let to := shr(128, move)
                if eq(to, position) { atPosition := and(move, 0xffffffffffffffffffffffffffffffff) }
                if eq(to, step) { atStep := and(move, 0xffffffffffffffffffffffffffffffff) }
            }
        }
    }

    /// keccak256 of the two words, without taking memory for them.
    function _hash(bytes32 seed, uint256 step) private pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            mstore(0x00, seed)
            mstore(0x20, step)
            hash := keccak256(0x00, 0x40)
        }
    }
}
