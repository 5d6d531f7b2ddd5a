// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "forge-std/Test.sol";

import {AgentSandboxBlueprint} from "../src/AgentSandboxBlueprint.sol";
import {IAgentSandboxBlueprint} from "../src/IAgentSandboxBlueprint.sol";
import {
    ExecRequest,
    JOB_EXEC,
    JOB_SANDBOX_CREATE,
    JOB_SANDBOX_DELETE,
    JobReceipt,
    OUTCOME_DONE,
    OperatorProfile,
    SandboxCreateRequest,
    SandboxIdRequest,
    SelectionRequest
} from "../src/JobTypes.sol";
import {FakeCore} from "./FakeCore.sol";

/// A blueprint on a fake core, and the words to speak to it.
abstract contract Fixture is Test {
    uint64 internal constant BLOCK_TIME_MS = 2000;
    uint32 internal constant CAPACITY = 3;
    uint256 internal constant OPERATORS_MAX = 8;
    bytes32 internal constant RESPONSE = keccak256("response");

    FakeCore internal core;
    AgentSandboxBlueprint internal blueprint;

    address internal creator = makeAddr("creator");
    address internal customer = makeAddr("customer");
    address internal stranger = makeAddr("stranger");

    function setUp() public virtual {
        vm.roll(1000);
        vm.warp(1_800_000_000);
        core = new FakeCore();
        blueprint = new AgentSandboxBlueprint(address(core), creator, BLOCK_TIME_MS);
        core.createBlueprint(blueprint, 1, creator);
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

    function serviceOf(uint256 operatorCount, uint64 ttlSeconds) internal returns (uint64) {
        return core.openService(customer, registerMany(operatorCount), "", ttlSeconds);
    }

    function selection(uint32 count, bytes32 seed, bool enforced) internal pure returns (bytes memory) {
        return abi.encode(SelectionRequest(count, seed, enforced));
    }

    // ─── Jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    function createInputs(uint64 ttlBlocks) internal pure returns (bytes memory) {
        SandboxCreateRequest memory request;
        request.agent_backend = "native";
        request.env_json = "{}";
        request.ttl_blocks = ttlBlocks;
        return abi.encode(request);
    }

    function execInputs(string memory endpoint) internal pure returns (bytes memory) {
        return abi.encode(ExecRequest(endpoint, "echo hi", "", "{}", "", 1000));
    }

    function deleteInputs(string memory id) internal pure returns (bytes memory) {
        return abi.encode(SandboxIdRequest(id));
    }

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

    function submitCreate(uint64 serviceId, uint64 ttlBlocks) internal returns (uint64) {
        return submitAs(customer, serviceId, JOB_SANDBOX_CREATE, createInputs(ttlBlocks));
    }

    function submitExec(uint64 serviceId, uint64 target) internal returns (uint64) {
        return submitAs(customer, serviceId, JOB_EXEC, execInputs(idOf(serviceId, target, 0)));
    }

    function submitDelete(uint64 serviceId, uint64 target) internal returns (uint64) {
        return submitAs(customer, serviceId, JOB_SANDBOX_DELETE, deleteInputs(idOf(serviceId, target, 0)));
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

    function assertState(uint64 serviceId, uint64 callId, IAgentSandboxBlueprint.SandboxState expected) internal view {
        assertEq(uint8(stateOf(serviceId, callId)), uint8(expected), "sandbox state");
    }
}
