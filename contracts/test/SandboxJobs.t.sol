// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {JOB_SANDBOX_DELETE, OUTCOME_CALLER, OUTCOME_DONE, OUTCOME_OPERATOR} from "../src/JobTypes.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// What becomes of a sandbox by the jobs in it. Who may ask for them is `Routing.t.sol`'s.
contract SandboxJobsTest is Fixture {
    uint64 private service;
    uint64 private target;
    address private holder;

    function setUp() public override {
        super.setUp();
        service = serviceOf(4, 0);
        target = liveSandbox(service, 1000);
        holder = assignedTo(service, target);
    }

    function testFuzz_noJobButADeleteEndsASandbox(uint8 which, uint8 outcome) public {
        uint8 job = Inputs.sandboxJobs()[which % 9];
        vm.assume(job != JOB_SANDBOX_DELETE);
        outcome = uint8(bound(outcome, 0, 2));
        uint64 call = submitAs(customer, service, job, Inputs.onSandbox(job, idOf(service, target, 0)));
        answer(service, call, outcome, 0);
        assertTrue(core.isCompleted(service, call));
        assertEq(blueprint.assignment(service, call).outcome, outcome);
        assertState(service, target, I.SandboxState.Live);
        assertEq(usedBy(holder), 1);
    }

    /// Stopped it takes up its slot as well: only the operator knows the difference.
    function test_noJobButADeleteEndsASandbox() public {
        for (uint8 i; i < 27; ++i) {
            if (Inputs.sandboxJobs()[i % 9] != JOB_SANDBOX_DELETE) testFuzz_noJobButADeleteEndsASandbox(i, i / 9);
        }
    }

    /// What is bound to one operator is never another's: its failure is the call's.
    function testFuzz_anOperatorsFailureInASandboxCompletesTheCall(uint8 which) public {
        uint8 job = Inputs.sandboxJobs()[which % 9];
        uint64 call = submitAs(customer, service, job, Inputs.onSandbox(job, idOf(service, target, 0)));
        vm.expectEmit(address(blueprint));
        emit I.ReceiptRecorded(service, call, holder, OUTCOME_OPERATOR, RESPONSE, 0);
        answerAs(holder, service, call, receipt(OUTCOME_OPERATOR, 0));
        assertTrue(core.isCompleted(service, call));
        assertEq(blueprint.assignment(service, call).epoch, 0);
    }

    function test_aDeletedSandboxIsGone() public {
        answer(service, submitDelete(service, target), OUTCOME_DONE, 0);
        assertState(service, target, I.SandboxState.Deleted);
        assertEq(usedBy(holder), 0);
    }

    function testFuzz_aDeleteThatFailedLeavesTheSandboxLive(uint8 outcome) public {
        outcome = uint8(bound(outcome, OUTCOME_CALLER, OUTCOME_OPERATOR));
        answer(service, submitDelete(service, target), outcome, 0);
        assertState(service, target, I.SandboxState.Live);
        assertEq(usedBy(holder), 1);
        answer(service, submitDelete(service, target), OUTCOME_DONE, 0);
        assertState(service, target, I.SandboxState.Deleted);
    }

    function testFuzz_deletesUnderWayAtOnceFreeOneSlot(uint8 count, uint8 others) public {
        uint256 deletes = bound(count, 2, 6);
        for (uint256 i; i < others % 8; ++i) {
            liveSandbox(service, 0);
        }
        uint32 before = usedBy(holder);
        uint64 first = submitDelete(service, target);
        for (uint256 i = 1; i < deletes; ++i) {
            submitDelete(service, target);
        }
        for (uint64 i; i < deletes; ++i) {
            answer(service, first + i, OUTCOME_DONE, 0);
            assertTrue(core.isCompleted(service, first + i));
        }
        assertEq(usedBy(holder), before - 1);
    }

    function test_deletesUnderWayAtOnceFreeOneSlot() public {
        testFuzz_deletesUnderWayAtOnceFreeOneSlot(2, 5);
    }
}
