// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "forge-std/Test.sol";

import {CanonicalAbi} from "../src/CanonicalAbi.sol";
import {JobTable} from "../src/JobTable.sol";
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
    JOB_SANDBOX_RESUME,
    JOB_SANDBOX_SNAPSHOT,
    JOB_SSH_PROVISION,
    JOB_SSH_REVOKE,
    JOB_TASK,
    JOB_WORKFLOW_CANCEL,
    JOB_WORKFLOW_CREATE,
    JOB_WORKFLOW_TRIGGER,
    JobReceipt,
    OperatorProfile,
    PromptRequest,
    ResumeRequest,
    SandboxCreateRequest,
    SandboxIdRequest,
    SandboxSnapshotRequest,
    SelectionRequest,
    SshProvisionRequest,
    TaskRequest,
    WorkflowControlRequest,
    WorkflowCreateRequest
} from "../src/JobTypes.sol";
import {Inputs} from "./Inputs.sol";

contract CanonicalAbiTest is Test {
    bytes32 private constant SANDBOX_ID = "s";
    bytes32 private constant PROFILE = "4wws";
    bytes32 private constant SELECTION = "4wb";
    bytes32 private constant RECEIPT = "1ww";

    function matches(bytes calldata data, bytes32 shape) external pure returns (bool) {
        return CanonicalAbi.matches(data, shape);
    }

    function matchesJob(bytes calldata data, uint8 job) external pure returns (bool) {
        return CanonicalAbi.matches(data, JobTable.shape(job), JobTable.CREATE);
    }

    function reencodeProfile(bytes calldata data) external pure returns (bytes memory) {
        return abi.encode(abi.decode(data, (OperatorProfile)));
    }

    /// The request of any job.
    function reencode(bytes calldata data, uint8 job) external pure returns (bytes memory) {
        if (job == JOB_SANDBOX_CREATE) return abi.encode(abi.decode(data, (SandboxCreateRequest)));
        if (job == JOB_SANDBOX_RESUME || job == JOB_SSH_REVOKE) return abi.encode(abi.decode(data, (ResumeRequest)));
        if (job == JOB_SANDBOX_SNAPSHOT) return abi.encode(abi.decode(data, (SandboxSnapshotRequest)));
        if (job == JOB_EXEC) return abi.encode(abi.decode(data, (ExecRequest)));
        if (job == JOB_PROMPT) return abi.encode(abi.decode(data, (PromptRequest)));
        if (job == JOB_TASK) return abi.encode(abi.decode(data, (TaskRequest)));
        if (job == JOB_BATCH_CREATE) return abi.encode(abi.decode(data, (BatchCreateRequest)));
        if (job == JOB_BATCH_TASK) return abi.encode(abi.decode(data, (BatchTaskRequest)));
        if (job == JOB_BATCH_EXEC) return abi.encode(abi.decode(data, (BatchExecRequest)));
        if (job == JOB_BATCH_COLLECT) return abi.encode(abi.decode(data, (BatchCollectRequest)));
        if (job == JOB_WORKFLOW_CREATE) return abi.encode(abi.decode(data, (WorkflowCreateRequest)));
        if (job == JOB_WORKFLOW_TRIGGER || job == JOB_WORKFLOW_CANCEL) {
            return abi.encode(abi.decode(data, (WorkflowControlRequest)));
        }
        if (job == JOB_SSH_PROVISION) return abi.encode(abi.decode(data, (SshProvisionRequest)));
        return abi.encode(abi.decode(data, (SandboxIdRequest)));
    }

    // ─── Encodings match ────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_everyEncodedRequestMatches(
        SandboxCreateRequest memory create,
        ExecRequest memory exec,
        TaskRequest memory task,
        BatchCreateRequest memory batch,
        BatchExecRequest memory execs,
        WorkflowCreateRequest memory workflow
    ) public view {
        assertTrue(this.matchesJob(abi.encode(create), JOB_SANDBOX_CREATE));
        assertTrue(this.matchesJob(abi.encode(exec), JOB_EXEC));
        assertTrue(this.matchesJob(abi.encode(task), JOB_TASK));
        assertTrue(this.matchesJob(abi.encode(batch), JOB_BATCH_CREATE));
        assertTrue(this.matchesJob(abi.encode(execs), JOB_BATCH_EXEC));
        assertTrue(this.matchesJob(abi.encode(workflow), JOB_WORKFLOW_CREATE));
    }

    function test_everyEncodedRequestMatches() public view {
        for (uint256 i; i < 17; ++i) {
            assertTrue(this.matchesJob(requestOf(Inputs.allJobs()[i]), Inputs.allJobs()[i]));
        }
    }

    function testFuzz_everyOtherEncodedStructMatches(
        SandboxIdRequest memory id,
        OperatorProfile memory profile,
        SelectionRequest memory selection,
        JobReceipt memory receipt
    ) public view {
        assertTrue(this.matches(abi.encode(id), SANDBOX_ID));
        assertTrue(this.matches(abi.encode(profile), PROFILE));
        assertTrue(this.matches(abi.encode(selection), SELECTION));
        assertTrue(this.matches(abi.encode(receipt), RECEIPT));
    }

    // ─── Nothing else does: the oracle is decoding and encoding again ───────────────────────────────────────────────

    /// Any word, and such as a place or a length may well be.
    function testFuzz_aChangedWordMatchesIfItIsStillCanonical(uint8 which, uint256 index, uint256 word, bool isSmall)
        public
        view
    {
        uint8 job = Inputs.allJobs()[which % 17];
        bytes memory data = requestOf(job);
        setWord(data, index, bytes32(isSmall ? word % 32 * (word >> 8 & 1 == 0 ? 1 : 32) : word));
        agrees(data, job);
    }

    function testFuzz_aChangedByteMatchesIfItIsStillCanonical(uint8 which, uint256 index, bytes1 byte_) public view {
        uint8 job = Inputs.allJobs()[which % 17];
        bytes memory data = requestOf(job);
        data[index % data.length] = byte_;
        agrees(data, job);
    }

    function testFuzz_aChangedBatchCreateMatchesIfItIsStillCanonical(
        BatchCreateRequest memory request,
        uint256 index,
        uint8 word
    ) public view {
        bytes memory data = abi.encode(request);
        setWord(data, index, bytes32(uint256(word)));
        agrees(data, JOB_BATCH_CREATE);
    }

    function testFuzz_aChangedBatchExecMatchesIfItIsStillCanonical(
        BatchExecRequest memory request,
        uint256 index,
        uint16 word
    ) public view {
        bytes memory data = abi.encode(request);
        setWord(data, index, bytes32(uint256(word) & ~uint256(31)));
        agrees(data, JOB_BATCH_EXEC);
    }

    function testFuzz_aProfileWithSmallWordsChangedMatchesIfItIsStillCanonical(
        OperatorProfile memory profile,
        uint256 index,
        uint8 word
    ) public view {
        bytes memory data = abi.encode(profile);
        setWord(data, index, bytes32(uint256(word)));
        assertEq(this.matches(data, PROFILE), isCanonical(data, abi.encodeCall(this.reencodeProfile, (data))));
    }

    function testFuzz_randomBytesNeverMatchUnlessCanonical(uint8 which, bytes memory data) public view {
        agrees(data, Inputs.allJobs()[which % 17]);
    }

    function testFuzz_nothingMayTrail(uint8 which, bytes memory tail) public view {
        vm.assume(tail.length != 0);
        uint8 job = Inputs.allJobs()[which % 17];
        assertFalse(this.matchesJob(bytes.concat(requestOf(job), tail), job));
    }

    function testFuzz_nothingMayBeMissing(uint8 which, uint256 length) public view {
        uint8 job = Inputs.allJobs()[which % 17];
        bytes memory data = requestOf(job);
        length = bound(length, 0, data.length - 1);
        assembly ("memory-safe") {
            mstore(data, length)
        }
        assertFalse(this.matchesJob(data, job));
    }

    function test_noDataAtAllMatchesNothing() public view {
        for (uint256 i; i < 17; ++i) {
            assertFalse(this.matchesJob("", Inputs.allJobs()[i]));
        }
        assertFalse(this.matches("", SELECTION));
        assertFalse(this.matches("", RECEIPT));
        assertFalse(this.matches("", PROFILE));
    }

    function test_pinnedForgeries() public view {
        assertFalse(this.matches("", SANDBOX_ID));
        assertFalse(this.matches(new bytes(32), SANDBOX_ID));
        assertFalse(this.matches(abi.encode(uint256(0x20)), SANDBOX_ID));
        assertFalse(this.matches(abi.encode("bare string"), SANDBOX_ID));
        // An offset beyond the data, a length beyond it, and both as large as they get.
        assertFalse(this.matches(abi.encode(0x20, 0x40, 0), SANDBOX_ID));
        assertFalse(this.matches(abi.encode(0x20, 0x20, 1), SANDBOX_ID));
        assertFalse(this.matches(abi.encode(0x20, 0x20, type(uint256).max), SANDBOX_ID));
        assertFalse(this.matches(abi.encode(0x20, type(uint256).max, 0), SANDBOX_ID));
        // Dirty padding, a bool of two, a count of 2^32, an outcome of 256.
        assertFalse(this.matches(abi.encode(0x20, 0x20, 1, bytes32("ab")), SANDBOX_ID));
        assertFalse(this.matches(abi.encode(1, bytes32(0), 2), SELECTION));
        assertFalse(this.matches(abi.encode(uint256(1) << 32, bytes32(0), 1), SELECTION));
        assertFalse(this.matches(abi.encode(256, bytes32(0), 1), RECEIPT));
        assertTrue(this.matches(abi.encode(0x20, 0x20, 1, bytes32("a")), SANDBOX_ID));
        assertTrue(this.matches(abi.encode(0x20, 0x20, 0), SANDBOX_ID));
    }

    function agrees(bytes memory data, uint8 job) private view {
        assertEq(this.matchesJob(data, job), isCanonical(data, abi.encodeCall(this.reencode, (data, job))));
    }

    function isCanonical(bytes memory data, bytes memory question) private view returns (bool) {
        (bool ok, bytes memory answer) = address(this).staticcall(question);
        return ok && keccak256(abi.decode(answer, (bytes))) == keccak256(data);
    }

    /// With texts of several lengths, and two members of each list.
    function requestOf(uint8 job) private pure returns (bytes memory) {
        address[] memory two = new address[](2);
        (two[0], two[1]) = (address(1), address(type(uint160).max));
        string[] memory ids = new string[](2);
        (ids[0], ids[1]) = ("sbx-1-2-3", "https://operator.example:8443/sandboxes/sbx-1-2-4");
        if (job == JOB_BATCH_CREATE) return Inputs.batchCreate(2, 5, two, "random");
        if (job == JOB_BATCH_TASK) return abi.encode(BatchTaskRequest("b", ids, "", true, "all"));
        if (job == JOB_BATCH_EXEC) return abi.encode(BatchExecRequest("", ids, "ls -l", "/", "{}", 9, false, "all"));
        return Inputs.canonical(job, ids[1], 7);
    }

    function setWord(bytes memory data, uint256 index, bytes32 word) private pure {
        uint256 offset = 32 * (index % (data.length / 32) + 1);
        assembly ("memory-safe") {
            mstore(add(data, offset), word)
        }
    }
}
