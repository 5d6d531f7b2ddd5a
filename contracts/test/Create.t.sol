// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint} from "../src/IAgentSandboxBlueprint.sol";
import {JOB_SANDBOX_CREATE, OUTCOME_DONE, OUTCOME_OPERATOR, SandboxCreateRequest} from "../src/JobTypes.sol";
import {Fixture} from "./Fixture.sol";

contract CreateTest is Fixture {
    uint64 private constant CREATE_ANSWER_BLOCKS = 300; // 600 s of 2 s blocks

    // ─── Assignment ─────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aCreateIsAssignedToAFreeOperatorOfTheService(uint8 count, uint8 calls, bytes32 seed) public {
        uint256 size = bound(count, 1, OPERATORS_MAX);
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
        emit IAgentSandboxBlueprint.OperatorAssigned(
            service, 0, operatorAt(0), uint64(block.number) + CREATE_ANSWER_BLOCKS
        );
        uint64 call = submitCreate(service, 0);

        IAgentSandboxBlueprint.Assignment memory seen = blueprint.assignment(service, call);
        assertEq(seen.operator, operatorAt(0));
        assertEq(seen.caller, customer);
        assertEq(seen.deadlineBlock, block.number + CREATE_ANSWER_BLOCKS);
        assertEq(seen.job, JOB_SANDBOX_CREATE);
        assertFalse(seen.answered);
        assertEq(seen.responseHash, 0);
        assertEq(seen.detail, 0);
        assertState(service, call, IAgentSandboxBlueprint.SandboxState.Requested);
    }

    function testFuzz_theDrawFollowsServiceCallAndSeed(bytes32 seed) public {
        address[] memory members = registerMany(8);
        uint64 service = core.openService(customer, members, selection(8, seed, false), 0);
        for (uint64 call; call < 8; ++call) {
            address[] memory free = new address[](8);
            uint256 count;
            for (uint256 i; i < 8; ++i) {
                if (blueprint.operatorView(members[i]).eligible) free[count++] = members[i];
            }
            address expected = free[uint256(keccak256(abi.encode(service, call, seed))) % count];
            assertEq(submitCreate(service, 0), call);
            assertEq(assignedTo(service, call), expected);
        }
    }

    function testFuzz_withoutAFreeOperatorACreateIsRefused(uint8 count) public {
        uint256 size = bound(count, 1, 4);
        uint64 service = serviceOf(size, 0);
        for (uint256 i; i < size * CAPACITY; ++i) {
            submitCreate(service, 0);
        }
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.NoCapacity.selector, service));
        submitCreate(service, 0);
        // Freed, it is accepted.
        answer(service, 0, OUTCOME_OPERATOR, 0);
        submitCreate(service, 0);
    }

    function test_anOperatorThatIsLeavingTakesNoNewSandbox() public {
        uint64 service = serviceOf(1, 0);
        vm.prank(address(core));
        blueprint.onExitScheduled(service, operatorAt(0), 0);
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.NoCapacity.selector, service));
        submitCreate(service, 0);
        vm.prank(address(core));
        blueprint.onExitCanceled(service, operatorAt(0));
        submitCreate(service, 0);
    }

    // ─── Quotes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aQuotedCreateGoesToTheQuotedOperator(uint8 count, uint8 chosen) public {
        uint256 size = bound(count, 1, OPERATORS_MAX);
        uint64 service = serviceOf(size, 0);
        address[] memory quoted = new address[](1);
        quoted[0] = operatorAt(chosen % size);
        vm.prank(customer);
        uint64 call = core.submitJobFromQuotes(service, JOB_SANDBOX_CREATE, createInputs(0), quoted);
        assertEq(assignedTo(service, call), quoted[0]);
    }

    function test_aQuotedOperatorWithoutRoomIsNotReplaced() public {
        uint64 service = serviceOf(2, 0);
        address[] memory quoted = new address[](1);
        quoted[0] = operatorAt(1);
        for (uint256 i; i < CAPACITY; ++i) {
            core.submitJobFromQuotes(service, JOB_SANDBOX_CREATE, createInputs(0), quoted);
        }
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.NoCapacity.selector, service));
        core.submitJobFromQuotes(service, JOB_SANDBOX_CREATE, createInputs(0), quoted);
    }

    function testFuzz_onlyOneOperatorMayBeQuoted(uint8 count) public {
        uint256 size = bound(count, 2, OPERATORS_MAX);
        address[] memory operators = registerMany(size);
        uint64 service = core.openService(customer, operators, "", 0);
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.OneQuoteExpected.selector, size));
        core.submitJobFromQuotes(service, JOB_SANDBOX_CREATE, createInputs(0), operators);
    }

    // ─── Time to live ───────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aSandboxLivesForItsBlocks(uint64 ttlBlocks) public {
        uint64 service = serviceOf(1, 0);
        uint64 call = submitCreate(service, ttlBlocks);
        uint256 expected = ttlBlocks == 0 ? type(uint64).max : block.number + ttlBlocks;
        if (expected > type(uint64).max) expected = type(uint64).max;
        assertEq(blueprint.sandbox(service, call, 0).expiryBlock, expected);
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
            vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.OutlivesService.selector, ttlBlocks, end));
        }
        submitCreate(service, ttlBlocks);
    }

    function test_aSandboxMayNotOutliveItsService() public {
        uint64 service = serviceOf(1, 3600);
        uint256 end = block.timestamp + 3600;
        submitCreate(service, 1800);
        submitCreate(service, 0);
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.OutlivesService.selector, 1801, end));
        submitCreate(service, 1801);
        // An extension counts at once, though no hook tells of it.
        core.extend(service, 2);
        submitCreate(service, 1801);
    }

    // ─── Inputs ─────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_anyCanonicalRequestIsAccepted(SandboxCreateRequest memory request) public {
        uint64 service = serviceOf(1, 0);
        submitAs(customer, service, JOB_SANDBOX_CREATE, abi.encode(request));
    }

    function testFuzz_inputsThatAreNoRequestAreRefused(bytes memory inputs) public {
        uint64 service = serviceOf(1, 0);
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.MalformedInputs.selector, JOB_SANDBOX_CREATE));
        submitAs(customer, service, JOB_SANDBOX_CREATE, inputs);
    }

    function testFuzz_trailingBytesAreRefused(SandboxCreateRequest memory request, bytes memory tail) public {
        vm.assume(tail.length != 0);
        uint64 service = serviceOf(1, 0);
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.MalformedInputs.selector, JOB_SANDBOX_CREATE));
        submitAs(customer, service, JOB_SANDBOX_CREATE, bytes.concat(abi.encode(request), tail));
    }

    function testFuzz_inputsThatAreTooLargeAreRefused(uint8 job, uint16 excess) public {
        uint256 most = blueprint.INPUT_BYTES_MAX();
        uint256 given = most + 1 + excess;
        vm.prank(address(core));
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.InputsTooLarge.selector, given, most));
        blueprint.onJobCall(1, job, 0, new bytes(given));
    }

    function testFuzz_everyOtherJobIsUnknown(uint8 job, bytes memory inputs) public {
        vm.assume(job != 0 && job != 3 && job != 10);
        uint64 service = serviceOf(1, 0);
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.UnknownJob.selector, job));
        submitAs(customer, service, job, inputs);
    }

    function test_everyOtherJobIsUnknown() public {
        for (uint256 job; job < 256; ++job) {
            if (job != 0 && job != 3 && job != 10) testFuzz_everyOtherJobIsUnknown(uint8(job), createInputs(0));
        }
    }

    // ─── Outcomes ───────────────────────────────────────────────────────────────────────────────────────────────────

    function test_aCreateThatIsDoneIsLive() public {
        uint64 service = serviceOf(1, 0);
        uint64 call = submitCreate(service, 0);
        answer(service, call, OUTCOME_DONE, 1);
        assertState(service, call, IAgentSandboxBlueprint.SandboxState.Live);
        assertEq(blueprint.sandbox(service, call, 0).owner, customer);
        assertEq(blueprint.sandbox(service, call, 0).operator, operatorAt(0));
        assertEq(blueprint.assignment(service, call).detail, 1);
        assertEq(usedBy(operatorAt(0)), 1);
    }

    function testFuzz_aCreateThatFailedFreesItsSlot(uint8 outcome) public {
        outcome = uint8(bound(outcome, 1, 2));
        uint64 service = serviceOf(1, 0);
        uint64 call = submitCreate(service, 0);
        answer(service, call, outcome, 0);
        assertState(service, call, IAgentSandboxBlueprint.SandboxState.Failed);
        assertEq(usedBy(operatorAt(0)), 0);
        assertTrue(core.isCompleted(service, call));
    }

    function testFuzz_slotsThatWereNotAskedForAreUnknown(uint8 slot) public {
        uint64 service = serviceOf(1, 0);
        uint64 call = liveSandbox(service, 0);
        slot = uint8(bound(slot, 1, 255));
        assertEq(
            uint8(blueprint.sandbox(service, call, slot).state), uint8(IAgentSandboxBlueprint.SandboxState.Unknown)
        );
    }

    function isIn(address operator, address[] memory members) private pure returns (bool) {
        for (uint256 i; i < members.length; ++i) {
            if (members[i] == operator) return true;
        }
        return false;
    }
}
