// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {JOB_SANDBOX_CREATE, OUTCOME_CALLER, OUTCOME_DONE, OUTCOME_OPERATOR} from "../src/JobTypes.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

contract CreateTest is Fixture {
    uint64 private constant CREATE_ANSWER_BLOCKS = 300; // 600 s of 2 s blocks

    // ─── Assignment ─────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aCreateIsAssignedToAFreeOperatorOfTheService(uint8 count, uint8 calls, bytes32 seed) public {
        uint256 size = bound(count, 1, 12);
        registerMany(12);
        address[] memory members = blueprint.previewOperatorSelection(uint32(size), seed);
        uint64 service = core.openService(customer, members, selection(uint32(size), seed, true), 0);

        uint256 most = bound(calls, 1, size * CAPACITY);
        for (uint256 i; i < most; ++i) {
            uint64 call = submitCreate(service, 0);
            address operator = assignedTo(service, call);
            assertTrue(isIn(operator, members));
            assertLe(usedBy(operator), CAPACITY);
        }
        uint256 used;
        for (uint256 i; i < size; ++i) {
            used += usedBy(members[i]);
        }
        assertEq(used, most);
    }

    function test_theAssignmentSaysWhoAnswersForWhomUntilWhen() public {
        uint64 service = serviceOf(1, 0);
        vm.expectEmit(address(blueprint));
        emit I.OperatorAssigned(service, 0, operatorAt(0), uint64(block.number) + CREATE_ANSWER_BLOCKS);
        uint64 call = submitCreate(service, 0);

        I.Assignment memory seen = blueprint.assignment(service, call);
        assertEq(seen.operator, operatorAt(0));
        assertEq(seen.caller, customer);
        assertEq(seen.deadlineBlock, block.number + CREATE_ANSWER_BLOCKS);
        assertEq(seen.job, JOB_SANDBOX_CREATE);
        assertFalse(seen.answered);
        assertEq(seen.responseHash, 0);
        assertEq(seen.detail, 0);
        assertState(service, call, I.SandboxState.Requested);
    }

    function testFuzz_theDrawFollowsServiceCallAndSeed(bytes32 seed, uint8 count, uint32 full) public {
        uint256 size = bound(count, 1, OPERATORS_MAX);
        address[] memory members = registerMany(size);
        uint64 service = seededService(members, seed);
        for (uint256 i; i < size; ++i) {
            if (full >> i & 1 == 1) setCapacity(members[i], 0);
        }
        for (uint64 call; call < 3; ++call) {
            address expected = firstWithRoom(drawOrder(service, call, 0));
            if (expected == address(0)) {
                vm.expectRevert(abi.encodeWithSelector(I.NoCapacity.selector, service));
                submitCreate(service, 0);
                return;
            }
            assertEq(submitCreate(service, 0), call);
            assertEq(assignedTo(service, call), expected);
        }
    }

    function test_theDrawFollowsServiceCallAndSeed() public {
        testFuzz_theDrawFollowsServiceCallAndSeed(keccak256("seed"), 8, 0x55);
        address[] memory members = core.getServiceOperators(1);
        assertEq(assignedTo(1, 0), members[5]);
        assertEq(assignedTo(1, 1), members[7]);
        assertEq(assignedTo(1, 2), members[3]);
    }

    function firstWithRoom(address[] memory order) private view returns (address) {
        for (uint256 i; i < order.length; ++i) {
            if (roomOf(order[i]) != 0) return order[i];
        }
        return address(0);
    }

    function testFuzz_withoutAFreeOperatorACreateIsRefused(uint8 count) public {
        uint256 size = bound(count, 1, 4);
        uint64 service = serviceOf(size, 0);
        for (uint256 i; i < size * CAPACITY; ++i) {
            submitCreate(service, 0);
        }
        vm.expectRevert(abi.encodeWithSelector(I.NoCapacity.selector, service));
        submitCreate(service, 0);
        // Freed, it is accepted.
        answer(service, 0, OUTCOME_CALLER, 0);
        submitCreate(service, 0);
    }

    function test_anOperatorThatIsLeavingTakesNoNewSandbox() public {
        uint64 service = serviceOf(1, 0);
        core.scheduleExit(service, operatorAt(0));
        vm.expectRevert(abi.encodeWithSelector(I.NoCapacity.selector, service));
        submitCreate(service, 0);
        core.cancelExit(service, operatorAt(0));
        submitCreate(service, 0);
    }

    // ─── Time to live ───────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aSandboxLivesForItsBlocks(uint64 ttlBlocks) public {
        uint64 service = serviceOf(1, 0);
        uint64 call = submitCreate(service, ttlBlocks);
        uint256 expected = block.number + ttlBlocks;
        // What cannot be stored is as good as for ever.
        if (ttlBlocks == 0 || expected >= type(uint40).max) expected = type(uint64).max;
        assertEq(blueprint.sandbox(service, call, 0).expiryBlock, expected);
    }

    function test_anExpiryBeyondFortyBitsIsTheEndOfTheService() public {
        uint64 most = uint64(type(uint40).max - block.number);
        uint64[5] memory cases = [most - 1, most, most + 1, type(uint64).max, 0];
        for (uint256 i; i < cases.length; ++i) {
            uint256 snapshot = vm.snapshotState();
            testFuzz_aSandboxLivesForItsBlocks(cases[i]);
            vm.revertToState(snapshot);
        }
    }

    function testFuzz_aSandboxMayNotOutliveItsService(uint32 ttlSeconds, uint64 ttlBlocks, uint32 age) public {
        ttlSeconds = uint32(bound(ttlSeconds, 3600, 365 days));
        age = uint32(bound(age, 0, ttlSeconds));
        ttlBlocks = uint64(bound(ttlBlocks, 1, type(uint64).max));
        uint64 service = serviceOf(1, ttlSeconds);
        uint256 end = block.timestamp + ttlSeconds;
        skip(age);
        bool fits = uint256(ttlBlocks) * BLOCK_TIME_MS <= (ttlSeconds - age) * uint256(1000);
        if (!fits) {
            vm.expectRevert(abi.encodeWithSelector(I.OutlivesService.selector, ttlBlocks, end));
        }
        submitCreate(service, ttlBlocks);
    }

    function test_aSandboxMayNotOutliveItsService() public {
        uint64 service = serviceOf(1, 3600);
        uint256 end = block.timestamp + 3600;
        submitCreate(service, 1800);
        submitCreate(service, 0);
        vm.expectRevert(abi.encodeWithSelector(I.OutlivesService.selector, 1801, end));
        submitCreate(service, 1801);
        // An extension counts at once, though no hook tells of it.
        core.extend(service, 2);
        submitCreate(service, 1801);
    }

    // ─── Outcomes ───────────────────────────────────────────────────────────────────────────────────────────────────

    function test_aCreateThatIsDoneIsLive() public {
        uint64 service = serviceOf(1, 0);
        uint64 call = submitCreate(service, 0);
        answer(service, call, OUTCOME_DONE, 1);
        assertState(service, call, I.SandboxState.Live);
        assertEq(blueprint.sandbox(service, call, 0).owner, customer);
        assertEq(blueprint.sandbox(service, call, 0).operator, operatorAt(0));
        assertEq(blueprint.assignment(service, call).detail, 1);
        assertEq(usedBy(operatorAt(0)), 1);
    }

    /// An operator's failure too, if there is no other operator to try.
    function testFuzz_aCreateThatFailedFreesItsSlot(uint8 outcome) public {
        outcome = uint8(bound(outcome, OUTCOME_CALLER, OUTCOME_OPERATOR));
        uint64 service = serviceOf(1, 0);
        uint64 call = submitCreate(service, 0);
        answer(service, call, outcome, 0);
        assertState(service, call, I.SandboxState.Failed);
        assertEq(usedBy(operatorAt(0)), 0);
        assertTrue(core.isCompleted(service, call));
        assertEq(blueprint.assignment(service, call).outcome, outcome);
    }

    function testFuzz_slotsThatWereNotAskedForAreUnknown(uint8 slot) public {
        uint64 service = serviceOf(1, 0);
        uint64 call = liveSandbox(service, 0);
        slot = uint8(bound(slot, 1, 255));
        assertEq(uint8(blueprint.sandbox(service, call, slot).state), uint8(I.SandboxState.Unknown));
    }
}
