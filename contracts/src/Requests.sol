// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {CanonicalAbi} from "./CanonicalAbi.sol";
import {IAgentSandboxBlueprint} from "./IAgentSandboxBlueprint.sol";
import {
    ExecRequest,
    JOB_EXEC,
    JOB_SANDBOX_CREATE,
    JobReceipt,
    OUTCOME_OPERATOR,
    OperatorProfile,
    SandboxCreateRequest,
    SandboxIdRequest,
    SelectionRequest
} from "./JobTypes.sol";

/// Turns bytes of others into the structs of `JobTypes.sol`, and refuses by name whatever is not canonical.
///
/// Job requests are read where they lie in the calldata: the shape has been checked by then, so a struct pointer past the leading
/// offset word is all that decoding takes, at any size. A new job adds its shape and its function here.
library Requests {
    bytes32 private constant CREATE = "888sssbs88s";
    bytes32 private constant SANDBOX_ID = "s";
    bytes32 private constant EXEC = "sssss8";
    bytes32 private constant PROFILE = "4wws";
    bytes32 private constant SELECTION = "4wb";
    bytes32 private constant RECEIPT = "1ww";

    function create(bytes calldata inputs) internal pure returns (SandboxCreateRequest calldata request) {
        _require(inputs, CREATE, JOB_SANDBOX_CREATE);
        assembly ("memory-safe") {
            request := add(inputs.offset, 0x20)
        }
    }

    function sandboxId(bytes calldata inputs, uint8 job) internal pure returns (SandboxIdRequest calldata request) {
        _require(inputs, SANDBOX_ID, job);
        assembly ("memory-safe") {
            request := add(inputs.offset, 0x20)
        }
    }

    function exec(bytes calldata inputs) internal pure returns (ExecRequest calldata request) {
        _require(inputs, EXEC, JOB_EXEC);
        assembly ("memory-safe") {
            request := add(inputs.offset, 0x20)
        }
    }

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

    function _require(bytes calldata inputs, bytes32 shape, uint8 job) private pure {
        if (!CanonicalAbi.matches(inputs, shape)) revert IAgentSandboxBlueprint.MalformedInputs(job);
    }
}
