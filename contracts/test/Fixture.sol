// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "forge-std/Test.sol";

import {IAgentSandboxBlueprint} from "../src/IAgentSandboxBlueprint.sol";
import {IBlueprintServiceManager} from "../src/IBlueprintServiceManager.sol";
import {
    JOB_BATCH_CREATE,
    JOB_EXEC,
    JOB_SANDBOX_CREATE,
    JOB_SANDBOX_DELETE,
    JOB_WORKFLOW_CREATE,
    JobReceipt,
    OUTCOME_DONE,
    OperatorProfile,
    SelectionRequest
} from "../src/JobTypes.sol";
import {Selection} from "../src/Selection.sol";
import {FakeCore} from "./FakeCore.sol";
import {Inputs} from "./Inputs.sol";

/// All that one address answers: hooks by its own code and the annex's, everything else by the annex's.
interface IBlueprint is IAgentSandboxBlueprint, IBlueprintServiceManager {
    function blueprintId() external view returns (uint64);
    function isBound() external view returns (bool);
    function ANNEX() external view returns (address);
}

/// A blueprint on a fake core, and the words to speak to it.
abstract contract Fixture is Test {
    uint64 internal constant BLOCK_TIME_MS = 2000;
    uint32 internal constant CAPACITY = 3;
    uint256 internal constant OPERATORS_MAX = 32;
    bytes32 internal constant RESPONSE = keccak256("response");

    FakeCore internal core;
    IBlueprint internal blueprint;

    address internal creator = makeAddr("creator");
    address internal customer = makeAddr("customer");
    address internal stranger = makeAddr("stranger");

    function setUp() public virtual {
        vm.roll(1000);
        vm.warp(1_800_000_000);
        core = newCore();
        blueprint = deploy();
        core.createBlueprint(blueprint, 1, creator);
    }

    function newCore() internal virtual returns (FakeCore) {
        return new FakeCore();
    }

    function deploy() internal returns (IBlueprint) {
        return deploy(address(core), creator, BLOCK_TIME_MS);
    }

    /// From the artifact, so that tests need not go through the contract's slow compiler pipeline.
    function deploy(address core_, address creator_, uint64 blockTimeMs) internal returns (IBlueprint) {
        return IBlueprint(deployCode("AgentSandboxBlueprint.sol", abi.encode(core_, creator_, blockTimeMs)));
    }

    // ─── Operators and services ─────────────────────────────────────────────────────────────────────────────────────

    function operatorAt(uint256 index) internal pure returns (address) {
        return address(uint160(0xA0000 + index));
    }

    function profileOf(uint32 capacity) internal pure returns (bytes memory) {
        return abi.encode(OperatorProfile(capacity, 1 gwei, bytes32(uint256(7)), "https://operator.example:8443"));
    }

    function register(address operator, uint32 capacity) internal {
        core.register(operator, profileOf(capacity));
    }

    function registerMany(uint256 count) internal returns (address[] memory operators) {
        operators = new address[](count);
        for (uint256 i; i < count; ++i) {
            operators[i] = operatorAt(i);
            register(operators[i], CAPACITY);
        }
    }

    function setCapacity(address operator, uint32 capacity) internal {
        vm.prank(operator);
        blueprint.setOperatorProfile(capacity, 0, 0, "");
    }

    function setPaused(address operator, bool paused) internal {
        vm.prank(operator);
        blueprint.setPaused(paused);
    }

    function serviceOf(uint256 operatorCount, uint64 ttlSeconds) internal returns (uint64) {
        return core.openService(customer, registerMany(operatorCount), "", ttlSeconds);
    }

    function seededService(address[] memory members, bytes32 seed) internal returns (uint64) {
        return core.openService(customer, members, selection(uint32(members.length), seed, false), 0);
    }

    function selection(uint32 count, bytes32 seed, bool enforced) internal pure returns (bytes memory) {
        return abi.encode(SelectionRequest(count, seed, enforced));
    }

    function only(address operator) internal pure returns (address[] memory list) {
        list = new address[](1);
        list[0] = operator;
    }

    function isIn(address operator, address[] memory members) internal pure returns (bool) {
        for (uint256 i; i < members.length; ++i) {
            if (members[i] == operator) return true;
        }
        return false;
    }

    /// The order in which the members of a service are asked to take a call: the first that may is given it.
    function drawOrder(uint64 serviceId, uint64 callId, uint16 epoch) internal view returns (address[] memory order) {
        address[] memory members = core.getServiceOperators(serviceId);
        bytes32 seed = keccak256(abi.encode(blueprint.serviceView(serviceId).seed, serviceId, callId, epoch));
        uint256[] memory places = Selection.indexes(members.length, members.length, seed);
        order = new address[](members.length);
        for (uint256 i; i < order.length; ++i) {
            order[i] = members[places[i]];
        }
    }

    // ─── Jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    function idOf(uint64 serviceId, uint64 callId, uint256 slot) internal pure returns (string memory) {
        return string.concat(
            "sbx-", vm.toString(uint256(serviceId)), "-", vm.toString(uint256(callId)), "-", vm.toString(slot)
        );
    }

    function receipt(uint8 outcome, uint256 detail) internal pure returns (bytes memory) {
        return abi.encode(JobReceipt(outcome, RESPONSE, detail));
    }

    function submitAs(address caller, uint64 serviceId, uint8 job, bytes memory inputs) internal returns (uint64) {
        vm.prank(caller);
        return core.submitJob(serviceId, job, inputs);
    }

    function submitQuoted(uint64 serviceId, uint8 job, bytes memory inputs, address[] memory quoted)
        internal
        returns (uint64)
    {
        vm.prank(customer);
        return core.submitJobFromQuotes(serviceId, job, inputs, quoted);
    }

    function submitCreate(uint64 serviceId, uint64 ttlBlocks) internal returns (uint64) {
        return submitAs(customer, serviceId, JOB_SANDBOX_CREATE, Inputs.create(ttlBlocks));
    }

    function submitExec(uint64 serviceId, uint64 target) internal returns (uint64) {
        return submitAs(customer, serviceId, JOB_EXEC, Inputs.onSandbox(JOB_EXEC, idOf(serviceId, target, 0)));
    }

    function submitDelete(uint64 serviceId, uint64 target) internal returns (uint64) {
        return submitDelete(serviceId, target, 0);
    }

    function submitDelete(uint64 serviceId, uint64 target, uint256 slot) internal returns (uint64) {
        bytes memory inputs = Inputs.onSandbox(JOB_SANDBOX_DELETE, idOf(serviceId, target, slot));
        return submitAs(customer, serviceId, JOB_SANDBOX_DELETE, inputs);
    }

    function submitBatch(uint64 serviceId, uint32 count, string memory distribution) internal returns (uint64) {
        bytes memory inputs = Inputs.batchCreate(count, 0, new address[](0), distribution);
        return submitAs(customer, serviceId, JOB_BATCH_CREATE, inputs);
    }

    function submitWorkflow(uint64 serviceId) internal returns (uint64) {
        return submitAs(customer, serviceId, JOB_WORKFLOW_CREATE, Inputs.workflow("cron", "0 * * * * *"));
    }

    function answerAs(address operator, uint64 serviceId, uint64 callId, bytes memory output) internal {
        vm.prank(operator);
        core.submitResult(serviceId, callId, output);
    }

    /// The assigned operator's answer.
    function answer(uint64 serviceId, uint64 callId, uint8 outcome, uint256 detail) internal {
        answerAs(assignedTo(serviceId, callId), serviceId, callId, receipt(outcome, detail));
    }

    function liveSandbox(uint64 serviceId, uint64 ttlBlocks) internal returns (uint64 callId) {
        callId = submitCreate(serviceId, ttlBlocks);
        answer(serviceId, callId, OUTCOME_DONE, 1);
    }

    function activeWorkflow(uint64 serviceId) internal returns (uint64 workflowId) {
        workflowId = submitWorkflow(serviceId);
        answer(serviceId, workflowId, OUTCOME_DONE, 0);
    }

    // ─── What is seen ───────────────────────────────────────────────────────────────────────────────────────────────

    function assignedTo(uint64 serviceId, uint64 callId) internal view returns (address) {
        return blueprint.assignment(serviceId, callId).operator;
    }

    function stateOf(uint64 serviceId, uint64 callId) internal view returns (IAgentSandboxBlueprint.SandboxState) {
        return blueprint.sandbox(serviceId, callId, 0).state;
    }

    function usedBy(address operator) internal view returns (uint32) {
        return blueprint.operatorView(operator).used;
    }

    /// Slots that the operator may still be given.
    function roomOf(address operator) internal view returns (uint32) {
        IAgentSandboxBlueprint.OperatorView memory seen = blueprint.operatorView(operator);
        return seen.eligible ? seen.capacity - seen.used : 0;
    }

    function assertState(uint64 serviceId, uint64 callId, IAgentSandboxBlueprint.SandboxState expected) internal view {
        assertSlot(serviceId, callId, 0, expected);
    }

    function assertSlot(uint64 serviceId, uint64 callId, uint8 slot, IAgentSandboxBlueprint.SandboxState expected)
        internal
        view
    {
        assertEq(uint8(blueprint.sandbox(serviceId, callId, slot).state), uint8(expected), "sandbox state");
    }

    function assertStatus(uint64 serviceId, uint64 workflowId, IAgentSandboxBlueprint.WorkflowStatus expected)
        internal
        view
    {
        (IAgentSandboxBlueprint.WorkflowView memory row,) = blueprint.getWorkflow(serviceId, workflowId);
        assertEq(uint8(row.status), uint8(expected), "workflow status");
    }
}
