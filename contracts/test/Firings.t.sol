// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Vm} from "forge-std/Vm.sol";

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {JOB_WORKFLOW_CANCEL, OUTCOME_DONE, OUTCOME_OPERATOR} from "../src/JobTypes.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// What operators read of the registry, and report to it.
contract FiringsTest is Fixture {
    uint256 private constant MEMBERS = 3;
    uint64 private constant TTL_SECONDS = 30 days;

    uint64 private service;
    uint64 private workflow;
    address private firer;

    function setUp() public override {
        super.setUp();
        service = core.openService(customer, registerMany(MEMBERS), "", TTL_SECONDS);
        workflow = activeWorkflow(service);
        firer = assignedTo(service, workflow);
    }

    // ─── Reporting ──────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aFiringIsRecordedIfItIsNewsAndNotOfTheFuture(uint64 first, uint64 second) public {
        isRecorded(report(firer, 0, first), first, 0);
        (I.WorkflowView memory row,) = blueprint.getWorkflow(service, workflow);
        isRecorded(report(firer, 0, second), second, row.lastTriggered);
    }

    function test_aFiringIsRecordedIfItIsNewsAndNotOfTheFuture() public {
        uint64 now_ = uint64(block.timestamp);
        isRecorded(report(firer, 0, now_ + 1), now_ + 1, 0);
        isRecorded(report(firer, 0, 0), 0, 0);
        isRecorded(report(firer, 0, 1), 1, 0);
        isRecorded(report(firer, 0, 1), 1, 1);
        isRecorded(report(firer, 0, now_ - 1), now_ - 1, 1);
        isRecorded(report(firer, 0, now_ - 2), now_ - 2, now_ - 1);
        isRecorded(report(firer, 0, now_), now_, now_ - 1);
    }

    function isRecorded(bool recorded, uint64 at, uint64 last) private view {
        bool isNews = at > last && at <= block.timestamp;
        assertEq(recorded, isNews);
        (I.WorkflowView memory row,) = blueprint.getWorkflow(service, workflow);
        assertEq(row.lastTriggered, isNews ? at : last);
    }

    function testFuzz_onlyItsOperatorReportsAFiring(address reporter) public {
        assertEq(report(reporter, 0, uint64(block.timestamp)), reporter == firer);
    }

    function test_onlyItsOperatorReportsAFiring() public {
        assertFalse(report(customer, 0, uint64(block.timestamp)));
        for (uint256 i; i < MEMBERS; ++i) {
            testFuzz_onlyItsOperatorReportsAFiring(operatorAt(i));
        }
    }

    function testFuzz_aFiringOfAnotherEpochIsLeftOut(uint16 epoch, bool isMoved) public {
        uint16 now_;
        if (isMoved) {
            core.leave(service, firer);
            blueprint.reassign(service, workflow);
            (firer, now_) = (assignedTo(service, workflow), 1);
        }
        assertEq(report(firer, epoch, uint64(block.timestamp)), epoch == now_);
    }

    /// Whoever had it before knows a smaller epoch, and is not its operator.
    function test_theFormerOperatorReportsNothing() public {
        core.leave(service, firer);
        blueprint.reassign(service, workflow);
        assertFalse(report(firer, 0, uint64(block.timestamp)));
        assertFalse(report(firer, 1, uint64(block.timestamp)));
        assertFalse(report(assignedTo(service, workflow), 0, uint64(block.timestamp)));
        assertTrue(report(assignedTo(service, workflow), 1, uint64(block.timestamp)));
    }

    function testFuzz_onlyAnActiveWorkflowFires(uint8 status) public {
        if (status % 4 == 0) workflow = submitWorkflow(service);
        if (status % 4 == 1) pause();
        if (status % 4 == 2) cancel(workflow);
        assertEq(report(assignedTo(service, workflow), 0, uint64(block.timestamp)), status % 4 == 3);
        if (status % 4 != 1) return;
        vm.prank(customer);
        blueprint.resumeWorkflow(service, workflow);
        assertTrue(report(firer, 0, uint64(block.timestamp)));
    }

    function test_onlyAnActiveWorkflowFires() public {
        for (uint8 status; status < 4; ++status) {
            uint256 snapshot = vm.snapshotState();
            testFuzz_onlyAnActiveWorkflowFires(status);
            vm.revertToState(snapshot);
        }
    }

    function testFuzz_aTriggerIsTheLastFiringToo(uint32 later, uint64 at) public {
        skip(later % TTL_SECONDS);
        submitAs(customer, service, 31, Inputs.control(workflow));
        assertFalse(report(firer, 0, uint64(bound(at, 0, block.timestamp))));
        skip(1);
        assertTrue(report(firer, 0, uint64(block.timestamp)));
    }

    /// Each for itself, in the order given.
    function testFuzz_aFiringThatIsLeftOutHoldsUpNoOther(uint256 stale, uint8 count) public {
        uint256 size = bound(count, 1, 20);
        I.Firing[] memory firings = new I.Firing[](size);
        uint64 last;
        uint256 due;
        for (uint64 i; i < size; ++i) {
            firings[i] = I.Firing(service, workflow, 0, i + 1);
            uint256 why = stale >> (3 * i) & 7;
            if (why == 1) firings[i].serviceId = service + 1;
            else if (why == 2) firings[i].workflowId = workflow + 1;
            else if (why == 3) firings[i].epoch = 1;
            else if (why == 4) firings[i].at = uint64(block.timestamp + 1);
            else if (why == 5) firings[i].at = last;
            else (last, due) = (i + 1, due + 1);
        }
        vm.recordLogs();
        vm.prank(firer);
        blueprint.recordFirings(firings);
        assertEq(vm.getRecordedLogs().length, due);
        (I.WorkflowView memory row,) = blueprint.getWorkflow(service, workflow);
        assertEq(row.lastTriggered, last);
    }

    function testFuzz_aReportHoldsUpToTheMostEntries(uint16 count) public {
        uint256 most = blueprint.PAGE_MAX();
        uint256 given = bound(count, 0, 3 * most);
        I.Firing[] memory firings = new I.Firing[](given);
        for (uint64 i; i < given; ++i) {
            firings[i] = I.Firing(service, workflow, 0, i + 1);
        }
        if (given > most) vm.expectRevert(abi.encodeWithSelector(I.PageTooLarge.selector, given, most));
        vm.prank(firer);
        blueprint.recordFirings(firings);
        if (given > most) return;
        (I.WorkflowView memory row,) = blueprint.getWorkflow(service, workflow);
        assertEq(row.lastTriggered, given);
    }

    function test_aReportHoldsUpToTheMostEntries() public {
        assertEq(blueprint.PAGE_MAX(), 100);
        testFuzz_aReportHoldsUpToTheMostEntries(101);
        testFuzz_aReportHoldsUpToTheMostEntries(100);
    }

    // ─── Listing ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Steps in any order and any page size: what is active at the end is met exactly once, at its operator.
    /// forge-config: default.fuzz.runs = 128
    function testFuzz_aWalkMeetsEveryActiveWorkflowOnce(uint256 steps, uint8 page) public {
        uint64[2] memory services =
            [service, core.openService(customer, core.getServiceOperators(service), "", TTL_SECONDS)];
        uint64[] memory made = new uint64[](32);
        uint64[] memory where = new uint64[](32);
        uint256 count;
        for (uint256 i; i < 32; ++i) {
            uint256 step = steps >> (8 * i) & 255;
            uint64 at = services[step & 1];
            if (step & 6 != 6 || count == 0) {
                (made[count], where[count]) = (submitWorkflow(at), at);
                if (step & 6 == 2) answer(at, made[count], OUTCOME_OPERATOR, 0);
                answer(at, made[count], step & 8 == 0 ? OUTCOME_DONE : 1, 0);
                ++count;
            } else {
                uint256 which = (step >> 3) % count;
                change(where[which], made[which], step);
            }
        }
        if (steps >> 255 == 1) core.terminate(services[1]);
        uint256 met;
        for (uint256 i; i < MEMBERS; ++i) {
            met += walked(operatorAt(i), bound(page, 1, 100));
        }
        uint256 active = statusOf(service, workflow) == I.WorkflowStatus.Active ? 1 : 0;
        for (uint256 i; i < count; ++i) {
            bool fires = where[i] == service || steps >> 255 == 0;
            if (fires && statusOf(where[i], made[i]) == I.WorkflowStatus.Active) ++active;
        }
        assertEq(met, active);
    }

    function change(uint64 at, uint64 which, uint256 step) private {
        I.WorkflowStatus status = statusOf(at, which);
        if (step & 64 == 0 && status == I.WorkflowStatus.Active) {
            vm.prank(customer);
            blueprint.pauseWorkflow(at, which);
        } else if (step & 64 == 0 && status == I.WorkflowStatus.Paused) {
            vm.prank(customer);
            blueprint.resumeWorkflow(at, which);
        } else if (status <= I.WorkflowStatus.Paused) {
            submitAs(customer, at, JOB_WORKFLOW_CANCEL, Inputs.control(which));
        }
    }

    /// How many active workflows a walk of such pages meets; each is the operator's, none is met twice.
    function walked(address operator, uint256 limit) private view returns (uint256 met) {
        bytes32[] memory seen = new bytes32[](40);
        uint256 cursor;
        do {
            I.WorkflowView[] memory page;
            (page, cursor) = blueprint.activeWorkflows(operator, cursor, limit);
            assertLe(page.length, limit);
            for (uint256 i; i < page.length; ++i) {
                assertEq(page[i].operator, operator);
                assertEq(page[i].triggerConfig, "0 * * * * *");
                assertEq(uint8(page[i].status), uint8(I.WorkflowStatus.Active));
                bytes32 key = keccak256(abi.encode(page[i].serviceId, page[i].workflowId));
                for (uint256 j; j < met; ++j) {
                    assertTrue(seen[j] != key);
                }
                seen[met++] = key;
            }
        } while (cursor != 0);
    }

    /// What is added during a walk is met at its end; what ends is left out, and moves nothing.
    function test_aWalkIsNotPutOutByWhatHappensMeanwhile() public {
        uint64 only_ = core.openService(customer, only(firer), "", 0);
        uint64[] memory made = new uint64[](6);
        for (uint256 i; i < 6; ++i) {
            made[i] = activeWorkflow(only_);
        }
        (I.WorkflowView[] memory page, uint256 next) = blueprint.activeWorkflows(firer, 0, 3);
        assertEq(page.length, 3);
        assertEq(next, 3);
        submitAs(customer, only_, JOB_WORKFLOW_CANCEL, Inputs.control(made[0]));
        submitAs(customer, only_, JOB_WORKFLOW_CANCEL, Inputs.control(made[3]));
        uint64 added = activeWorkflow(only_);
        (page, next) = blueprint.activeWorkflows(firer, next, 3);
        assertEq(page.length, 2);
        assertEq(page[0].workflowId, made[2]);
        assertEq(page[1].workflowId, made[4]);
        (page, next) = blueprint.activeWorkflows(firer, next, 3);
        assertEq(page.length, 2);
        assertEq(page[0].workflowId, made[5]);
        assertEq(page[1].workflowId, added);
        assertEq(next, 0);
    }

    function testFuzz_aServiceThatHasEndedFiresNothing(bool isTerminated, uint32 later) public {
        assertEq(walked(firer, 100), 1);
        if (isTerminated) core.terminate(service);
        else skip(TTL_SECONDS);
        assertEq(walked(firer, 100), isTerminated ? 0 : 1);
        skip(1 + uint256(later));
        assertEq(walked(firer, 100), 0);
    }

    function test_anExtendedServiceFiresAgain() public {
        skip(TTL_SECONDS + 1);
        assertEq(walked(firer, 100), 0);
        core.extend(service, 10);
        assertEq(walked(firer, 100), 1);
    }

    function testFuzz_aPageHoldsUpToTheMostEntries(uint256 cursor, uint256 limit) public {
        uint256 most = blueprint.PAGE_MAX();
        if (limit > most) vm.expectRevert(abi.encodeWithSelector(I.PageTooLarge.selector, limit, most));
        (I.WorkflowView[] memory page, uint256 next) = blueprint.activeWorkflows(firer, cursor, limit);
        if (limit > most) return;
        assertEq(page.length, cursor == 0 && limit != 0 ? 1 : 0);
        assertEq(next, 0);
    }

    function test_aPageHoldsUpToTheMostEntries() public {
        testFuzz_aPageHoldsUpToTheMostEntries(0, 100);
        testFuzz_aPageHoldsUpToTheMostEntries(0, 101);
        testFuzz_aPageHoldsUpToTheMostEntries(1, 100);
        testFuzz_aPageHoldsUpToTheMostEntries(0, 0);
    }

    function testFuzz_whoWasGivenNoneIsListedNone(address operator) public view {
        vm.assume(operator != firer);
        (I.WorkflowView[] memory page, uint256 next) = blueprint.activeWorkflows(operator, 0, 100);
        assertEq(page.length, 0);
        assertEq(next, 0);
    }

    // ─── Words ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Whether the report was taken, with its event.
    function report(address reporter, uint16 epoch, uint64 at) private returns (bool) {
        I.Firing[] memory firings = new I.Firing[](1);
        firings[0] = I.Firing(service, workflow, epoch, at);
        vm.recordLogs();
        vm.prank(reporter);
        blueprint.recordFirings(firings);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        if (logs.length == 0) return false;
        assertEq(logs.length, 1);
        assertEq(logs[0].topics[0], I.WorkflowFired.selector);
        assertEq(logs[0].topics[1], bytes32(uint256(service)));
        assertEq(logs[0].topics[2], bytes32(uint256(workflow)));
        assertEq(logs[0].data, abi.encode(epoch, at));
        return true;
    }

    function pause() private {
        vm.prank(customer);
        blueprint.pauseWorkflow(service, workflow);
    }

    function cancel(uint64 which) private {
        submitAs(customer, service, JOB_WORKFLOW_CANCEL, Inputs.control(which));
    }

    function statusOf(uint64 at, uint64 which) private view returns (I.WorkflowStatus) {
        (I.WorkflowView memory row,) = blueprint.getWorkflow(at, which);
        return row.status;
    }
}
