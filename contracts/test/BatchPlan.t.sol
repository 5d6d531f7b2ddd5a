// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "forge-std/Test.sol";

import {BatchPlan} from "../src/BatchPlan.sol";
import {Selection} from "../src/Selection.sol";

contract BatchPlanTest is Test {
    uint256 private constant OFFERS_MAX = 32;
    uint256 private constant COUNT_MAX = 200;
    uint256 private constant LOOKED_AT = type(uint128).max;
    BatchPlan.Distribution private constant ROUND_ROBIN = BatchPlan.Distribution.RoundRobin;
    BatchPlan.Distribution private constant CHEAPEST = BatchPlan.Distribution.Cheapest;
    BatchPlan.Distribution private constant RANDOM = BatchPlan.Distribution.Random;

    // ─── Any plan ───────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_asManyAreMadeAsFitAndNobodyMakesMoreThanItsSlots(
        uint256[] memory offers,
        uint256 count,
        bool small,
        uint8 distribution,
        bytes32 seed
    ) public pure {
        (offers, count) = small ? (everyday(offers), count % (COUNT_MAX + 1)) : (first(offers), count);
        (uint256[] memory order, uint256[] memory shares) = BatchPlan.plan(offers, count, kind(distribution), seed);
        uint256 free;
        uint256 made;
        assertEq(order.length, offers.length);
        assertEq(shares.length, offers.length);
        for (uint256 i; i < order.length; ++i) {
            assertLe(shares[i], freeOf(offers[order[i]]));
            free += freeOf(offers[i]);
            made += shares[i];
        }
        assertEq(made, count < free ? count : free);
    }

    function testFuzz_eachOfferStandsOnceInTheOrder(
        uint256[] memory offers,
        uint256 count,
        uint8 distribution,
        bytes32 seed
    ) public pure {
        offers = first(offers);
        (uint256[] memory order,) = BatchPlan.plan(offers, count, kind(distribution), seed);
        bool[] memory seen = new bool[](offers.length);
        for (uint256 i; i < order.length; ++i) {
            assertFalse(seen[order[i]]);
            seen[order[i]] = true;
        }
    }

    function testFuzz_whatStandsAboveAnOfferIsNotLookedAt(
        uint256[] memory offers,
        uint256 count,
        uint8 distribution,
        bytes32 seed
    ) public pure {
        offers = first(offers);
        (uint256[] memory order, uint256[] memory shares) = BatchPlan.plan(offers, count, kind(distribution), seed);
        for (uint256 i; i < offers.length; ++i) {
            offers[i] &= LOOKED_AT;
        }
        (uint256[] memory sameOrder, uint256[] memory sameShares) =
            BatchPlan.plan(offers, count, kind(distribution), seed);
        assertEq(order, sameOrder);
        assertEq(shares, sameShares);
    }

    function test_nobodyOrNothingIsAPlanToo() public pure {
        for (uint8 i; i < 3; ++i) {
            (uint256[] memory order, uint256[] memory shares) = BatchPlan.plan(new uint256[](0), 5, kind(i), 0);
            assertTrue(order.length == 0 && shares.length == 0);
            (, shares) = BatchPlan.plan(array(2, 0, 5, 9, 1), 0, kind(i), 0);
            assertEq(shares, array(0, 0, 0, 0, 0));
            (, shares) = BatchPlan.plan(array(0, 0, 0, 0, 0), 5, kind(i), 0);
            assertEq(shares, array(0, 0, 0, 0, 0));
        }
    }

    // ─── Cheapest ───────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_noCheaperSlotIsLeftFree(uint256[] memory offers, uint256 count, bool small) public pure {
        (offers, count) = small ? (everyday(offers), count % (COUNT_MAX + 1)) : (first(offers), count);
        (uint256[] memory order, uint256[] memory shares) = BatchPlan.plan(offers, count, CHEAPEST, 0);
        for (uint256 i = 1; i < order.length; ++i) {
            uint256 price = priceOf(offers[order[i]]);
            uint256 priceBefore = priceOf(offers[order[i - 1]]);
            assertLe(priceBefore, price);
            if (priceBefore == price) assertLt(order[i - 1], order[i]);
            if (shares[i] != 0) assertEq(shares[i - 1], freeOf(offers[order[i - 1]]));
        }
    }

    function test_theCheapestAreFilledFirst() public pure {
        uint256[] memory offers =
            array(offer(2, 30), offer(0, 10), offer(5, 20), offer(9, type(uint96).max), offer(1, 20));
        (uint256[] memory order, uint256[] memory shares) = BatchPlan.plan(offers, 9, CHEAPEST, 0);
        assertEq(order, array(1, 2, 4, 0, 3));
        assertEq(shares, array(0, 5, 1, 2, 1));
    }

    // ─── Round robin and random ─────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_theSpreadIsThatOfDealingSlotsOneByOne(
        uint256[] memory offers,
        uint256 count,
        bool random,
        bytes32 seed
    ) public pure {
        offers = everyday(offers);
        count %= COUNT_MAX + 1;
        (uint256[] memory order, uint256[] memory shares) =
            BatchPlan.plan(offers, count, random ? RANDOM : ROUND_ROBIN, seed);
        uint256[] memory dealt = new uint256[](order.length);
        bool more = true;
        while (more) {
            more = false;
            for (uint256 i; i < order.length && count != 0; ++i) {
                if (dealt[i] == freeOf(offers[order[i]])) continue;
                ++dealt[i];
                --count;
                more = true;
            }
        }
        assertEq(shares, dealt);
    }

    function testFuzz_roundRobinGoesAsGivenAndRandomAsTheSeedDraws(uint256[] memory offers, uint256 count, bytes32 seed)
        public
        pure
    {
        offers = first(offers);
        (uint256[] memory given,) = BatchPlan.plan(offers, count, ROUND_ROBIN, seed);
        for (uint256 i; i < given.length; ++i) {
            assertEq(given[i], i);
        }
        (uint256[] memory drawn,) = BatchPlan.plan(offers, count, RANDOM, seed);
        assertEq(drawn, Selection.indexes(offers.length, offers.length, seed));
    }

    function test_theEarlierMakeWhatCannotBeDivided() public pure {
        (, uint256[] memory shares) = BatchPlan.plan(array(9, 9, 9, 9, 9), 12, ROUND_ROBIN, 0);
        assertEq(shares, array(3, 3, 2, 2, 2));
        (, shares) = BatchPlan.plan(array(9, 9, 9, 9, 9), 3, ROUND_ROBIN, 0);
        assertEq(shares, array(1, 1, 1, 0, 0));
    }

    function test_whatTheFullCannotTakeTheOthersShare() public pure {
        (, uint256[] memory shares) = BatchPlan.plan(array(2, 0, 5, 9, 1), 12, ROUND_ROBIN, 0);
        assertEq(shares, array(2, 0, 5, 4, 1));
        (, shares) = BatchPlan.plan(array(2, 0, 5, 9, 1), 100, ROUND_ROBIN, 0);
        assertEq(shares, array(2, 0, 5, 9, 1));
    }

    /// The vector that the Rust twin is held to.
    function test_pinnedRandomPlan() public pure {
        (uint256[] memory order, uint256[] memory shares) =
            BatchPlan.plan(array(2, 0, 5, 9, 1), 12, RANDOM, keccak256("agent-sandbox"));
        assertEq(order, array(0, 1, 4, 2, 3));
        assertEq(shares, array(2, 0, 1, 5, 4));
    }

    // ─── Gas ────────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The largest batch over the most operators. Prices fall, so that the sort moves everything; slots are so unequal that the level of a
    /// spread rises seven times, the most that a search of a million cases has found for this size.
    function test_theLargestPlansAreAffordable() public {
        bytes memory free = hex"000001010101020203030303040404050606070808080a0a0a0b0c0c0d0d0eb2";
        uint256[] memory offers = new uint256[](OFFERS_MAX);
        for (uint256 i; i < OFFERS_MAX; ++i) {
            offers[i] = offer(uint8(free[i]), OFFERS_MAX - i);
        }
        assertLt(gasOf("round robin", offers, ROUND_ROBIN), 1_000_000);
        assertLt(gasOf("cheapest", offers, CHEAPEST), 1_000_000);
        assertLt(gasOf("random", offers, RANDOM), 1_000_000);
    }

    function gasOf(string memory name, uint256[] memory offers, BatchPlan.Distribution distribution)
        private
        returns (uint256 used)
    {
        used = gasleft();
        BatchPlan.plan(offers, COUNT_MAX, distribution, keccak256("agent-sandbox"));
        used -= gasleft();
        vm.snapshotValue(name, used);
    }

    // ─── Helpers ────────────────────────────────────────────────────────────────────────────────────────────────────

    function kind(uint8 number) private pure returns (BatchPlan.Distribution) {
        return BatchPlan.Distribution(number % 3);
    }

    function offer(uint256 free, uint256 price) private pure returns (uint256) {
        return price << 32 | free;
    }

    function freeOf(uint256 offer_) private pure returns (uint256) {
        return offer_ & type(uint32).max;
    }

    function priceOf(uint256 offer_) private pure returns (uint256) {
        return offer_ >> 32 & type(uint96).max;
    }

    /// The first of them, and never many more than there are operators.
    function first(uint256[] memory given) private pure returns (uint256[] memory offers) {
        offers = new uint256[](given.length < 40 ? given.length : 40);
        for (uint256 i; i < offers.length; ++i) {
            offers[i] = given[i];
        }
    }

    /// With so few slots that a batch fills some, and prices that are often equal.
    function everyday(uint256[] memory given) private pure returns (uint256[] memory offers) {
        offers = first(given);
        for (uint256 i; i < offers.length; ++i) {
            offers[i] = offer(freeOf(offers[i]) % 24, priceOf(offers[i]) % 8);
        }
    }

    function array(uint256 a, uint256 b, uint256 c, uint256 d, uint256 e) private pure returns (uint256[] memory out) {
        out = new uint256[](5);
        (out[0], out[1], out[2], out[3], out[4]) = (a, b, c, d, e);
    }
}
