// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Calls} from "../src/Calls.sol";
import {CoreBound} from "../src/CoreBound.sol";
import {IAgentSandboxBlueprint} from "../src/IAgentSandboxBlueprint.sol";
import {JOB_WORKFLOW_CREATE} from "../src/JobTypes.sol";
import {Requests} from "../src/Requests.sol";
import {State} from "../src/State.sol";
import {Workflows} from "../src/Workflows.sol";

/// Writes active workflows by the hundred, as a create and its receipt would each: the shortcut of bench `rebuild`.
///
/// Never deployed: a local chain is given its code in the blueprint's place, and then the blueprint's own again. It writes what is declared in
/// `State` by the very code that the blueprint writes it with, so what the blueprint reads afterwards is what it would have written.
contract WorkflowSeeder is State {
    using Calls for Calls.Slot;
    using Workflows for Workflows.Workflow;

    constructor() CoreBound(address(this), msg.sender) State(1) {}

    /// The workflows `first`, `first + 1`, … of a service, one for each job's inputs.
    function seed(address operator, address owner, uint64 serviceId, uint64 first, bytes[] calldata inputs) external {
        for (uint256 i = 0; i < inputs.length; ++i) {
            uint64 callId = first + uint64(i);
            Requests.requireShape(inputs[i], JOB_WORKFLOW_CREATE);
            Workflows.Workflow storage workflow = _workflows[serviceId][callId];
            workflow.create(owner, inputs[i], Requests.workflowCreate(inputs[i]));
            workflow.status = IAgentSandboxBlueprint.WorkflowStatus.Active;
            Calls.Slot storage slot = _calls[serviceId][callId];
            // Immutables are zero in code that was never deployed, so none is read: answered, it has no need of a deadline.
            slot.open(operator, 0, JOB_WORKFLOW_CREATE);
            Calls.Call memory call = slot.load();
            call.answered = true;
            slot.store(call);
            _giveWorkflow(operator, serviceId, callId);
        }
    }
}
