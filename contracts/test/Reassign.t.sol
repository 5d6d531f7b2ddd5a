// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {
    JOB_SANDBOX_CREATE,
    JOB_WORKFLOW_CREATE,
    OUTCOME_CALLER,
    OUTCOME_DONE,
    OUTCOME_OPERATOR
} from "../src/JobTypes.sol";
import {FakeCore} from "./FakeCore.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// How a call that its operator does not answer, or cannot, becomes another's.
contract ReassignTest is Fixture {
    uint256 private constant MEMBERS = 4;
    uint64 private constant TTL_SECONDS = 30 days;

    uint64 private service;

    function setUp() public override {
        super.setUp();
        service = core.openService(
            customer, registerMany(MEMBERS), selection(uint32(MEMBERS), keccak256("seed"), false), TTL_SECONDS
        );
    }

    // ─── By the deadline ────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_pastItsDeadlineAnyoneMayReassignACall(bool isWorkflow, address anyone, uint32 later) public {
        uint64 call = submit(isWorkflow);
        address from = assignedTo(service, call);
        address to = drawOrder(service, call, 1)[0];
        if (to == from) to = drawOrder(service, call, 1)[1];
        vm.roll(uint256(deadlineOf(call)) + 1 + later);
        uint64 deadline = uint64(block.number + (isWorkflow ? 150 : 300));

        vm.expectEmit(address(blueprint));
        emit I.CallReassigned(service, call, from, 1);
        vm.expectEmit(address(blueprint));
        emit I.OperatorAssigned(service, call, to, deadline);
        vm.prank(anyone);
        blueprint.reassign(service, call);

        I.Assignment memory seen = blueprint.assignment(service, call);
        assertEq(seen.operator, to);
        assertEq(seen.caller, customer);
        assertEq(seen.deadlineBlock, deadline);
        assertEq(seen.epoch, 1);
        assertFalse(seen.answered);
    }

    function testFuzz_upToItsDeadlineNobodyMay(bool isWorkflow, address anyone, uint64 blocks) public {
        uint64 call = submit(isWorkflow);
        vm.roll(bound(blocks, block.number, deadlineOf(call)));
        vm.prank(anyone);
        refusesToReassign(call);
    }

    function test_theDeadlinesBlockIsTheOperators() public {
        for (uint256 i; i < 2; ++i) {
            uint64 call = submit(i == 0);
            for (uint16 epoch; epoch < 3; ++epoch) {
                vm.roll(deadlineOf(call));
                refusesToReassign(call);
                vm.roll(block.number + 1);
                blueprint.reassign(service, call);
            }
            assertEq(blueprint.assignment(service, call).epoch, 3);
            vm.roll(uint256(deadlineOf(call)) + 1);
            refusesToReassign(call);
        }
    }

    // ─── By an operator's failure ───────────────────────────────────────────────────────────────────────────────────

    function testFuzz_anOperatorsFailureMovesACreateAtOnce(bool isWorkflow, uint32 later) public {
        uint64 call = submit(isWorkflow);
        address from = assignedTo(service, call);
        vm.roll(block.number + later);
        vm.expectEmit(true, true, true, true, address(blueprint));
        emit I.CallReassigned(service, call, from, 1);
        answerAs(from, service, call, receipt(OUTCOME_OPERATOR, 0));

        assertFalse(core.isCompleted(service, call));
        assertFalse(blueprint.assignment(service, call).answered);
        assertEq(blueprint.assignment(service, call).responseHash, 0);
        assertTrue(assignedTo(service, call) != from);
        answer(service, call, OUTCOME_DONE, isWorkflow ? 0 : 1);
        assertTrue(core.isCompleted(service, call));
        assertEq(blueprint.assignment(service, call).outcome, OUTCOME_DONE);
    }

    function testFuzz_noOtherOutcomeMovesIt(bool isWorkflow, bool isDone) public {
        uint64 call = submit(isWorkflow);
        address operator = assignedTo(service, call);
        answer(service, call, isDone ? OUTCOME_DONE : OUTCOME_CALLER, isDone && !isWorkflow ? 1 : 0);
        assertTrue(core.isCompleted(service, call));
        assertEq(assignedTo(service, call), operator);
        assertEq(blueprint.assignment(service, call).epoch, 0);
    }

    function testFuzz_withNobodyLeftTheLastFailureIsTheCalls(bool isWorkflow) public {
        uint64 call = submit(isWorkflow);
        for (uint256 i; i + 1 < MEMBERS; ++i) {
            answer(service, call, OUTCOME_OPERATOR, 0);
            assertFalse(core.isCompleted(service, call));
        }
        answer(service, call, OUTCOME_OPERATOR, 0);
        assertTrue(core.isCompleted(service, call));
        I.Assignment memory seen = blueprint.assignment(service, call);
        assertEq(seen.outcome, OUTCOME_OPERATOR);
        assertEq(seen.epoch, MEMBERS - 1);
        for (uint256 i; i < MEMBERS; ++i) {
            assertEq(usedBy(operatorAt(i)), 0);
        }
        if (isWorkflow) assertStatus(service, call, I.WorkflowStatus.Failed);
        else assertState(service, call, I.SandboxState.Failed);
    }

    // ─── To whom ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Whichever way it is moved: each operator has it once, in the order that the epochs' seeds draw.
    function testFuzz_anOperatorIsNeverGivenACallTwice(bool isWorkflow, uint8 count, uint32 ways, bytes32 seed) public {
        uint256 size = bound(count, 1, 10);
        isGivenOnceToEach(isWorkflow, size, ways, seed);
    }

    function test_thirtyOneMovesInAServiceOfThirtyTwo() public {
        for (uint256 i; i < 2; ++i) {
            uint256 snapshot = vm.snapshotState();
            isGivenOnceToEach(i == 0, OPERATORS_MAX, 0xAAAAAAAA, "");
            assertEq(blueprint.assignment(service, 0).epoch, 31);
            vm.revertToState(snapshot);
        }
    }

    function isGivenOnceToEach(bool isWorkflow, uint256 size, uint32 ways, bytes32 seed) private {
        service = seededService(registerFrom(40, size), seed);
        uint64 call = submit(isWorkflow);
        address[] memory had = new address[](size);
        for (uint16 epoch; epoch + 1 < size; ++epoch) {
            had[epoch] = assignedTo(service, call);
            address expected = firstNotIn(drawOrder(service, call, epoch + 1), had);
            move(call, ways >> epoch & 1 == 1);
            assertEq(assignedTo(service, call), expected);
            assertEq(blueprint.assignment(service, call).epoch, epoch + 1);
        }
        vm.roll(uint256(deadlineOf(call)) + 1);
        refusesToReassign(call);
        answer(service, call, OUTCOME_OPERATOR, 0);
        assertTrue(core.isCompleted(service, call));
    }

    function testFuzz_onlyOneThatMayTakeSomethingNewIsGivenIt(bool isWorkflow, uint8 why, bool byFailure) public {
        uint64 call = submit(isWorkflow);
        address from = assignedTo(service, call);
        address left = operatorAt(why % MEMBERS);
        for (uint256 i; i < MEMBERS; ++i) {
            address operator = operatorAt(i);
            if (operator != from && operator != left) exclude(operator, why / 4 + i);
        }
        if (left == from) {
            vm.roll(uint256(deadlineOf(call)) + 1);
            refusesToReassign(call);
        } else {
            move(call, byFailure);
            assertEq(assignedTo(service, call), left);
        }
    }

    function exclude(address operator, uint256 why) private {
        if (why % 4 == 0) setPaused(operator, true);
        else if (why % 4 == 1) setCapacity(operator, 0);
        else if (why % 4 == 2) core.scheduleExit(service, operator);
        else core.leave(service, operator);
    }

    function testFuzz_whoJoinedMeanwhileMayBeGivenIt(bool isWorkflow, bool byFailure) public {
        uint64 call = submit(isWorkflow);
        for (uint256 i; i < MEMBERS; ++i) {
            if (operatorAt(i) != assignedTo(service, call)) setPaused(operatorAt(i), true);
        }
        register(operatorAt(9), 1);
        core.join(service, operatorAt(9));
        move(call, byFailure);
        assertEq(assignedTo(service, call), operatorAt(9));
    }

    // ─── What it holds ──────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_itsSlotMovesWithACreate(uint8 others, bool byFailure) public {
        for (uint256 i; i < others % 8; ++i) {
            liveSandbox(service, 0);
        }
        uint64 call = submit(false);
        address from = assignedTo(service, call);
        uint32[MEMBERS] memory before;
        for (uint256 i; i < MEMBERS; ++i) {
            before[i] = usedBy(operatorAt(i));
        }
        move(call, byFailure);
        for (uint256 i; i < MEMBERS; ++i) {
            uint32 expected = before[i];
            if (operatorAt(i) == from) --expected;
            if (operatorAt(i) == assignedTo(service, call)) ++expected;
            assertEq(usedBy(operatorAt(i)), expected);
        }
        assertEq(blueprint.sandbox(service, call, 0).operator, assignedTo(service, call));
        assertState(service, call, I.SandboxState.Requested);
    }

    function testFuzz_aWorkflowHoldsNothing(bool byFailure) public {
        uint64 call = submit(true);
        move(call, byFailure);
        assertEq(blueprint.serviceView(service).sandboxes, 0);
    }

    /// The slot of a sandbox that was lost with its operator is not freed a second time.
    function testFuzz_aCreateWhoseOperatorWasMadeToLeaveMoves(bool hasMore) public {
        uint64 call = submit(false);
        address from = assignedTo(service, call);
        if (hasMore) {
            uint64 other = core.openService(customer, only(from), "", 0);
            liveSandbox(other, 0);
        }
        core.forceOut(service, from);
        assertState(service, call, I.SandboxState.Lost);
        vm.roll(uint256(deadlineOf(call)) + 1);
        blueprint.reassign(service, call);
        assertState(service, call, I.SandboxState.Requested);
        answer(service, call, OUTCOME_DONE, 1);
        assertState(service, call, I.SandboxState.Live);
        assertEq(usedBy(from), hasMore ? 1 : 0);
        assertEq(usedBy(assignedTo(service, call)), 1);
    }

    // ─── The former operator ────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aLateResultOfTheFormerOperatorIsIgnored(bool isWorkflow, uint8 outcome) public {
        outcome = uint8(bound(outcome, 0, 2));
        uint64 call = submit(isWorkflow);
        address from = assignedTo(service, call);
        move(call, false);
        uint64 deadline = deadlineOf(call);
        vm.expectEmit(address(blueprint));
        emit I.ResultIgnored(service, call, from);
        answerAs(from, service, call, receipt(outcome, !isWorkflow && outcome == OUTCOME_DONE ? 1 : 0));

        assertFalse(core.isCompleted(service, call));
        I.Assignment memory seen = blueprint.assignment(service, call);
        assertFalse(seen.answered);
        assertEq(seen.epoch, 1);
        assertEq(seen.deadlineBlock, deadline);
        assertEq(usedBy(from), 0);
        answer(service, call, OUTCOME_DONE, isWorkflow ? 0 : 1);
        assertTrue(core.isCompleted(service, call));
    }

    function test_whoFailedIsNotHeardAgain() public {
        uint64 call = submit(false);
        address from = assignedTo(service, call);
        answer(service, call, OUTCOME_OPERATOR, 0);
        vm.expectRevert(FakeCore.AlreadyAnswered.selector);
        answerAs(from, service, call, receipt(OUTCOME_DONE, 1));
    }

    // ─── What never moves ───────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_noOtherJobMoves(uint8 which, uint32 later) public {
        uint8 job = Inputs.allJobs()[which % 17];
        vm.assume(job != JOB_SANDBOX_CREATE && job != JOB_WORKFLOW_CREATE);
        uint64 target = liveSandbox(service, 0);
        uint64 workflow = activeWorkflow(service);
        uint64 call = submitAs(customer, service, job, Inputs.canonical(job, idOf(service, target, 0), workflow));
        vm.roll(uint256(deadlineOf(call)) + 1 + later);
        refusesToReassign(call);
        address operator = Inputs.isBatch(job) ? operatorAt(0) : assignedTo(service, call);
        answerAs(operator, service, call, receipt(OUTCOME_OPERATOR, 0));
        assertEq(blueprint.assignment(service, call).epoch, 0);
        assertTrue(Inputs.isBatch(job) || core.isCompleted(service, call));
        refusesToReassign(call);
    }

    function test_noOtherJobMoves() public {
        for (uint8 i; i < 17; ++i) {
            uint8 job = Inputs.allJobs()[i];
            if (job == JOB_SANDBOX_CREATE || job == JOB_WORKFLOW_CREATE) continue;
            uint256 snapshot = vm.snapshotState();
            testFuzz_noOtherJobMoves(i, 0);
            vm.revertToState(snapshot);
        }
    }

    function testFuzz_aQuotedCallNeverMoves(bool isWorkflow, uint8 chosen, uint32 later) public {
        uint8 job = isWorkflow ? JOB_WORKFLOW_CREATE : JOB_SANDBOX_CREATE;
        address quoted = operatorAt(chosen % MEMBERS);
        uint64 call = submitQuoted(service, job, Inputs.canonical(job, "", 0), only(quoted));
        vm.roll(uint256(deadlineOf(call)) + 1 + later);
        refusesToReassign(call);
        answer(service, call, OUTCOME_OPERATOR, 0);
        assertTrue(core.isCompleted(service, call));
        assertEq(assignedTo(service, call), quoted);
        assertEq(usedBy(quoted), 0);
    }

    function testFuzz_anAnsweredCallDoesNotMove(bool isWorkflow, bool isDone) public {
        uint64 call = submit(isWorkflow);
        answer(service, call, isDone ? OUTCOME_DONE : OUTCOME_CALLER, isDone && !isWorkflow ? 1 : 0);
        vm.roll(uint256(deadlineOf(call)) + 1);
        refusesToReassign(call);
    }

    function testFuzz_aCallThatDoesNotExistDoesNotMove(uint64 other, uint64 call) public {
        vm.roll(type(uint40).max);
        vm.expectRevert(abi.encodeWithSelector(I.NotReassignable.selector, other, call, 0));
        blueprint.reassign(other, call);
    }

    function testFuzz_whatNobodyWaitsForAnyMoreDoesNotMove(bool isWorkflow, bool byFailure) public {
        uint64 call = isWorkflow ? submit(true) : submitCreate(service, 1);
        address operator = assignedTo(service, call);
        vm.roll(uint256(deadlineOf(call)) + 1);
        if (isWorkflow) submitAs(customer, service, 32, Inputs.control(call));
        else blueprint.reap(service, call);
        if (byFailure) answerAs(operator, service, call, receipt(OUTCOME_OPERATOR, 0));
        refusesToReassign(call);
        assertEq(core.isCompleted(service, call), byFailure);
        assertEq(assignedTo(service, call), operator);
        assertEq(blueprint.serviceView(service).sandboxes, 0);
    }

    /// A slot given then would never be freed.
    function testFuzz_nothingMovesOnceItsServiceWasTerminated(bool isWorkflow, bool isOrphan) public {
        uint64 call = isOrphan ? activeWorkflow(service) : submit(isWorkflow);
        if (isOrphan) core.forceOut(service, assignedTo(service, call));
        vm.roll(uint256(deadlineOf(call)) + 1);
        core.terminate(service);
        refusesToReassign(call);
        for (uint256 i; i < MEMBERS; ++i) {
            assertEq(usedBy(operatorAt(i)), 0);
        }
    }

    // ─── Workflows ──────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aMovedWorkflowActivatesAtItsNewOperator(bool byFailure) public {
        uint64 call = submit(true);
        address from = assignedTo(service, call);
        move(call, byFailure);
        answer(service, call, OUTCOME_DONE, 0);
        isListedFor(call, assignedTo(service, call), 1);
        assertEq(countOf(from), 0);
    }

    /// It stays confirmed, and needs no second receipt.
    function testFuzz_aWorkflowWhoseOperatorLeftIsReassignedByAnyone(address anyone, bool isPaused, uint32 later)
        public
    {
        uint64 workflow = activeWorkflow(service);
        address from = assignedTo(service, workflow);
        if (isPaused) pauseAs(customer, workflow);
        vm.roll(block.number + later);
        refusesToReassign(workflow);
        core.leave(service, from);
        vm.prank(anyone);
        blueprint.reassign(service, workflow);

        address to = assignedTo(service, workflow);
        assertTrue(to != from);
        assertStatus(service, workflow, isPaused ? I.WorkflowStatus.Paused : I.WorkflowStatus.Active);
        if (isPaused) {
            assertEq(countOf(to), 0);
            vm.prank(customer);
            blueprint.resumeWorkflow(service, workflow);
        }
        isListedFor(workflow, to, 1);
        assertEq(countOf(from), 0);
        refusesToReassign(workflow);
        assertTrue(blueprint.assignment(service, workflow).answered);
    }

    /// Its former operator is not one of the untried, and is listed nothing when it is back.
    function test_aWorkflowDoesNotComeBackToWhoLeftIt() public {
        uint64 workflow = activeWorkflow(service);
        address first = assignedTo(service, workflow);
        core.leave(service, first);
        blueprint.reassign(service, workflow);
        core.join(service, first);
        assertEq(countOf(first), 0);
        for (uint16 epoch = 2; epoch < MEMBERS; ++epoch) {
            core.leave(service, assignedTo(service, workflow));
            blueprint.reassign(service, workflow);
            isListedFor(workflow, assignedTo(service, workflow), epoch);
        }
        core.leave(service, assignedTo(service, workflow));
        refusesToReassign(workflow);
        assertEq(countOf(first), 0);
    }

    function testFuzz_aCancelledWorkflowIsNotReassigned(bool isFailed) public {
        uint64 workflow = submit(true);
        address from = assignedTo(service, workflow);
        answer(service, workflow, isFailed ? OUTCOME_CALLER : OUTCOME_DONE, 0);
        if (!isFailed) submitAs(customer, service, 32, Inputs.control(workflow));
        core.leave(service, from);
        vm.roll(uint256(deadlineOf(workflow)) + 1);
        refusesToReassign(workflow);
    }

    // ─── The gate ───────────────────────────────────────────────────────────────────────────────────────────────────

    /// Moving is the dearest that a result does. Whatever gas it is left with, an accepted result before it lends it nothing.
    /// forge-config: default.fuzz.runs = 128
    function testFuzz_noGasLimitLetsAFailureBorrowTheResultBefore(uint32 gasLimit) public {
        (uint64[] memory calls, bytes[] memory outputs) = doneAndFailed(8);
        borrows(calls, outputs, bound(gasLimit, 20_000, 600_000));
    }

    function test_noGasLimitLetsAFailureBorrowTheResultBefore() public {
        (uint64[] memory calls, bytes[] memory outputs) = doneAndFailed(OPERATORS_MAX);
        uint256 snapshot = vm.snapshotState();
        for (uint256 gasLimit = 20_000; gasLimit < 800_000; gasLimit += 1487) {
            borrows(calls, outputs, gasLimit);
            vm.revertToState(snapshot);
        }
    }

    function borrows(uint64[] memory calls, bytes[] memory outputs, uint256 gasLimit) private {
        vm.prank(assignedTo(service, calls[0]));
        try core.submitResults{gas: gasLimit}(service, calls, outputs) {} catch {}
        for (uint256 i; i < 2; ++i) {
            assertEq(core.isCompleted(service, calls[i]), blueprint.assignment(service, calls[i]).answered);
        }
        assertFalse(core.isCompleted(service, calls[1]));
    }

    /// A call that its operator did and one that it failed, among many of whom but one are full.
    function doneAndFailed(uint256 size) private returns (uint64[] memory calls, bytes[] memory outputs) {
        address[] memory members = registerFrom(40, size);
        service = seededService(members, "");
        (calls, outputs) = (new uint64[](2), new bytes[](2));
        for (uint256 i = 1; i < size; ++i) {
            setPaused(members[i], true);
        }
        (calls[0], calls[1]) = (submitCreate(service, 0), submitCreate(service, 0));
        address last = drawOrder(service, calls[1], 1)[size - 1];
        setPaused(last == members[0] ? members[1] : last, false);
        (outputs[0], outputs[1]) = (receipt(OUTCOME_DONE, 1), receipt(OUTCOME_OPERATOR, 0));
    }

    // ─── Words ──────────────────────────────────────────────────────────────────────────────────────────────────────

    function submit(bool isWorkflow) private returns (uint64) {
        return isWorkflow ? submitWorkflow(service) : submitCreate(service, 0);
    }

    function deadlineOf(uint64 call) private view returns (uint64) {
        return blueprint.assignment(service, call).deadlineBlock;
    }

    function move(uint64 call, bool byFailure) private {
        if (byFailure) return answer(service, call, OUTCOME_OPERATOR, 0);
        vm.roll(uint256(deadlineOf(call)) + 1);
        blueprint.reassign(service, call);
    }

    function refusesToReassign(uint64 call) private {
        bytes memory refusal = abi.encodeWithSelector(I.NotReassignable.selector, service, call, deadlineOf(call));
        vm.expectRevert(refusal);
        blueprint.reassign(service, call);
    }

    function registerFrom(uint256 first, uint256 count) private returns (address[] memory operators) {
        operators = new address[](count);
        for (uint256 i; i < count; ++i) {
            operators[i] = operatorAt(first + i);
            register(operators[i], CAPACITY);
        }
    }

    function firstNotIn(address[] memory order, address[] memory had) private pure returns (address) {
        for (uint256 i; i < order.length; ++i) {
            if (!isIn(order[i], had)) return order[i];
        }
        return address(0);
    }

    function pauseAs(address owner, uint64 workflow) private {
        vm.prank(owner);
        blueprint.pauseWorkflow(service, workflow);
    }

    function countOf(address operator) private view returns (uint256) {
        (I.WorkflowView[] memory page,) = blueprint.activeWorkflows(operator, 0, 100);
        return page.length;
    }

    function isListedFor(uint64 workflow, address operator, uint16 epoch) private view {
        (I.WorkflowView[] memory page,) = blueprint.activeWorkflows(operator, 0, 100);
        assertEq(page.length, 1);
        assertEq(page[0].workflowId, workflow);
        assertEq(page[0].operator, operator);
        assertEq(page[0].epoch, epoch);
    }
}
