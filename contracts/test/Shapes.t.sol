// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
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
    SandboxSnapshotRequest,
    SshProvisionRequest,
    SshRevokeRequest,
    TaskRequest,
    WorkflowCreateRequest
} from "../src/JobTypes.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// What inputs each job takes: its struct's canonical encoding, words of a list, sizes within bounds.
contract ShapesTest is Fixture {
    uint64 private service;
    uint64 private target;
    uint64 private workflow;

    function setUp() public override {
        super.setUp();
        service = serviceOf(2, 0);
        setCapacity(operatorAt(0), 500);
        target = liveSandbox(service, 0);
        workflow = activeWorkflow(service);
    }

    // ─── Canonical ──────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_anyCreateIsTaken(SandboxCreateRequest memory request) public {
        takes(JOB_SANDBOX_CREATE, abi.encode(request));
    }

    function testFuzz_anyResumeIsTaken(ResumeRequest memory request) public {
        request.sandbox_id = id();
        takes(JOB_SANDBOX_RESUME, abi.encode(request));
    }

    function testFuzz_anySnapshotIsTaken(SandboxSnapshotRequest memory request) public {
        request.sidecar_endpoint = id();
        takes(JOB_SANDBOX_SNAPSHOT, abi.encode(request));
    }

    function testFuzz_anyExecIsTaken(ExecRequest memory request) public {
        request.sidecar_endpoint = id();
        takes(JOB_EXEC, abi.encode(request));
    }

    function testFuzz_anyPromptIsTaken(PromptRequest memory request) public {
        request.sidecar_endpoint = id();
        takes(JOB_PROMPT, abi.encode(request));
    }

    function testFuzz_anyTaskIsTaken(TaskRequest memory request) public {
        request.sidecar_endpoint = id();
        takes(JOB_TASK, abi.encode(request));
    }

    function testFuzz_anyBatchCreateIsTaken(BatchCreateRequest memory request, uint8 word) public {
        request.count = uint32(bound(request.count, 1, 200));
        request.operators = only(operatorAt(0));
        request.distribution = distributions()[word % 3];
        takes(JOB_BATCH_CREATE, abi.encode(request));
    }

    function testFuzz_anyBatchTaskIsTaken(BatchTaskRequest memory request, uint8 word) public {
        request.sidecar_endpoints = shortened(request.sidecar_endpoints);
        request.aggregation = aggregations()[word % 3];
        takes(JOB_BATCH_TASK, abi.encode(request));
    }

    function testFuzz_anyBatchExecIsTaken(BatchExecRequest memory request, uint8 word) public {
        request.sidecar_endpoints = shortened(request.sidecar_endpoints);
        request.aggregation = aggregations()[word % 3];
        takes(JOB_BATCH_EXEC, abi.encode(request));
    }

    function testFuzz_anyCollectIsTaken(BatchCollectRequest memory request) public {
        takes(JOB_BATCH_COLLECT, abi.encode(request));
    }

    function testFuzz_anyWorkflowIsTaken(WorkflowCreateRequest memory request, uint8 word) public {
        request.trigger_type = triggers()[word % 4];
        vm.assume(bytes(request.trigger_config).length <= blueprint.TRIGGER_CONFIG_BYTES_MAX());
        takes(JOB_WORKFLOW_CREATE, abi.encode(request));
    }

    function testFuzz_anySshProvisionIsTaken(SshProvisionRequest memory request) public {
        request.sandbox_id = id();
        takes(JOB_SSH_PROVISION, abi.encode(request));
    }

    function testFuzz_anySshRevokeIsTaken(SshRevokeRequest memory request) public {
        request.sandbox_id = id();
        takes(JOB_SSH_REVOKE, abi.encode(request));
    }

    function test_theInputsThatOthersAreMadeFromAreTaken() public {
        for (uint8 i; i < 17; ++i) {
            takes(Inputs.allJobs()[i], canonical(Inputs.allJobs()[i]));
        }
    }

    // ─── Malformed ──────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aTailIsRefused(uint8 which, bytes memory tail) public {
        vm.assume(tail.length != 0);
        uint8 job = Inputs.allJobs()[which % 17];
        refusesShape(job, bytes.concat(canonical(job), tail));
    }

    function testFuzz_aCutIsRefused(uint8 which, uint256 length) public {
        uint8 job = Inputs.allJobs()[which % 17];
        bytes memory inputs = canonical(job);
        length = bound(length, 0, inputs.length - 1);
        assembly ("memory-safe") {
            mstore(inputs, length)
        }
        refusesShape(job, inputs);
    }

    /// Numbers and places too large, padding that is not zero: no word may be anything, the content of short strings included.
    function testFuzz_aDirtyWordIsRefused(uint8 which, uint256 place, uint256 word) public {
        uint8 job = Inputs.allJobs()[which % 17];
        bytes memory inputs = canonical(job);
        place = bound(place, 0, inputs.length / 32 - 1);
        word |= 1 << 255 | 1;
        assembly ("memory-safe") {
            mstore(add(inputs, mul(32, add(place, 1))), word)
        }
        refusesShape(job, inputs);
    }

    function testFuzz_noiseIsRefused(uint8 which, bytes memory noise) public {
        vm.assume(noise.length != 32); // which may be a number
        refusesShape(Inputs.allJobs()[which % 17], noise);
    }

    function test_aTailACutADirtyWordAndNothingAreRefusedOfEveryJob() public {
        for (uint8 i; i < 17; ++i) {
            testFuzz_aTailIsRefused(i, new bytes(32));
            testFuzz_aCutIsRefused(i, canonical(Inputs.allJobs()[i]).length - 1);
            testFuzz_aDirtyWordIsRefused(i, 0, 0);
            testFuzz_noiseIsRefused(i, "");
        }
    }

    // ─── Words of a list ────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aDistributionThatIsNoneIsRefused(string memory word) public {
        for (uint256 i; i < 3; ++i) {
            vm.assume(keccak256(bytes(word)) != keccak256(bytes(distributions()[i])));
        }
        bytes memory inputs = Inputs.batchCreate(1, 0, new address[](0), word);
        refuses(JOB_BATCH_CREATE, inputs, abi.encodeWithSelector(I.UnknownOption.selector, JOB_BATCH_CREATE, word));
    }

    function testFuzz_anAggregationThatIsNoneIsRefused(bool isTask, string memory word) public {
        for (uint256 i; i < 3; ++i) {
            vm.assume(keccak256(bytes(word)) != keccak256(bytes(aggregations()[i])));
        }
        uint8 job = isTask ? JOB_BATCH_TASK : JOB_BATCH_EXEC;
        bytes memory refusal = abi.encodeWithSelector(I.UnknownOption.selector, job, word);
        refuses(job, Inputs.plainBatch(job, 1, word), refusal);
    }

    function testFuzz_aTriggerThatIsNoneIsRefused(string memory word) public {
        for (uint256 i; i < 4; ++i) {
            vm.assume(keccak256(bytes(word)) != keccak256(bytes(triggers()[i])));
        }
        bytes memory refusal = abi.encodeWithSelector(I.UnknownOption.selector, JOB_WORKFLOW_CREATE, word);
        refuses(JOB_WORKFLOW_CREATE, Inputs.workflow(word, ""), refusal);
    }

    function test_wordsAreTakenAsTheyAreWritten() public {
        string[5] memory near = ["", "All", "ALL", "all ", " all"];
        for (uint256 i; i < near.length; ++i) {
            testFuzz_anAggregationThatIsNoneIsRefused(true, near[i]);
            testFuzz_anAggregationThatIsNoneIsRefused(false, near[i]);
            testFuzz_aDistributionThatIsNoneIsRefused(near[i]);
            testFuzz_aTriggerThatIsNoneIsRefused(near[i]);
        }
        testFuzz_aDistributionThatIsNoneIsRefused("round-robin");
        testFuzz_aTriggerThatIsNoneIsRefused("Cron");
    }

    // ─── Limits, both sides of each ─────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aBatchCreateIsOfOneToTheMostSandboxes(uint32 count) public {
        uint32 most = uint32(blueprint.BATCH_SANDBOXES_MAX());
        bytes memory inputs = Inputs.batchCreate(count, 0, new address[](0), "cheapest");
        if (count != 0 && count <= most) takes(JOB_BATCH_CREATE, inputs);
        else refuses(JOB_BATCH_CREATE, inputs, abi.encodeWithSelector(I.BatchSize.selector, count, most));
    }

    function test_aBatchCreateIsOfOneToTheMostSandboxes() public {
        assertEq(blueprint.BATCH_SANDBOXES_MAX(), 200);
        uint32[5] memory counts = [0, 1, 200, 201, type(uint32).max];
        for (uint256 i; i < counts.length; ++i) {
            testFuzz_aBatchCreateIsOfOneToTheMostSandboxes(counts[i]);
        }
    }

    function testFuzz_aBatchIsOfOneToTheMostEndpoints(bool isTask, uint16 count) public {
        uint256 most = blueprint.BATCH_ENDPOINTS_MAX();
        uint256 given = bound(count, 0, 3 * most);
        uint8 job = isTask ? JOB_BATCH_TASK : JOB_BATCH_EXEC;
        bytes memory inputs = Inputs.plainBatch(job, given, "all");
        if (given != 0 && given <= most) takes(job, inputs);
        else refuses(job, inputs, abi.encodeWithSelector(I.BatchSize.selector, given, most));
    }

    function test_aBatchIsOfOneToTheMostEndpoints() public {
        assertEq(blueprint.BATCH_ENDPOINTS_MAX(), 128);
        uint8[4] memory counts = [0, 1, 128, 129];
        for (uint256 i; i < counts.length; ++i) {
            testFuzz_aBatchIsOfOneToTheMostEndpoints(true, counts[i]);
            testFuzz_aBatchIsOfOneToTheMostEndpoints(false, counts[i]);
        }
    }

    function testFuzz_inputsThatAreTooLargeAreRefusedWhateverTheyAre(uint8 job, uint16 excess) public {
        uint256 most = blueprint.INPUT_BYTES_MAX();
        uint256 given = most + 1 + excess;
        refuses(job, new bytes(given), abi.encodeWithSelector(I.InputsTooLarge.selector, given, most));
    }

    function test_everyJobTakesTheMostBytesAndNotOneMore() public {
        uint256 most = blueprint.INPUT_BYTES_MAX();
        assertEq(most, 65_536);
        for (uint8 i; i < 17; ++i) {
            uint8 job = Inputs.allJobs()[i];
            bytes memory inputs = largest(job, most);
            assertEq(inputs.length, most);
            // A number is never as long.
            if (job == JOB_WORKFLOW_TRIGGER || job == JOB_WORKFLOW_CANCEL) refusesShape(job, inputs);
            else takes(job, inputs);
            bytes memory refusal = abi.encodeWithSelector(I.InputsTooLarge.selector, most + 1, most);
            refuses(job, bytes.concat(inputs, hex"00"), refusal);
        }
    }

    function testFuzz_aTriggersConfigurationIsBounded(uint16 length, uint8 word) public {
        uint256 most = blueprint.TRIGGER_CONFIG_BYTES_MAX();
        uint256 given = bound(length, 0, 4 * most);
        bytes memory inputs = Inputs.workflow(triggers()[word % 4], string(new bytes(given)));
        if (given <= most) {
            takes(JOB_WORKFLOW_CREATE, inputs);
        } else {
            refuses(JOB_WORKFLOW_CREATE, inputs, abi.encodeWithSelector(I.TriggerConfigTooLong.selector, given, most));
        }
    }

    function test_aTriggersConfigurationIsBounded() public {
        assertEq(blueprint.TRIGGER_CONFIG_BYTES_MAX(), 192);
        testFuzz_aTriggersConfigurationIsBounded(192, 1);
        testFuzz_aTriggersConfigurationIsBounded(193, 1);
    }

    // ─── Words ──────────────────────────────────────────────────────────────────────────────────────────────────────

    function id() private view returns (string memory) {
        return idOf(service, target, 0);
    }

    function canonical(uint8 job) private view returns (bytes memory) {
        return Inputs.canonical(job, id(), workflow);
    }

    /// Of a job with a text, filled up with it; otherwise as many zeros.
    function largest(uint8 job, uint256 size) private view returns (bytes memory inputs) {
        if (job == JOB_WORKFLOW_TRIGGER || job == JOB_WORKFLOW_CANCEL) return new bytes(size);
        string memory text = string(new bytes(size - withText(job, "").length));
        return withText(job, text);
    }

    function withText(uint8 job, string memory text) private view returns (bytes memory) {
        if (job == JOB_SANDBOX_STOP || job == JOB_SANDBOX_DELETE) {
            // A whole number of words and the id, which ends in the last of them.
            return Inputs.onSandbox(job, bytes(text).length == 0 ? id() : string.concat(text, "/", id()));
        }
        if (Inputs.isOfSandbox(job)) return Inputs.onSandbox(job, id(), text);
        SandboxCreateRequest memory create = Inputs.template(0);
        create.env_json = text;
        if (job == JOB_SANDBOX_CREATE) return abi.encode(create);
        if (job == JOB_BATCH_CREATE) {
            return abi.encode(BatchCreateRequest(1, create, only(operatorAt(0)), "cheapest"));
        }
        if (job == JOB_BATCH_COLLECT) return abi.encode(BatchCollectRequest(text));
        string[] memory endpoints = new string[](1);
        if (job == JOB_BATCH_TASK) return abi.encode(BatchTaskRequest("", endpoints, text, true, "all"));
        if (job == JOB_BATCH_EXEC) return abi.encode(BatchExecRequest("", endpoints, text, "", "", 0, true, "all"));
        return abi.encode(WorkflowCreateRequest("", text, "manual", "", ""));
    }

    function distributions() private pure returns (string[3] memory) {
        return ["round_robin", "cheapest", "random"];
    }

    function aggregations() private pure returns (string[3] memory) {
        return ["all", "first_success", "majority"];
    }

    function triggers() private pure returns (string[4] memory) {
        return ["manual", "cron", "webhook", "event"];
    }

    function shortened(string[] memory endpoints) private view returns (string[] memory) {
        if (endpoints.length == 0) return new string[](1);
        uint256 most = blueprint.BATCH_ENDPOINTS_MAX();
        if (endpoints.length > most) {
            assembly ("memory-safe") {
                mstore(endpoints, most)
            }
        }
        return endpoints;
    }

    function takes(uint8 job, bytes memory inputs) private {
        uint64 call = submitAs(customer, service, job, inputs);
        I.Assignment memory seen = blueprint.assignment(service, call);
        assertEq(seen.job, job);
        assertTrue(seen.operator != address(0) || seen.parts != 0);
    }

    function refusesShape(uint8 job, bytes memory inputs) private {
        refuses(job, inputs, abi.encodeWithSelector(I.MalformedInputs.selector, job));
    }

    function refuses(uint8 job, bytes memory inputs, bytes memory refusal) private {
        vm.expectRevert(refusal);
        submitAs(customer, service, job, inputs);
    }
}
