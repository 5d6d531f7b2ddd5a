// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {
    JOB_WORKFLOW_CANCEL,
    JOB_WORKFLOW_CREATE,
    JOB_WORKFLOW_TRIGGER,
    OUTCOME_CALLER,
    OUTCOME_DONE,
    WorkflowCreateRequest
} from "../src/JobTypes.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// The registry of workflows: rows, bodies, switches, firings, listings. How they move is `Reassign.t.sol`'s.
contract WorkflowsTest is Fixture {
    uint64 private constant TTL_SECONDS = 30 days;
    /// Behind each of the four texts that are stored, its length.
    uint256 private constant LENGTHS_BYTES = 8;

    address private tenant = makeAddr("tenant"); // may call, and does not own the service
    uint64 private service;

    function setUp() public override {
        super.setUp();
        service = core.openService(customer, registerMany(3), "", TTL_SECONDS);
    }

    // ─── Rows ───────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aRowSaysWhatTheCreateSaid(WorkflowCreateRequest memory request, uint8 word, uint32 later) public {
        request.trigger_type = triggers()[word % 4];
        vm.assume(bytes(request.trigger_config).length <= blueprint.TRIGGER_CONFIG_BYTES_MAX());
        vm.roll(block.number + later);
        bytes memory inputs = abi.encode(request);
        uint64 workflow = submitAs(tenant, service, JOB_WORKFLOW_CREATE, inputs);

        (I.WorkflowView memory row, I.WorkflowBody memory body) = blueprint.getWorkflow(service, workflow);
        assertEq(row.serviceId, service);
        assertEq(row.workflowId, workflow);
        assertEq(row.owner, tenant);
        assertEq(row.operator, assignedTo(service, workflow));
        assertEq(row.epoch, 0);
        assertEq(uint8(row.status), uint8(I.WorkflowStatus.Pending));
        assertEq(uint8(row.trigger), word % 4);
        assertEq(row.lastTriggered, 0);
        assertEq(row.bodyBlock, block.number);
        assertEq(row.bodyHash, keccak256(inputs));
        assertEq(row.triggerConfig, request.trigger_config);
        assertEq(body.stored, storedBytes(request) <= blueprint.WORKFLOW_STORED_BYTES_MAX());
        if (!body.stored) return;
        assertEq(body.name, request.name);
        assertEq(body.workflowJson, request.workflow_json);
        assertEq(body.sandboxConfigJson, request.sandbox_config_json);
    }

    function test_aRowSaysWhatTheCreateSaid() public {
        for (uint8 i; i < 4; ++i) {
            testFuzz_aRowSaysWhatTheCreateSaid(WorkflowCreateRequest("n", "{\"a\":1}", "", "0 * * * * *", "{}"), i, 5);
            testFuzz_aRowSaysWhatTheCreateSaid(WorkflowCreateRequest("", "", "", "", ""), i, 5);
        }
    }

    /// Both sides of the limit, however the bytes are divided among the texts; the configuration is kept in any case.
    function testFuzz_aBodyIsStoredWholeUpToTheLimit(uint16 size, uint8 config, uint16 name, uint16 json) public {
        uint256 most = blueprint.WORKFLOW_STORED_BYTES_MAX() - LENGTHS_BYTES;
        uint256 left = bound(size, 0, 2 * most);
        WorkflowCreateRequest memory request;
        request.trigger_type = "event";
        (request.trigger_config, left) = portion(left, bound(config, 0, blueprint.TRIGGER_CONFIG_BYTES_MAX()), "c");
        (request.name, left) = portion(left, name, "n");
        (request.workflow_json, left) = portion(left, json, "w");
        (request.sandbox_config_json, left) = portion(left, left, "s");
        uint64 workflow = submitAs(customer, service, JOB_WORKFLOW_CREATE, abi.encode(request));
        (I.WorkflowView memory row, I.WorkflowBody memory body) = blueprint.getWorkflow(service, workflow);
        bool isStored = storedBytes(request) <= most + LENGTHS_BYTES;
        assertEq(row.triggerConfig, request.trigger_config);
        assertEq(body.stored, isStored);
        assertEq(body.name, isStored ? request.name : "");
        assertEq(body.workflowJson, isStored ? request.workflow_json : "");
        assertEq(body.sandboxConfigJson, isStored ? request.sandbox_config_json : "");
    }

    function test_aBodyIsStoredWholeUpToTheLimit() public {
        uint16 most = uint16(blueprint.WORKFLOW_STORED_BYTES_MAX() - LENGTHS_BYTES);
        for (uint16 size = most - 1; size < most + 2; ++size) {
            testFuzz_aBodyIsStoredWholeUpToTheLimit(size, 192, 0, 1);
            testFuzz_aBodyIsStoredWholeUpToTheLimit(size, 0, 0, size);
            testFuzz_aBodyIsStoredWholeUpToTheLimit(size, 0, 10, 10);
        }
        (, I.WorkflowBody memory body) = blueprint.getWorkflow(service, 5);
        assertTrue(body.stored);
        (, body) = blueprint.getWorkflow(service, 6);
        assertFalse(body.stored);
    }

    /// Twice the same call id, in two services of the same operators and owner.
    function testFuzz_workflowsAreKeyedByServiceAndCall(string memory one, string memory two) public {
        vm.assume(bytes(one).length <= 192 && bytes(two).length <= 192);
        uint64 other = core.openService(customer, core.getServiceOperators(service), "", 0);
        uint64 workflow = submitAs(customer, service, JOB_WORKFLOW_CREATE, Inputs.workflow("cron", one));
        assertEq(submitAs(tenant, other, JOB_WORKFLOW_CREATE, Inputs.workflow("event", two)), workflow);
        answer(service, workflow, OUTCOME_DONE, 0);

        (I.WorkflowView memory row,) = blueprint.getWorkflow(service, workflow);
        assertEq(row.triggerConfig, one);
        assertEq(row.owner, customer);
        (row,) = blueprint.getWorkflow(other, workflow);
        assertEq(row.triggerConfig, two);
        assertEq(row.owner, tenant);
        assertStatus(service, workflow, I.WorkflowStatus.Active);
        assertStatus(other, workflow, I.WorkflowStatus.Pending);

        cancel(tenant, other, workflow);
        assertStatus(service, workflow, I.WorkflowStatus.Active);
        assertStatus(other, workflow, I.WorkflowStatus.Cancelled);
    }

    function testFuzz_aWorkflowOfAnotherServiceIsUnknown(bool isCancel, uint64 workflow) public {
        uint64 other = core.openService(customer, core.getServiceOperators(service), "", 0);
        submitWorkflow(service);
        submitWorkflow(service);
        refusesUnknown(other, workflow, isCancel ? JOB_WORKFLOW_CANCEL : JOB_WORKFLOW_TRIGGER);
    }

    function test_aWorkflowOfAnotherServiceIsUnknown() public {
        testFuzz_aWorkflowOfAnotherServiceIsUnknown(true, 0);
        testFuzz_aWorkflowOfAnotherServiceIsUnknown(false, 1);
    }

    function testFuzz_aCallThatCreatedNoWorkflowIsNone(uint8 job) public {
        vm.assume(job != JOB_WORKFLOW_CREATE && !Inputs.isOfSandbox(job) && Inputs.isOffered(job));
        uint64 existing = activeWorkflow(service);
        uint64 call = submitAs(customer, service, job, Inputs.canonical(job, "", existing));
        assertStatus(service, call, I.WorkflowStatus.Unknown);
        refusesUnknown(service, call, JOB_WORKFLOW_TRIGGER);
        (I.WorkflowView memory row, I.WorkflowBody memory body) = blueprint.getWorkflow(service, call);
        I.WorkflowView memory noRow;
        I.WorkflowBody memory noBody;
        assertEq(abi.encode(row, body), abi.encode(noRow, noBody));
    }

    // ─── Activation ─────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aWorkflowIsActiveOnceItsOperatorHasConfirmedIt(uint8 outcome) public {
        uint64 workflow = submitWorkflow(service);
        isListed(workflow, false);
        outcome = uint8(bound(outcome, OUTCOME_DONE, OUTCOME_CALLER));
        answer(service, workflow, outcome, 0);
        assertStatus(service, workflow, outcome == OUTCOME_DONE ? I.WorkflowStatus.Active : I.WorkflowStatus.Failed);
        isListed(workflow, outcome == OUTCOME_DONE);
    }

    function testFuzz_aConfirmationWithADetailIsIgnored(uint256 detail) public {
        vm.assume(detail != 0);
        uint64 workflow = submitWorkflow(service);
        answer(service, workflow, OUTCOME_DONE, detail);
        assertFalse(core.isCompleted(service, workflow));
        assertStatus(service, workflow, I.WorkflowStatus.Pending);
    }

    function testFuzz_aWorkflowCancelledBeforeItsReceiptStaysCancelled(uint8 outcome) public {
        uint64 workflow = submitWorkflow(service);
        cancel(customer, service, workflow);
        answer(service, workflow, outcome % 3, 0);
        assertTrue(core.isCompleted(service, workflow));
        assertStatus(service, workflow, I.WorkflowStatus.Cancelled);
        isListed(workflow, false);
    }

    // ─── Cancelling and triggering ──────────────────────────────────────────────────────────────────────────────────

    /// From the call on, whatever its operator answers.
    function testFuzz_aCancelCountsAtOnceFromEveryStatus(uint8 status, bool byServiceOwner, uint8 outcome) public {
        uint64 workflow = inStatus(status);
        (I.WorkflowView memory row,) = blueprint.getWorkflow(service, workflow);
        address caller = byServiceOwner ? customer : tenant;
        if (row.status > I.WorkflowStatus.Paused) {
            vm.expectRevert(abi.encodeWithSelector(I.WorkflowNotActive.selector, service, workflow, row.status));
            cancel(caller, service, workflow);
            return;
        }
        uint64 call = cancel(caller, service, workflow);
        assertEq(assignedTo(service, call), row.operator);
        assertStatus(service, workflow, I.WorkflowStatus.Cancelled);
        answer(service, call, outcome % 3, 0);
        assertTrue(core.isCompleted(service, call));
        assertStatus(service, workflow, I.WorkflowStatus.Cancelled);
        isListed(workflow, false);
    }

    function test_aCancelCountsAtOnceFromEveryStatus() public {
        for (uint8 status = 1; status < 6; ++status) {
            testFuzz_aCancelCountsAtOnceFromEveryStatus(status, status % 2 == 0, OUTCOME_DONE);
        }
    }

    function testFuzz_onlyAnActiveWorkflowIsTriggered(uint8 status, bool byServiceOwner, uint32 later) public {
        uint64 workflow = inStatus(status);
        (I.WorkflowView memory row,) = blueprint.getWorkflow(service, workflow);
        skip(later % TTL_SECONDS);
        address caller = byServiceOwner ? customer : tenant;
        bytes memory inputs = Inputs.control(workflow);
        if (row.status != I.WorkflowStatus.Active) {
            vm.expectRevert(abi.encodeWithSelector(I.WorkflowNotActive.selector, service, workflow, row.status));
            submitAs(caller, service, JOB_WORKFLOW_TRIGGER, inputs);
            return;
        }
        uint64 call = submitAs(caller, service, JOB_WORKFLOW_TRIGGER, inputs);
        assertEq(assignedTo(service, call), row.operator);
        (row,) = blueprint.getWorkflow(service, workflow);
        assertEq(row.lastTriggered, block.timestamp);
        assertEq(uint8(row.status), uint8(I.WorkflowStatus.Active));
    }

    function test_onlyAnActiveWorkflowIsTriggered() public {
        for (uint8 status = 1; status < 6; ++status) {
            testFuzz_onlyAnActiveWorkflowIsTriggered(status, status % 2 == 0, 60);
        }
    }

    function testFuzz_nobodyElseSwitchesAWorkflow(uint8 status, address caller) public {
        vm.assume(caller != tenant && caller != customer);
        uint64 workflow = inStatus(status);
        bytes memory refusal = abi.encodeWithSelector(I.NotWorkflowOwner.selector, service, workflow, caller);
        vm.expectRevert(refusal);
        cancel(caller, service, workflow);
        vm.expectRevert(refusal);
        submitAs(caller, service, JOB_WORKFLOW_TRIGGER, Inputs.control(workflow));
        vm.startPrank(caller);
        vm.expectRevert(refusal);
        blueprint.pauseWorkflow(service, workflow);
        vm.expectRevert(refusal);
        blueprint.resumeWorkflow(service, workflow);
        vm.stopPrank();
    }

    function test_notEvenItsOperatorSwitchesAWorkflow() public {
        uint64 workflow = inStatus(2);
        testFuzz_nobodyElseSwitchesAWorkflow(2, assignedTo(service, workflow));
    }

    // ─── Pausing ────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aWorkflowIsPausedFromActiveAndResumedFromPaused(uint8 status, bool isPause, bool byServiceOwner)
        public
    {
        uint64 workflow = inStatus(status);
        (I.WorkflowView memory row,) = blueprint.getWorkflow(service, workflow);
        I.WorkflowStatus from = isPause ? I.WorkflowStatus.Active : I.WorkflowStatus.Paused;
        I.WorkflowStatus to = isPause ? I.WorkflowStatus.Paused : I.WorkflowStatus.Active;
        if (row.status == from) {
            vm.expectEmit(address(blueprint));
            emit I.WorkflowStatusSet(service, workflow, to);
        } else {
            vm.expectRevert(abi.encodeWithSelector(I.WorkflowNotActive.selector, service, workflow, row.status));
        }
        vm.prank(byServiceOwner ? customer : tenant);
        if (isPause) blueprint.pauseWorkflow(service, workflow);
        else blueprint.resumeWorkflow(service, workflow);
        if (row.status != from) return;
        assertStatus(service, workflow, to);
        isListed(workflow, !isPause);
    }

    function test_aWorkflowIsPausedFromActiveAndResumedFromPaused() public {
        for (uint8 status = 1; status < 6; ++status) {
            testFuzz_aWorkflowIsPausedFromActiveAndResumedFromPaused(status, true, true);
            testFuzz_aWorkflowIsPausedFromActiveAndResumedFromPaused(status, false, false);
        }
    }

    function testFuzz_aWorkflowThatDoesNotExistIsNotSwitched(uint64 other, uint64 workflow) public {
        bytes memory refusal = abi.encodeWithSelector(I.UnknownWorkflow.selector, other, workflow);
        vm.startPrank(customer);
        vm.expectRevert(refusal);
        blueprint.pauseWorkflow(other, workflow);
        vm.expectRevert(refusal);
        blueprint.resumeWorkflow(other, workflow);
    }

    // ─── Words ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// A workflow of the tenant's: pending, active, paused, cancelled or failed.
    function inStatus(uint8 status) private returns (uint64 workflow) {
        I.WorkflowStatus wanted = I.WorkflowStatus(bound(status, 1, 5));
        workflow = submitAs(tenant, service, JOB_WORKFLOW_CREATE, Inputs.workflow("cron", "0 * * * * *"));
        if (wanted == I.WorkflowStatus.Failed) answer(service, workflow, OUTCOME_CALLER, 0);
        else if (wanted != I.WorkflowStatus.Pending) answer(service, workflow, OUTCOME_DONE, 0);
        if (wanted == I.WorkflowStatus.Paused) {
            vm.prank(tenant);
            blueprint.pauseWorkflow(service, workflow);
        }
        if (wanted == I.WorkflowStatus.Cancelled) cancel(tenant, service, workflow);
        assertStatus(service, workflow, wanted);
    }

    function cancel(address caller, uint64 serviceId, uint64 workflow) private returns (uint64) {
        return submitAs(caller, serviceId, JOB_WORKFLOW_CANCEL, Inputs.control(workflow));
    }

    function isListed(uint64 workflow, bool expected) private view {
        (I.WorkflowView[] memory page,) = blueprint.activeWorkflows(assignedTo(service, workflow), 0, 100);
        uint256 found;
        for (uint256 i; i < page.length; ++i) {
            if (page[i].serviceId == service && page[i].workflowId == workflow) ++found;
        }
        assertEq(found, expected ? 1 : 0);
    }

    function refusesUnknown(uint64 serviceId, uint64 workflow, uint8 job) private {
        vm.expectRevert(abi.encodeWithSelector(I.UnknownWorkflow.selector, serviceId, workflow));
        submitAs(customer, serviceId, job, Inputs.control(workflow));
    }

    function storedBytes(WorkflowCreateRequest memory request) private pure returns (uint256) {
        return LENGTHS_BYTES + bytes(request.trigger_config).length + bytes(request.name).length
            + bytes(request.workflow_json).length + bytes(request.sandbox_config_json).length;
    }

    /// Up to `size` of the bytes that are left, told from those of another text.
    function portion(uint256 left, uint256 size, bytes1 letter) private pure returns (string memory, uint256) {
        bytes memory text = new bytes(size < left ? size : left);
        for (uint256 i; i < text.length; ++i) {
            text[i] = letter;
        }
        return (string(text), left - text.length);
    }

    function triggers() private pure returns (string[4] memory) {
        return ["manual", "cron", "webhook", "event"];
    }
}
