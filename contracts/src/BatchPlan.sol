// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Selection} from "./Selection.sol";

/// How many sandboxes of a batch each operator makes. Pure, so that anybody can compute it; the Rust twin is `fleet`'s.
///
/// The candidates are put in an order and then served along it, none beyond its free slots: `Cheapest` by rising price, ties as
/// given, each filled before the next; `RoundRobin` as given and `Random` as the seed draws them, all as evenly as their slots
/// allow, the earlier ones first with what cannot be divided.
library BatchPlan {
    enum Distribution {
        RoundRobin,
        Cheapest,
        Random
    }

    struct Candidate {
        uint256 free; // slots
        uint256 price;
    }

    /// `order` holds indexes of candidates and `shares` what each of them makes, along that order, zeros included. The sum of the
    /// shares is `count`, or less if the candidates have too few slots.
    function plan(Candidate[] memory candidates, uint256 count, Distribution distribution, bytes32 seed)
        internal
        pure
        returns (uint256[] memory order, uint256[] memory shares)
    {
        if (distribution == Distribution.Cheapest) {
            order = _byPrice(candidates);
            shares = _fill(candidates, order, count);
        } else {
            uint256 size = candidates.length;
            order = distribution == Distribution.Random ? Selection.indexes(size, size, seed) : _asGiven(size);
            shares = _spread(candidates, order, count);
        }
    }

    function _asGiven(uint256 size) private pure returns (uint256[] memory order) {
        order = new uint256[](size);
        for (uint256 i; i < size; ++i) {
            order[i] = i;
        }
    }

    /// Insertion sort: stable, and the candidates are few.
    function _byPrice(Candidate[] memory candidates) private pure returns (uint256[] memory order) {
        order = _asGiven(candidates.length);
        for (uint256 i = 1; i < order.length; ++i) {
            uint256 price = candidates[i].price;
            uint256 place = i;
            for (; place != 0 && candidates[order[place - 1]].price > price; --place) {
                order[place] = order[place - 1];
            }
            order[place] = i;
        }
    }

    function _fill(Candidate[] memory candidates, uint256[] memory order, uint256 count)
        private
        pure
        returns (uint256[] memory shares)
    {
        shares = new uint256[](order.length);
        for (uint256 i; i < order.length && count != 0; ++i) {
            uint256 free = candidates[order[i]].free;
            shares[i] = free < count ? free : count;
            count -= shares[i];
        }
    }

    /// Rounds of equal shares. Each round but the last fills a candidate, so there are at most as many rounds as candidates, and one.
    function _spread(Candidate[] memory candidates, uint256[] memory order, uint256 count)
        private
        pure
        returns (uint256[] memory shares)
    {
        shares = new uint256[](order.length);
        while (count != 0) {
            uint256 open;
            for (uint256 i; i < order.length; ++i) {
                if (shares[i] < candidates[order[i]].free) ++open;
            }
            if (open == 0) break;
            uint256 each = count < open ? 1 : count / open;
            for (uint256 i; i < order.length && count != 0; ++i) {
                uint256 room = candidates[order[i]].free - shares[i];
                uint256 more = room < each ? room : each;
                if (more > count) more = count;
                shares[i] += more;
                count -= more;
            }
        }
    }
}
