// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "forge-std/Test.sol";

import {Batches} from "../src/Batches.sol";
import {Calls} from "../src/Calls.sol";
import {Holdings} from "../src/Holdings.sol";
import {Load, OPERATORS_MAX, Operators} from "../src/Operators.sol";

/// What is packed into words comes out as it went in, and touches nothing beside it.
contract PackingTest is Test {
    using Batches for Batches.Batch;
    using Calls for Calls.Slot;
    using Holdings for Holdings.List;

    uint256 private constant NUMBERS_MAX = (1 << Operators.NUMBER_BITS) - 1;
    uint256 private constant OUTCOMES = 3;

    Holdings.List private list;
    Batches.Batch private batch;
    Calls.Slot private slot;

    // ─── Holdings ───────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_holdingsAreAMapThatForgetsZeros(uint256[8] memory steps) public {
        uint256[] memory model = new uint256[](16); // by the low bits of the number
        for (uint256 i; i < 64; ++i) {
            uint256 step = steps[i / 8] >> (32 * (i % 8)) & type(uint32).max;
            uint256 which = step & 15;
            uint256 slots = step >> 5 & 31;
            if (step >> 4 & 1 == 0) {
                assertEq(list.add(numberOf(which), slots), slots != 0);
                model[which] += slots;
            } else {
                uint256 taken = slots < model[which] ? slots : model[which];
                assertEq(list.take(numberOf(which), slots), taken);
                model[which] -= taken;
            }
            agrees(model);
        }
    }

    function test_holdingsAreAMapThatForgetsZeros() public {
        uint256[8] memory steps;
        for (uint256 i; i < 8; ++i) {
            steps[i] = uint256(keccak256(abi.encode(i)));
        }
        testFuzz_holdingsAreAMapThatForgetsZeros(steps);
    }

    function agrees(uint256[] memory model) private view {
        uint256 count;
        for (uint256 i; i < model.length; ++i) {
            assertEq(list.slotsOf(numberOf(i)), model[i]);
            if (model[i] != 0) ++count;
        }
        assertEq(list.count(), count);
        for (uint256 i; i < count; ++i) {
            (uint256 number, uint256 slots) = list.at(i);
            assertEq(slots, list.slotsOf(number));
            assertTrue(slots != 0);
        }
    }

    /// The largest numbers too, which leave no bit of the entry beside it alone if anything is shifted wrongly.
    function numberOf(uint256 which) private pure returns (uint256) {
        return which % 2 == 0 ? which + 1 : NUMBERS_MAX - which;
    }

    function test_aListHoldsAsManyAsItsLengthCan() public {
        for (uint256 i; i < Holdings.COUNT_MAX; ++i) {
            assertTrue(list.add(i + 1, i + 1));
        }
        assertFalse(list.add(1000, 1));
        assertTrue(list.add(7, 1));
        assertEq(list.count(), Holdings.COUNT_MAX);
        assertEq(list.take(3, 9), 3);
        assertTrue(list.add(1000, 1));
        for (uint256 i; i < Holdings.COUNT_MAX; ++i) {
            if (i != 2) assertEq(list.slotsOf(i + 1), i == 6 ? 8 : i + 1);
        }
    }

    // ─── Batches ────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aPlanIsReadAsItWasPut(uint256 seed, uint8 count, uint256 marks) public {
        uint256 parts = bound(count, 1, OPERATORS_MAX);
        batch.store(planOf(seed, parts), parts);
        for (uint256 i; i < parts; ++i) {
            if (marks >> (2 * i) & 3 != 0) batch.setMark(i, marks >> (2 * i) & 3);
        }
        Batches.Part memory part;
        uint256 first;
        for (uint256 i; i < parts; ++i) {
            batch.next(i, part);
            assertEq(part.number, partNumber(seed, i));
            assertEq(part.share, shareAt(seed, i));
            assertEq(part.firstSlot, first);
            assertEq(part.mark, marks >> (2 * i) & 3);
            (uint256 index, Batches.Part memory found) = batch.find(parts, part.number);
            assertEq(index, i);
            assertEq(abi.encode(found), abi.encode(part));
            if (part.share != 0) assertEq(abi.encode(batch.findSlot(parts, first)), abi.encode(part));
            first += part.share;
            if (part.share != 0) assertEq(abi.encode(batch.findSlot(parts, first - 1)), abi.encode(part));
        }
        Batches.Part memory none;
        assertEq(abi.encode(batch.findSlot(parts, first)), abi.encode(none));
        (uint256 missing,) = batch.find(parts, 1);
        assertEq(missing, parts);
    }

    function test_aPlanIsReadAsItWasPut() public {
        testFuzz_aPlanIsReadAsItWasPut(type(uint256).max, 32, type(uint256).max / 7);
        testFuzz_aPlanIsReadAsItWasPut(0, 32, 0);
    }

    function planOf(uint256 seed, uint256 parts) private pure returns (Batches.Batch memory plan) {
        for (uint256 i; i < parts; ++i) {
            plan.put(i, partNumber(seed, i), shareAt(seed, i));
        }
    }

    /// All of them different, none of them one.
    function partNumber(uint256 seed, uint256 index) private pure returns (uint256) {
        return NUMBERS_MAX - (seed % 1000) * OPERATORS_MAX - index;
    }

    function shareAt(uint256 seed, uint256 index) private pure returns (uint256) {
        return uint256(keccak256(abi.encode(seed, index))) % 256 * (index % 5 == 4 ? 0 : 1);
    }

    // ─── Calls and loads ────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aCallIsReadAsItWasWritten(Calls.Call memory call) public {
        slot.store(call);
        assertEq(abi.encode(slot.load()), abi.encode(call));
        assertEq(slot.operatorOf(), call.operator);
    }

    function testFuzz_aNewCallIsOpen(address operator, uint40 deadlineBlock, uint8 job, uint8 parts) public {
        slot.open(operator, deadlineBlock, job);
        Calls.Call memory expected;
        (expected.operator, expected.deadlineBlock, expected.job) = (operator, deadlineBlock, job);
        assertEq(abi.encode(slot.load()), abi.encode(expected));
        slot.openBatch(deadlineBlock, job, parts);
        (expected.operator, expected.parts) = (address(0), parts);
        assertEq(abi.encode(slot.load()), abi.encode(expected));
    }

    function testFuzz_aFieldOfALoadTouchesNoOther(
        uint256 word,
        uint32[4] memory values,
        bool[2] memory flags,
        uint96 price
    ) public pure {
        // Of the eight bits of a flag only one is used.
        Load load = Load.wrap(word & ~uint256(0xFEFE << 128));
        load = load.withCapacity(values[0]).withUsed(values[1]).withPlace(values[2]).withNumber(values[3]);
        load = load.withRegistered(flags[0]).withPaused(flags[1]).withPricePerHour(price);
        assertEq(load.capacity(), values[0]);
        assertEq(load.used(), values[1]);
        assertEq(load.place(), values[2]);
        assertEq(load.number(), values[3]);
        assertEq(load.registered(), flags[0]);
        assertEq(load.paused(), flags[1]);
        assertEq(load.pricePerHour(), price);
        assertEq(Load.unwrap(load) >> 240, word >> 240);
    }
}
