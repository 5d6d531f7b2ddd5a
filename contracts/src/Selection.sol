// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// Draws distinct operators from a set by a seed. Stateless: preview and enforcement run the same code. The Rust twin is `fleet`'s.
///
/// The first `count` steps of a Fisher–Yates shuffle of the indexes 0 … size − 1, of which only the displaced ones are kept: step i
/// swaps position i with position i + keccak256(seed ‖ i) mod (size − i). So `count` storage reads suffice however large the set
/// is. The modulo favours no index by more than 2^-224, since sets are smaller than 2^32.
library Selection {
    /// Asked for more than there are. The caller bounds `count`: time is quadratic in it, and independent of the set's size.
    error DrawTooLarge(uint256 count, uint256 size);

    /// `count` distinct indexes below `size`, in the order drawn.
    function indexes(uint256 size, uint256 count, bytes32 seed) internal pure returns (uint256[] memory drawn) {
        if (count > size) revert DrawTooLarge(count, size);
        drawn = new uint256[](count);
        // Step i moves what stood at position i to `positions[i]`; later moves to the same position replace earlier ones.
        uint256[] memory positions = new uint256[](count);
        uint256[] memory moved = new uint256[](count);
        for (uint256 i; i < count; ++i) {
            uint256 position = i + uint256(keccak256(abi.encode(seed, i))) % (size - i);
            drawn[i] = _at(position, positions, moved, i);
            positions[i] = position;
            moved[i] = _at(i, positions, moved, i);
        }
    }

    /// The members of `set` at `indexes(set.length, count, seed)`.
    function draw(address[] storage set, uint256 count, bytes32 seed) internal view returns (address[] memory drawn) {
        uint256[] memory places = indexes(set.length, count, seed);
        drawn = new address[](count);
        for (uint256 i; i < count; ++i) {
            drawn[i] = set[places[i]];
        }
    }

    /// What stands at `position` after `steps` steps.
    function _at(uint256 position, uint256[] memory positions, uint256[] memory moved, uint256 steps)
        private
        pure
        returns (uint256)
    {
        for (uint256 i = steps; i != 0; --i) {
            if (positions[i - 1] == position) return moved[i - 1];
        }
        return position;
    }
}
