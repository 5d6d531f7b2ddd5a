// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint} from "../src/IAgentSandboxBlueprint.sol";
import {
    ExecRequest,
    JOB_EXEC,
    JOB_SANDBOX_DELETE,
    OUTCOME_CALLER,
    OUTCOME_DONE,
    OUTCOME_OPERATOR
} from "../src/JobTypes.sol";
import {Fixture} from "./Fixture.sol";

/// Exec and delete: the jobs on a sandbox that exists.
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

    // ─── Assignment ─────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aJobGoesToTheHolder(uint8 others) public {
        for (uint256 i; i < others % 8; ++i) {
            liveSandbox(service, 0);
        }
        assertEq(assignedTo(service, submitExec(service, target)), holder);
        assertEq(assignedTo(service, submitDelete(service, target)), holder);
    }

    function testFuzz_anEndpointNamesTheSandboxAsWellAsTheId(string memory host) public {
        string memory endpoint = string.concat("https://", host, "/sandboxes/", idOf(service, target, 0));
        uint64 call = submitAs(customer, service, JOB_EXEC, execInputs(endpoint));
        assertEq(assignedTo(service, call), holder);
        call = submitAs(customer, service, JOB_SANDBOX_DELETE, deleteInputs(endpoint));
        assertEq(assignedTo(service, call), holder);
    }

    function testFuzz_onlyTheHolderMayBeQuoted(uint8 chosen) public {
        address[] memory quoted = new address[](1);
        quoted[0] = operatorAt(chosen % 4);
        if (quoted[0] != holder) {
            vm.expectRevert(
                abi.encodeWithSelector(IAgentSandboxBlueprint.QuotedOperatorMismatch.selector, holder, quoted[0])
            );
        }
        vm.prank(customer);
        core.submitJobFromQuotes(service, JOB_EXEC, execInputs(idOf(service, target, 0)), quoted);
    }

    // ─── Refusals ───────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_onlyTheOwnerMayUseASandbox(address caller) public {
        vm.assume(caller != customer);
        string memory id = idOf(service, target, 0);
        bytes memory refusal = abi.encodeWithSelector(IAgentSandboxBlueprint.NotSandboxOwner.selector, id, caller);
        vm.expectRevert(refusal);
        submitAs(caller, service, JOB_EXEC, execInputs(id));
        vm.expectRevert(refusal);
        submitAs(caller, service, JOB_SANDBOX_DELETE, deleteInputs(id));
    }

    function testFuzz_textThatNamesNoSandboxIsRefused(string memory text) public {
        refusesUnknown(text);
    }

    function testFuzz_aSandboxThatDoesNotExistIsRefused(uint64 otherService, uint64 call, uint8 slot) public {
        vm.assume(otherService != service || call != target || slot != 0);
        refusesUnknown(idOf(otherService, call, slot));
    }

    function test_aSandboxOfAnotherServiceIsRefused() public {
        address[] memory one = new address[](1);
        one[0] = operatorAt(0);
        uint64 other = core.openService(customer, one, "", 0);
        uint64 foreign = liveSandbox(other, 0);
        refusesUnknown(idOf(other, foreign, 0));
    }

    function test_aSandboxIsUnknownBeforeItsReceiptAndOnceFailed() public {
        uint64 call = submitCreate(service, 0);
        refusesUnknown(idOf(service, call, 0));
        answer(service, call, OUTCOME_OPERATOR, 0);
        refusesUnknown(idOf(service, call, 0));
    }

    function testFuzz_inputsThatAreNoRequestAreRefused(bytes memory inputs) public {
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.MalformedInputs.selector, JOB_EXEC));
        submitAs(customer, service, JOB_EXEC, inputs);
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.MalformedInputs.selector, JOB_SANDBOX_DELETE));
        submitAs(customer, service, JOB_SANDBOX_DELETE, inputs);
    }

    function testFuzz_aTrailingByteIsRefused(bytes1 tail) public {
        string memory id = idOf(service, target, 0);
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.MalformedInputs.selector, JOB_EXEC));
        submitAs(customer, service, JOB_EXEC, bytes.concat(execInputs(id), tail));
    }

    // ─── Expiry ─────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_anExecIsRefusedPastTheExpiryButADeleteIsNot(uint64 later) public {
        uint64 expiryBlock = blueprint.sandbox(service, target, 0).expiryBlock;
        string memory id = idOf(service, target, 0);
        vm.roll(expiryBlock);
        submitExec(service, target);

        vm.roll(bound(later, uint256(expiryBlock) + 1, type(uint32).max));
        vm.expectRevert(abi.encodeWithSelector(IAgentSandboxBlueprint.SandboxExpired.selector, id, expiryBlock));
        submitAs(customer, service, JOB_EXEC, execInputs(id));
        assertState(service, target, IAgentSandboxBlueprint.SandboxState.Expired);
        answer(service, submitDelete(service, target), OUTCOME_DONE, 0);
        assertState(service, target, IAgentSandboxBlueprint.SandboxState.Deleted);
    }

    // ─── Outcomes ───────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_anExecOfAnyOutcomeLeavesTheSandboxLive(uint8 outcome, string memory command) public {
        outcome = uint8(bound(outcome, 0, 2));
        bytes memory inputs = abi.encode(ExecRequest(idOf(service, target, 0), command, "", "", "", 0));
        uint64 call = submitAs(customer, service, JOB_EXEC, inputs);
        answer(service, call, outcome, 0);
        assertTrue(core.isCompleted(service, call));
        assertState(service, target, IAgentSandboxBlueprint.SandboxState.Live);
        assertEq(usedBy(holder), 1);
    }

    function test_aDeletedSandboxIsGoneForGood() public {
        answer(service, submitDelete(service, target), OUTCOME_DONE, 0);
        assertState(service, target, IAgentSandboxBlueprint.SandboxState.Deleted);
        assertEq(usedBy(holder), 0);
        refusesUnknown(idOf(service, target, 0));
    }

    function testFuzz_aDeleteThatFailedLeavesTheSandboxLive(uint8 outcome) public {
        outcome = uint8(bound(outcome, OUTCOME_CALLER, OUTCOME_OPERATOR));
        answer(service, submitDelete(service, target), outcome, 0);
        assertState(service, target, IAgentSandboxBlueprint.SandboxState.Live);
        assertEq(usedBy(holder), 1);
    }

    function test_twoDeletesUnderWayFreeOneSlot() public {
        uint64 first = submitDelete(service, target);
        uint64 second = submitDelete(service, target);
        answer(service, first, OUTCOME_DONE, 0);
        answer(service, second, OUTCOME_DONE, 0);
        assertTrue(core.isCompleted(service, second));
        assertEq(usedBy(holder), 0);
    }

    function refusesUnknown(string memory text) private {
        bytes memory refusal = abi.encodeWithSelector(IAgentSandboxBlueprint.UnknownSandbox.selector, text);
        vm.expectRevert(refusal);
        submitAs(customer, service, JOB_EXEC, execInputs(text));
        vm.expectRevert(refusal);
        submitAs(customer, service, JOB_SANDBOX_DELETE, deleteInputs(text));
    }
}
