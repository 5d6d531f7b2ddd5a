// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {
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
    JOB_WORKFLOW_TRIGGER
} from "./JobTypes.sol";

/// What the contract knows of the 17 jobs: the shape of their requests and how long an answer may take.
library JobTable {
    /// `SandboxCreateRequest`, of a single create and within a batch's.
    bytes32 internal constant CREATE = "888sssbs88s";

    /// The shape in the letters of `CanonicalAbi`; zero for a reserved id. Of the batch create `t` is `CREATE`. A job that works in a
    /// sandbox names it in its first field.
    function shape(uint8 job) internal pure returns (bytes32) {
        if (job == JOB_WORKFLOW_TRIGGER || job == JOB_WORKFLOW_CANCEL) return "8";
        if (job == JOB_SANDBOX_CREATE) return CREATE;
        if (job == JOB_EXEC) return "sssss8";
        if (job == JOB_SANDBOX_STOP || job == JOB_SANDBOX_DELETE || job == JOB_BATCH_COLLECT) return "s";
        if (job == JOB_SANDBOX_RESUME || job == JOB_SSH_REVOKE) return "ss";
        if (job == JOB_SANDBOX_SNAPSHOT) return "ssbb";
        if (job == JOB_PROMPT) return "sss8ss";
        if (job == JOB_TASK) return "sss88ss";
        if (job == JOB_SSH_PROVISION) return "ss8";
        if (job == JOB_BATCH_CREATE) return "4tas";
        if (job == JOB_BATCH_TASK) return "sSsbs";
        if (job == JOB_BATCH_EXEC) return "sSsss8bs";
        if (job == JOB_WORKFLOW_CREATE) return "sssss";
        return 0;
    }

    /// From the assignment on: the longest that the job itself may last, and time to begin and to report.
    function answerMs(uint8 job) internal pure returns (uint256) {
        if (job == JOB_WORKFLOW_CANCEL) return 300_000;
        if (job == JOB_TASK || job == JOB_BATCH_TASK) return 3_600_000;
        if (job == JOB_PROMPT || job == JOB_SANDBOX_SNAPSHOT || job == JOB_BATCH_EXEC) return 1_800_000;
        if (job == JOB_SANDBOX_CREATE || job == JOB_BATCH_CREATE || job == JOB_SANDBOX_RESUME) return 600_000;
        if (job == JOB_EXEC || job == JOB_WORKFLOW_TRIGGER) return 600_000;
        return 300_000;
    }
}
