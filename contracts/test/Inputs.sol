// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {
    BatchCollectRequest,
    BatchCreateRequest,
    BatchExecRequest,
    BatchTaskRequest,
    ExecRequest,
    JOB_BATCH_COLLECT,
    JOB_BATCH_CREATE,
    JOB_BATCH_EXEC,
    JOB_BATCH_TASK,
    JOB_EXEC,
    JOB_PROMPT,
    JOB_SANDBOX_CREATE,
    JOB_SANDBOX_DELETE,
    JOB_SANDBOX_RESUME,
    JOB_SANDBOX_SNAPSHOT,
    JOB_SANDBOX_STOP,
    JOB_SSH_PROVISION,
    JOB_SSH_REVOKE,
    JOB_TASK,
    JOB_WORKFLOW_CANCEL,
    JOB_WORKFLOW_CREATE,
    JOB_WORKFLOW_TRIGGER,
    PromptRequest,
    ResumeRequest,
    SandboxCreateRequest,
    SandboxIdRequest,
    SandboxSnapshotRequest,
    SshProvisionRequest,
    SshRevokeRequest,
    TaskRequest,
    WorkflowControlRequest,
    WorkflowCreateRequest
} from "../src/JobTypes.sol";

/// Inputs that the blueprint accepts, of every job, and lists of the jobs by what they are bound to.
library Inputs {
    // ─── Jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    function allJobs() internal pure returns (uint8[17] memory) {
        return [
            JOB_SANDBOX_CREATE,
            JOB_SANDBOX_STOP,
            JOB_SANDBOX_RESUME,
            JOB_SANDBOX_DELETE,
            JOB_SANDBOX_SNAPSHOT,
            JOB_EXEC,
            JOB_PROMPT,
            JOB_TASK,
            JOB_BATCH_CREATE,
            JOB_BATCH_TASK,
            JOB_BATCH_EXEC,
            JOB_BATCH_COLLECT,
            JOB_WORKFLOW_CREATE,
            JOB_WORKFLOW_TRIGGER,
            JOB_WORKFLOW_CANCEL,
            JOB_SSH_PROVISION,
            JOB_SSH_REVOKE
        ];
    }

    /// That one sandbox's operator answers.
    function sandboxJobs() internal pure returns (uint8[9] memory) {
        return [
            JOB_SANDBOX_STOP,
            JOB_SANDBOX_RESUME,
            JOB_SANDBOX_DELETE,
            JOB_SANDBOX_SNAPSHOT,
            JOB_EXEC,
            JOB_PROMPT,
            JOB_TASK,
            JOB_SSH_PROVISION,
            JOB_SSH_REVOKE
        ];
    }

    /// That every operator of the service answers.
    function plainBatches() internal pure returns (uint8[3] memory) {
        return [JOB_BATCH_TASK, JOB_BATCH_EXEC, JOB_BATCH_COLLECT];
    }

    function isOffered(uint8 job) internal pure returns (bool) {
        uint8[17] memory all = allJobs();
        for (uint256 i; i < all.length; ++i) {
            if (all[i] == job) return true;
        }
        return false;
    }

    function isOfSandbox(uint8 job) internal pure returns (bool) {
        uint8[9] memory all = sandboxJobs();
        for (uint256 i; i < all.length; ++i) {
            if (all[i] == job) return true;
        }
        return false;
    }

    function isBatch(uint8 job) internal pure returns (bool) {
        return job >= JOB_BATCH_CREATE && job <= JOB_BATCH_COLLECT;
    }

    // ─── Requests ───────────────────────────────────────────────────────────────────────────────────────────────────

    /// Of any job: with the sandbox, or the workflow, if it is bound to one.
    function canonical(uint8 job, string memory sandbox, uint64 workflowId) internal pure returns (bytes memory) {
        if (job == JOB_SANDBOX_CREATE) return create(0);
        if (job == JOB_BATCH_CREATE) return batchCreate(2, 0, new address[](0), "round_robin");
        if (isBatch(job)) return plainBatch(job, 1, "all");
        if (job == JOB_WORKFLOW_CREATE) return workflow("cron", "0 * * * * *");
        if (job == JOB_WORKFLOW_TRIGGER || job == JOB_WORKFLOW_CANCEL) return control(workflowId);
        return onSandbox(job, sandbox);
    }

    function template(uint64 ttlBlocks) internal pure returns (SandboxCreateRequest memory request) {
        request.agent_backend = "native";
        request.env_json = "{}";
        request.ttl_blocks = ttlBlocks;
    }

    function create(uint64 ttlBlocks) internal pure returns (bytes memory) {
        return abi.encode(template(ttlBlocks));
    }

    function onSandbox(uint8 job, string memory sandbox) internal pure returns (bytes memory) {
        return onSandbox(job, sandbox, "");
    }

    /// The text is in a field that takes any; stop and delete have none.
    function onSandbox(uint8 job, string memory sandbox, string memory text) internal pure returns (bytes memory) {
        if (job == JOB_SANDBOX_RESUME) return abi.encode(ResumeRequest(sandbox, text));
        if (job == JOB_SANDBOX_SNAPSHOT) return abi.encode(SandboxSnapshotRequest(sandbox, text, true, false));
        if (job == JOB_EXEC) return abi.encode(ExecRequest(sandbox, text, "", "{}", "", 1000));
        if (job == JOB_PROMPT) return abi.encode(PromptRequest(sandbox, text, "", 1000, "{}", ""));
        if (job == JOB_TASK) return abi.encode(TaskRequest(sandbox, text, "", 3, 1000, "{}", ""));
        if (job == JOB_SSH_PROVISION) return abi.encode(SshProvisionRequest(sandbox, text, 10));
        if (job == JOB_SSH_REVOKE) return abi.encode(SshRevokeRequest(sandbox, text));
        return abi.encode(SandboxIdRequest(sandbox));
    }

    function batchCreate(uint32 count, uint64 ttlBlocks, address[] memory operators, string memory distribution)
        internal
        pure
        returns (bytes memory)
    {
        return abi.encode(BatchCreateRequest(count, template(ttlBlocks), operators, distribution));
    }

    function plainBatch(uint8 job, uint256 endpointCount, string memory aggregation)
        internal
        pure
        returns (bytes memory)
    {
        string[] memory endpoints = new string[](endpointCount);
        if (job == JOB_BATCH_TASK) return abi.encode(BatchTaskRequest("", endpoints, "do", true, aggregation));
        if (job == JOB_BATCH_EXEC) {
            return abi.encode(BatchExecRequest("", endpoints, "ls", "", "{}", 1000, true, aggregation));
        }
        return abi.encode(BatchCollectRequest("batch"));
    }

    function workflow(string memory trigger, string memory config) internal pure returns (bytes memory) {
        return abi.encode(WorkflowCreateRequest("nightly", "{}", trigger, config, ""));
    }

    function control(uint64 workflowId) internal pure returns (bytes memory) {
        return abi.encode(WorkflowControlRequest(workflowId));
    }
}
