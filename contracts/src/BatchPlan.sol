// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Selection} from "./Selection.sol";
import {Words} from "./Words.sol";

/// How many sandboxes of a batch each operator makes. Pure, so that anybody can compute it; the Rust twin is `fleet`'s.
///
/// The offers are put in an order and then served along it, none beyond its free slots: `Cheapest` by rising price, ties as
/// given, each filled before the next; `RoundRobin` as given and `Random` as the seed draws them, all as evenly as their slots
/// allow, the earlier ones first with what cannot be divided.
library BatchPlan {
    using Words for uint256[];

    enum Distribution {
        RoundRobin,
        Cheapest,
        Random
    }

    uint256 private constant FREE_MASK = type(uint32).max;
    uint256 private constant PRICE_MASK = type(uint96).max;
    uint256 private constant INDEX_BITS = 8;

    /// `offers` are words of free slots in the low 32 bits and price in the 96 above; what is above that is not looked at. There are fewer
    /// than 256. `order` holds their indexes and `shares` what each of them makes, along that order, zeros included. The sum of the
    /// shares is `count`, or less if the offers have too few slots.
    function plan(uint256[] memory offers, uint256 count, Distribution distribution, bytes32 seed)
        internal
        pure
        returns (uint256[] memory order, uint256[] memory shares)
    {
        uint256 size = offers.length;
        if (distribution == Distribution.Cheapest) {
            order = _sorted(offers, PRICE_MASK << 32);
            shares = _fill(offers, order, count);
        } else {
            order = distribution == Distribution.Random ? Selection.shuffle(size, seed) : Words.counting(size);
            shares = _spread(offers, order, count);
        }
    }

    /// The indexes by what the mask leaves of each offer, rising, equal ones as given. Insertion sort over words of key and index, which
    /// compares both at once.
    function _sorted(uint256[] memory offers, uint256 mask) private pure returns (uint256[] memory order) {
        uint256 size = offers.length;
        order = new uint256[](size);
        for (uint256 i; i < size; ++i) {
            uint256 word = (offers.get(i) & mask) << INDEX_BITS | i;
            assembly ("memory-safe") {
                let start := add(order, 0x20)
                let place := add(start, shl(5, i))
                for {} gt(place, start) { place := sub(place, 0x20) } {
                    let before := mload(sub(place, 0x20))
                    if lt(before, word) { break }
                    mstore(place, before)
                }
                mstore(place, word)
            }
        }
        for (uint256 i; i < size; ++i) {
            order.set(i, order.get(i) & (1 << INDEX_BITS) - 1);
        }
    }

    function _fill(uint256[] memory offers, uint256[] memory order, uint256 count)
        private
        pure
        returns (uint256[] memory shares)
    {
        uint256 size = order.length;
        shares = new uint256[](size);
        for (uint256 i; i < size && count != 0; ++i) {
            uint256 free = offers.get(order.get(i)) & FREE_MASK;
            uint256 share = free < count ? free : count;
            shares.set(i, share);
            unchecked {
                count -= share; // never more than it
            }
        }
    }

    /// Everybody gets the same or all it has, and the first of those who have more get one more each, until all is given.
    function _spread(uint256[] memory offers, uint256[] memory order, uint256 count)
        private
        pure
        returns (uint256[] memory shares)
    {
        uint256 size = order.length;
        shares = new uint256[](size);
        (uint256 level, uint256 extra) = _level(offers, count);
        for (uint256 i; i < size; ++i) {
            uint256 share = offers.get(order.get(i)) & FREE_MASK;
            if (share > level) {
                share = level;
                unchecked {
                    // At most one more, of a level that is a part of `count`.
                    if (extra != 0) (share, extra) = (level + 1, extra - 1);
                }
            }
            shares.set(i, share);
        }
    }

    /// The share of whoever has more slots than that, and how many of them get one more. Whoever cannot take an equal part of what is left
    /// takes what it can and leaves the more for the others: the level rises until nobody else falls short of it.
    function _level(uint256[] memory offers, uint256 count) private pure returns (uint256 level, uint256 extra) {
        uint256 size = offers.length;
        uint256 before = type(uint256).max;
        while (level != before) {
            before = level;
            (uint256 left, uint256 takers) = (count, size);
            for (uint256 i; i < size; ++i) {
                uint256 free = offers.get(i) & FREE_MASK;
                if (free > level) continue;
                // All that are short together have no more than was there to be shared.
                unchecked {
                    (left, takers) = (left < free ? 0 : left - free, takers - 1);
                }
            }
            if (takers == 0) return (level, 0);
            (level, extra) = (left / takers, left % takers);
        }
    }
}
