// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {
    JOB_BATCH_CREATE,
    JOB_COUNT,
    JOB_SANDBOX_CREATE,
    JOB_SANDBOX_DELETE,
    JOB_WORKFLOW_CANCEL,
    JOB_WORKFLOW_CREATE,
    JOB_WORKFLOW_TRIGGER,
    OUTCOME_CALLER,
    OUTCOME_DONE
} from "../src/JobTypes.sol";
import {FakeCore} from "./FakeCore.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// Whom each of the 17 jobs goes to, until when, and for whom it is refused.
contract RoutingTest is Fixture {
    uint256 private constant MEMBERS = 4;
    uint64 private constant TTL_BLOCKS = 1000;

    address private tenant = makeAddr("tenant"); // may call, and does not own the service
    uint64 private service;
    uint64 private target; // a sandbox of the tenant's
    uint64 private workflow; // and a workflow
    address private holder;
    address private firer;

    function setUp() public override {
        super.setUp();
        settle();
    }

    function settle() private {
        service = seededService(registerMany(MEMBERS), keccak256("seed"));
        target = submitAs(tenant, service, JOB_SANDBOX_CREATE, Inputs.create(TTL_BLOCKS));
        holder = assignedTo(service, target);
        answer(service, target, OUTCOME_DONE, 1);
        workflow = submitAs(tenant, service, JOB_WORKFLOW_CREATE, Inputs.workflow("cron", "0 * * * * *"));
        firer = assignedTo(service, workflow);
        answer(service, workflow, OUTCOME_DONE, 0);
    }

    // ─── Assignment ─────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_everyJobGoesToWhomItIsBoundUntilItsDeadline(uint8 which, uint16 later) public {
        vm.roll(block.number + later % TTL_BLOCKS);
        isAssigned(Inputs.allJobs()[which % 17], workflow + 1, BLOCK_TIME_MS);
    }

    function test_everyJobGoesToWhomItIsBoundUntilItsDeadline() public {
        for (uint64 i; i < 17; ++i) {
            isAssigned(Inputs.allJobs()[i], workflow + 1 + i, BLOCK_TIME_MS);
        }
    }

    /// forge-config: default.fuzz.runs = 128
    function testFuzz_aBegunBlockOfTheTimeToAnswerCountsWhole(uint8 which, uint32 blockTimeMs) public {
        uint64 time = uint64(bound(blockTimeMs, 1, 100_000_000));
        core = new FakeCore();
        blueprint = deploy(address(core), creator, time);
        core.createBlueprint(blueprint, 1, creator);
        settle();
        isAssigned(Inputs.allJobs()[which % 17], workflow + 1, time);
    }

    function isAssigned(uint8 job, uint64 call, uint64 blockTimeMs) private {
        uint64 deadline = uint64(block.number + (answerMs(job) + blockTimeMs - 1) / blockTimeMs);
        bytes memory inputs = Inputs.canonical(job, idOf(service, target, 0), workflow);
        if (Inputs.isBatch(job)) {
            vm.expectEmit(address(blueprint));
            emit I.BatchAssigned(service, call, uint8(partsExpected(job).length), deadline);
        } else {
            address operator = operatorExpected(job, call);
            vm.expectEmit(address(blueprint));
            emit I.OperatorAssigned(service, call, operator, deadline);
        }
        assertEq(submitAs(tenant, service, job, inputs), call);
        if (Inputs.isBatch(job)) isForExactly(call, partsExpected(job));
        I.Assignment memory seen = blueprint.assignment(service, call);
        assertEq(seen.caller, tenant);
        assertEq(seen.job, job);
        assertEq(seen.deadlineBlock, deadline);
        assertEq(seen.epoch, 0);
        assertFalse(seen.answered);
    }

    function operatorExpected(uint8 job, uint64 call) private view returns (address) {
        if (job == JOB_SANDBOX_CREATE || job == JOB_WORKFLOW_CREATE) return drawOrder(service, call, 0)[0];
        return Inputs.isOfSandbox(job) ? holder : firer;
    }

    /// Of a batch create of two the first two operators, of another batch all.
    function partsExpected(uint8 job) private pure returns (address[] memory) {
        return firstMembers(job == JOB_BATCH_CREATE ? 2 : MEMBERS);
    }

    function answerMs(uint8 job) private pure returns (uint256) {
        uint16[17] memory seconds_ =
            [600, 300, 600, 300, 1800, 600, 1800, 3600, 600, 3600, 1800, 300, 300, 600, 300, 300, 300];
        for (uint256 i; i < 17; ++i) {
            if (Inputs.allJobs()[i] == job) return uint256(seconds_[i]) * 1000;
        }
        revert();
    }

    function testFuzz_aReservedIdIsUnknown(uint8 job, bytes memory inputs) public {
        vm.assume(!Inputs.isOffered(job));
        refuses(tenant, job, inputs, abi.encodeWithSelector(I.UnknownJob.selector, job));
    }

    function test_theTwentyFiveReservedIdsAreUnknown() public {
        uint256 reserved;
        for (uint16 job; job < 256; ++job) {
            if (Inputs.isOffered(uint8(job))) continue;
            testFuzz_aReservedIdIsUnknown(uint8(job), Inputs.create(0));
            if (job < JOB_COUNT) ++reserved;
        }
        assertEq(reserved, 25);
    }

    // ─── Ownership ──────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aSandboxServesItsOwnerAndTheServices(uint8 which, bool byServiceOwner) public {
        uint8 job = Inputs.sandboxJobs()[which % 9];
        address caller = byServiceOwner ? customer : tenant;
        uint64 call = submitAs(caller, service, job, Inputs.onSandbox(job, idOf(service, target, 0)));
        assertEq(assignedTo(service, call), holder);
    }

    function test_aSandboxServesItsOwnerAndTheServices() public {
        for (uint8 i; i < 18; ++i) {
            testFuzz_aSandboxServesItsOwnerAndTheServices(i, i % 2 == 0);
        }
    }

    function testFuzz_aSandboxServesNobodyElse(uint8 which, address caller) public {
        vm.assume(caller != tenant && caller != customer);
        string memory id = idOf(service, target, 0);
        refusesOn(caller, which, id, abi.encodeWithSelector(I.NotSandboxOwner.selector, id, caller));
    }

    function test_aSandboxServesNobodyElse() public {
        for (uint8 i; i < 9; ++i) {
            testFuzz_aSandboxServesNobodyElse(i, stranger);
        }
    }

    /// The first sandbox of each of the two services has the same call and slot.
    function testFuzz_aSandboxOfAnotherServiceIsUnknown(uint8 which, bool byItsOwner) public {
        uint64 other = seededService(core.getServiceOperators(service), keccak256("other"));
        uint64 foreign = liveSandbox(other, 0);
        assertEq(foreign, target);
        refusesUnknown(byItsOwner ? customer : tenant, which, idOf(other, foreign, 0));
    }

    function testFuzz_aSandboxThatDoesNotExistIsUnknown(uint8 which, uint64 owner, uint64 call, uint8 slot) public {
        vm.assume(owner != service || call != target || slot != 0);
        refusesUnknown(tenant, which, idOf(owner, call, slot));
    }

    function testFuzz_textThatNamesNoSandboxIsRefused(uint8 which, string memory text) public {
        refusesUnknown(tenant, which, text);
    }

    function testFuzz_anEndpointNamesTheSandboxAsItsIdDoes(uint8 which, string memory host) public {
        uint8 job = Inputs.sandboxJobs()[which % 9];
        string memory endpoint = string.concat("https://", host, "/sandboxes/", idOf(service, target, 0));
        assertEq(assignedTo(service, submitAs(tenant, service, job, Inputs.onSandbox(job, endpoint))), holder);
    }

    function testFuzz_onlyALiveSandboxServes(uint8 which, uint8 fate) public {
        uint64 call = submitAs(tenant, service, JOB_SANDBOX_CREATE, Inputs.create(10));
        address operator = assignedTo(service, call);
        if (fate % 5 == 1) answer(service, call, OUTCOME_CALLER, 0);
        if (fate % 5 >= 2) answer(service, call, OUTCOME_DONE, 1);
        if (fate % 5 == 2) answer(service, submitDelete(service, call), OUTCOME_DONE, 0);
        if (fate % 5 == 3) core.forceOut(service, operator);
        if (fate % 5 == 4) {
            vm.roll(block.number + 11);
            blueprint.reap(service, call);
        }
        refusesUnknown(tenant, which, idOf(service, call, 0));
    }

    function test_onlyALiveSandboxServes() public {
        for (uint8 i; i < 45; ++i) {
            uint256 snapshot = vm.snapshotState();
            testFuzz_onlyALiveSandboxServes(i / 5, i % 5);
            vm.revertToState(snapshot);
        }
    }

    // ─── Expiry ─────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_upToItsExpiryBlockASandboxServes(uint8 which, uint64 blocks) public {
        uint8 job = Inputs.sandboxJobs()[which % 9];
        vm.roll(bound(blocks, block.number, blueprint.sandbox(service, target, 0).expiryBlock));
        assertEq(assignedTo(service, submitAs(tenant, service, job, sandboxInputs(job))), holder);
    }

    function testFuzz_pastItsExpiryBlockItMayOnlyBeDeleted(uint8 which, uint32 later) public {
        uint8 job = Inputs.sandboxJobs()[which % 9];
        string memory id = idOf(service, target, 0);
        uint64 expiry = blueprint.sandbox(service, target, 0).expiryBlock;
        vm.roll(uint256(expiry) + 1 + later);
        if (job == JOB_SANDBOX_DELETE) {
            assertEq(assignedTo(service, submitAs(tenant, service, job, sandboxInputs(job))), holder);
        } else {
            refusesOn(tenant, which, id, abi.encodeWithSelector(I.SandboxExpired.selector, id, expiry));
        }
    }

    function test_itsExpiryBlockIsTheLastThatItServesIn() public {
        for (uint8 i; i < 9; ++i) {
            uint256 snapshot = vm.snapshotState();
            testFuzz_upToItsExpiryBlockASandboxServes(i, type(uint64).max);
            testFuzz_pastItsExpiryBlockItMayOnlyBeDeleted(i, 0);
            vm.revertToState(snapshot);
        }
    }

    // ─── Quotes for what is bound to one operator ───────────────────────────────────────────────────────────────────

    function testFuzz_workInASandboxIsBoughtOfItsHolderOnly(uint8 which, uint8 chosen) public {
        uint8 job = Inputs.sandboxJobs()[which % 9];
        isBoughtOf(holder, job, sandboxInputs(job), operatorAt(chosen % MEMBERS));
    }

    function test_workInASandboxIsBoughtOfItsHolderOnly() public {
        for (uint8 i; i < 9; ++i) {
            for (uint8 j; j < MEMBERS; ++j) {
                testFuzz_workInASandboxIsBoughtOfItsHolderOnly(i, j);
            }
        }
    }

    function testFuzz_aWorkflowIsTriggeredAndCancelledByQuotesOfItsOperatorOnly(bool isCancel, uint8 chosen) public {
        uint8 job = isCancel ? JOB_WORKFLOW_CANCEL : JOB_WORKFLOW_TRIGGER;
        isBoughtOf(firer, job, Inputs.control(workflow), operatorAt(chosen % MEMBERS));
    }

    function isBoughtOf(address operator, uint8 job, bytes memory inputs, address quoted) private {
        if (quoted == operator) {
            assertEq(assignedTo(service, submitQuoted(service, job, inputs, only(quoted))), operator);
        } else {
            vm.expectRevert(abi.encodeWithSelector(I.QuotedOperatorMismatch.selector, operator, quoted));
            submitQuoted(service, job, inputs, only(quoted));
        }
    }

    function testFuzz_forOneOperatorsJobThereIsOneQuote(uint8 which, uint8 count) public {
        uint8 job = Inputs.allJobs()[which % 17];
        vm.assume(!Inputs.isBatch(job));
        uint256 given = bound(count, 2, MEMBERS);
        bytes memory inputs = Inputs.canonical(job, idOf(service, target, 0), workflow);
        vm.expectRevert(abi.encodeWithSelector(I.OneQuoteExpected.selector, given));
        submitQuoted(service, job, inputs, firstMembers(given));
    }

    function test_forOneOperatorsJobThereIsOneQuote() public {
        for (uint8 i; i < 17; ++i) {
            if (!Inputs.isBatch(Inputs.allJobs()[i])) testFuzz_forOneOperatorsJobThereIsOneQuote(i, 2);
        }
    }

    // ─── Quotes for what any operator may take ──────────────────────────────────────────────────────────────────────

    function testFuzz_aQuotedCreateIsTheQuotedOperators(bool isWorkflow, uint8 chosen) public {
        uint8 job = isWorkflow ? JOB_WORKFLOW_CREATE : JOB_SANDBOX_CREATE;
        address quoted = operatorAt(chosen % MEMBERS);
        uint64 call = submitQuoted(service, job, Inputs.canonical(job, "", 0), only(quoted));
        assertEq(assignedTo(service, call), quoted);
    }

    function testFuzz_aQuotedOperatorThatMayTakeNothingNewIsNotReplaced(bool isWorkflow, uint8 chosen, uint8 why)
        public
    {
        uint8 job = isWorkflow ? JOB_WORKFLOW_CREATE : JOB_SANDBOX_CREATE;
        address quoted = operatorAt(chosen % MEMBERS);
        if (why % 3 == 0) setCapacity(quoted, usedBy(quoted));
        else if (why % 3 == 1) setPaused(quoted, true);
        else core.scheduleExit(service, quoted);
        vm.expectRevert(abi.encodeWithSelector(I.NoCapacity.selector, service));
        submitQuoted(service, job, Inputs.canonical(job, "", 0), only(quoted));
    }

    function testFuzz_aQuotedBatchIsForExactlyThoseQuoted(uint8 which, uint8 count) public {
        uint8 job = Inputs.plainBatches()[which % 3];
        address[] memory quoted = firstMembers(bound(count, 1, MEMBERS));
        isForExactly(submitQuoted(service, job, Inputs.plainBatch(job, 3, "all"), quoted), quoted);
    }

    function testFuzz_aQuotedBatchCreateIsForExactlyThoseQuoted(uint8 quotes, uint8 count) public {
        address[] memory quoted = firstMembers(bound(quotes, 1, MEMBERS));
        // The holder has one slot less, and takes the fewer.
        uint32 made = uint32(bound(count, quoted.length, quoted.length * (CAPACITY - 1)));
        bytes memory inputs = Inputs.batchCreate(made, 0, new address[](0), "round_robin");
        isForExactly(submitQuoted(service, JOB_BATCH_CREATE, inputs, quoted), quoted);
    }

    function testFuzz_aQuoteForNothingIsRefused(uint8 quotes, uint8 count) public {
        address[] memory quoted = firstMembers(bound(quotes, 2, MEMBERS));
        uint32 made = uint32(bound(count, 1, quoted.length - 1));
        bytes memory inputs = Inputs.batchCreate(made, 0, new address[](0), "round_robin");
        vm.expectRevert(abi.encodeWithSelector(I.NoCapacity.selector, service));
        submitQuoted(service, JOB_BATCH_CREATE, inputs, quoted);
    }

    function testFuzz_aBatchCreateQuotedByOneThatIsFullIsRefused(uint8 quotes, uint8 full) public {
        address[] memory quoted = firstMembers(bound(quotes, 1, MEMBERS));
        address one = quoted[full % quoted.length];
        setCapacity(one, usedBy(one));
        bytes memory inputs = Inputs.batchCreate(uint32(quoted.length), 0, new address[](0), "round_robin");
        vm.expectRevert(abi.encodeWithSelector(I.NoCapacity.selector, service));
        submitQuoted(service, JOB_BATCH_CREATE, inputs, quoted);
    }

    function test_aQuotedBatchCreateNamesNoneThatIsNotQuoted() public {
        bytes memory inputs = Inputs.batchCreate(1, 0, only(operatorAt(2)), "round_robin");
        vm.expectRevert(abi.encodeWithSelector(I.OperatorNotInService.selector, service, operatorAt(2)));
        submitQuoted(service, JOB_BATCH_CREATE, inputs, only(operatorAt(1)));
        isForExactly(submitQuoted(service, JOB_BATCH_CREATE, inputs, only(operatorAt(2))), only(operatorAt(2)));
    }

    // ─── Words ──────────────────────────────────────────────────────────────────────────────────────────────────────

    function isForExactly(uint64 call, address[] memory operators) private view {
        I.Part[] memory parts = blueprint.parts(service, call);
        assertEq(parts.length, operators.length);
        for (uint256 i; i < parts.length; ++i) {
            assertEq(parts[i].operator, operators[i]);
        }
    }

    function firstMembers(uint256 count) private pure returns (address[] memory members) {
        members = new address[](count);
        for (uint256 i; i < count; ++i) {
            members[i] = operatorAt(i);
        }
    }

    function sandboxInputs(uint8 job) private view returns (bytes memory) {
        return Inputs.onSandbox(job, idOf(service, target, 0));
    }

    function refusesUnknown(address caller, uint8 which, string memory text) private {
        refusesOn(caller, which, text, abi.encodeWithSelector(I.UnknownSandbox.selector, text));
    }

    function refusesOn(address caller, uint8 which, string memory text, bytes memory refusal) private {
        uint8 job = Inputs.sandboxJobs()[which % 9];
        refuses(caller, job, Inputs.onSandbox(job, text), refusal);
    }

    function refuses(address caller, uint8 job, bytes memory inputs, bytes memory refusal) private {
        vm.expectRevert(refusal);
        submitAs(caller, service, job, inputs);
    }
}
