// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {CanonicalAbi} from "./CanonicalAbi.sol";
import {IAgentSandboxBlueprint} from "./IAgentSandboxBlueprint.sol";
import {JobTable} from "./JobTable.sol";
import {
    BatchCreateRequest,
    BatchExecRequest,
    BatchTaskRequest,
    JobReceipt,
    OUTCOME_OPERATOR,
    OperatorProfile,
    SandboxCreateRequest,
    SandboxIdRequest,
    SelectionRequest,
    WorkflowControlRequest,
    WorkflowCreateRequest
} from "./JobTypes.sol";

/// Turns bytes of others into the structs of `JobTypes.sol`, and refuses by name whatever is not canonical.
///
/// Job requests are read where they lie in the calldata: once `requireShape` has passed, a struct pointer past the leading offset word
/// is all that decoding takes, at any size.
library Requests {
    bytes32 private constant PROFILE = "4wws";
    bytes32 private constant SELECTION = "4wb";
    bytes32 private constant RECEIPT = "1ww";

    /// The reserved ids have no shape.
    function requireShape(bytes calldata inputs, uint8 job) internal pure {
        bytes32 shape = JobTable.shape(job);
        if (shape == 0) revert IAgentSandboxBlueprint.UnknownJob(job);
        if (!CanonicalAbi.matches(inputs, shape, JobTable.CREATE)) {
            revert IAgentSandboxBlueprint.MalformedInputs(job);
        }
    }

    // ─── Requests whose shape was checked ───────────────────────────────────────────────────────────────────────────

    function create(bytes calldata inputs) internal pure returns (SandboxCreateRequest calldata request) {
        assembly ("memory-safe") {
            request := add(inputs.offset, 0x20)
        }
    }

    /// Of any job in a sandbox: its id or endpoint.
    function sandbox(bytes calldata inputs) internal pure returns (string calldata) {
        SandboxIdRequest calldata request;
        assembly ("memory-safe") {
            request := add(inputs.offset, 0x20)
        }
        return request.sandbox_id;
    }

    function batchCreate(bytes calldata inputs) internal pure returns (BatchCreateRequest calldata request) {
        assembly ("memory-safe") {
            request := add(inputs.offset, 0x20)
        }
    }

    function batchTask(bytes calldata inputs) internal pure returns (BatchTaskRequest calldata request) {
        assembly ("memory-safe") {
            request := add(inputs.offset, 0x20)
        }
    }

    function batchExec(bytes calldata inputs) internal pure returns (BatchExecRequest calldata request) {
        assembly ("memory-safe") {
            request := add(inputs.offset, 0x20)
        }
    }

    function workflowCreate(bytes calldata inputs) internal pure returns (WorkflowCreateRequest calldata request) {
        assembly ("memory-safe") {
            request := add(inputs.offset, 0x20)
        }
    }

    /// A static struct has no leading offset.
    function workflowControl(bytes calldata inputs) internal pure returns (WorkflowControlRequest calldata request) {
        assembly ("memory-safe") {
            request := inputs.offset
        }
    }

    // ─── Other inputs ───────────────────────────────────────────────────────────────────────────────────────────────

    function profile(bytes calldata inputs) internal pure returns (OperatorProfile memory) {
        if (!CanonicalAbi.matches(inputs, PROFILE)) revert IAgentSandboxBlueprint.MalformedProfile();
        return abi.decode(inputs, (OperatorProfile));
    }

    function selection(bytes calldata inputs) internal pure returns (SelectionRequest memory) {
        if (!CanonicalAbi.matches(inputs, SELECTION)) revert IAgentSandboxBlueprint.MalformedSelection();
        return abi.decode(inputs, (SelectionRequest));
    }

    /// Results must not revert: `ok` is false for what is no receipt.
    function receipt(bytes calldata outputs) internal pure returns (bool ok, JobReceipt memory decoded) {
        if (!CanonicalAbi.matches(outputs, RECEIPT)) return (false, decoded);
        decoded = abi.decode(outputs, (JobReceipt));
        ok = decoded.outcome <= OUTCOME_OPERATOR;
    }
}
