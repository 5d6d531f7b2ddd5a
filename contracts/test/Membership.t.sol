// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {OUTCOME_CALLER, OUTCOME_DONE} from "../src/JobTypes.sol";
import {FakeCore} from "./FakeCore.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// Who may be given something new, and what becomes of those who go.
contract MembershipTest is Fixture {
    uint64 private constant TTL_BLOCKS = 100;

    uint64 private service;

    function setUp() public override {
        super.setUp();
        service = serviceOf(3, 30 days);
    }

    // ─── Pausing ────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aPausedOperatorIsGivenNothingNewAnywhere(uint8 which, uint8 calls) public {
        address paused = operatorAt(which % 3);
        uint64 other = core.openService(customer, core.getServiceOperators(service), "", 0);
        for (uint256 i; i < 3; ++i) {
            setCapacity(operatorAt(i), 100);
        }
        vm.expectEmit(address(blueprint));
        emit I.OperatorPaused(paused, true);
        setPaused(paused, true);
        assertFalse(blueprint.operatorView(paused).eligible);
        assertTrue(blueprint.operatorView(paused).paused);
        assertEq(blueprint.eligibleCount(), 2);
        for (uint256 i; i < calls % 5 + 1; ++i) {
            assertTrue(assignedTo(service, submitCreate(service, 0)) != paused);
            assertTrue(assignedTo(other, submitWorkflow(other)) != paused);
        }
        assertTrue(!isIn(paused, blueprint.previewOperatorSelection(2, bytes32(uint256(which)))));

        vm.expectEmit(address(blueprint));
        emit I.OperatorPaused(paused, false);
        setPaused(paused, false);
        assertEq(blueprint.eligibleCount(), 3);
    }

    function testFuzz_whatAPausedOperatorHoldsGoesOn(uint8 outcome) public {
        uint64 target = liveSandbox(service, 0);
        uint64 open = submitCreate(service, 0);
        address holder = assignedTo(service, target);
        setPaused(holder, true);
        setPaused(assignedTo(service, open), true);
        answer(service, submitExec(service, target), outcome % 3, 0);
        answer(service, open, OUTCOME_DONE, 1);
        assertState(service, open, I.SandboxState.Live);
        answer(service, submitDelete(service, target), OUTCOME_DONE, 0);
        assertState(service, target, I.SandboxState.Deleted);
    }

    function testFuzz_onlyTheRegisteredPause(address sender, bool paused) public {
        vm.assume(!blueprint.operatorView(sender).registered);
        vm.prank(sender);
        vm.expectRevert(abi.encodeWithSelector(I.NotRegistered.selector, sender));
        blueprint.setPaused(paused);
    }

    function testFuzz_pausingTwiceIsPausingOnce(bool first, bool second) public {
        setPaused(operatorAt(0), first);
        setPaused(operatorAt(0), second);
        assertEq(blueprint.operatorView(operatorAt(0)).eligible, !second);
        assertEq(blueprint.eligibleCount(), second ? 2 : 3);
    }

    function test_whoRegistersAgainIsStillPaused() public {
        setPaused(operatorAt(0), true);
        core.unregister(operatorAt(0));
        register(operatorAt(0), 1);
        assertTrue(blueprint.operatorView(operatorAt(0)).paused);
        assertFalse(blueprint.operatorView(operatorAt(0)).eligible);
    }

    // ─── Numbers ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Lists hold numbers: were one given twice, slots and parts would be somebody else's.
    function testFuzz_aNumberIsNeverGivenToAnother(uint16 leaves, uint16 returns_) public {
        address[] memory order = new address[](10);
        for (uint256 i; i < 10; ++i) {
            order[i] = i < 3 ? operatorAt(i) : operatorAt(20 + i);
            if (i >= 3) register(order[i], uint32(i));
        }
        for (uint256 i = 3; i < 10; ++i) {
            if (leaves >> i & 1 == 1) core.unregister(order[i]);
        }
        register(operatorAt(40), 40);
        for (uint256 i = 3; i < 10; ++i) {
            if ((leaves & returns_) >> i & 1 == 1) register(order[i], uint32(i) + 10);
        }
        (I.OperatorView[] memory page, uint256 next) = blueprint.operators(0, 100);
        assertEq(page.length, 11);
        assertEq(next, 0);
        assertEq(page[10].account, operatorAt(40));
        for (uint256 i = 3; i < 10; ++i) {
            assertEq(page[i].account, order[i]);
            assertEq(page[i].registered, (leaves & ~returns_) >> i & 1 == 0);
            assertEq(page[i].capacity, (leaves & returns_) >> i & 1 == 1 ? i + 10 : i);
        }
    }

    // ─── Leaving ────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_whoIsLeavingIsGivenNothingNewHere(uint8 which, uint8 calls) public {
        address leaver = operatorAt(which % 3);
        uint64 other = core.openService(customer, only(leaver), "", 0);
        core.scheduleExit(service, leaver);
        for (uint256 i; i < calls % 5 + 1; ++i) {
            assertTrue(assignedTo(service, submitCreate(service, 0)) != leaver);
            assertTrue(assignedTo(service, submitWorkflow(service)) != leaver);
        }
        assertTrue(blueprint.operatorView(leaver).eligible);
        assertEq(assignedTo(other, submitCreate(other, 0)), leaver);
    }

    function testFuzz_whoHasThoughtBetterOfItIsGivenWorkAgain(uint8 which, uint8 scheduled) public {
        for (uint256 i; i < 3; ++i) {
            if (scheduled >> i & 1 == 1) core.scheduleExit(service, operatorAt(i));
        }
        address stayer = operatorAt(which % 3);
        core.scheduleExit(service, stayer);
        core.cancelExit(service, stayer);
        for (uint256 i; i < 3; ++i) {
            if (operatorAt(i) != stayer) setPaused(operatorAt(i), true);
        }
        assertEq(assignedTo(service, submitCreate(service, 0)), stayer);
        core.cancelExit(service, stayer); // told twice
        assertEq(assignedTo(service, submitCreate(service, 0)), stayer);
    }

    function test_anExitThatIsScheduledTwiceIsCancelledOnce() public {
        core.scheduleExit(service, operatorAt(0));
        core.scheduleExit(service, operatorAt(0));
        core.cancelExit(service, operatorAt(0));
        setPaused(operatorAt(1), true);
        setPaused(operatorAt(2), true);
        assertEq(assignedTo(service, submitCreate(service, 0)), operatorAt(0));
    }

    function testFuzz_anOperatorLeavesWithoutSandboxesOnly(uint8 outcome) public {
        uint64 call = submitCreate(service, 0);
        address holder = assignedTo(service, call);
        assertFalse(blueprint.canLeave(service, holder));
        vm.expectRevert(FakeCore.MayNotLeave.selector);
        core.leave(service, holder);
        outcome = uint8(bound(outcome, 0, 2));
        answerAs(holder, service, call, receipt(outcome, outcome == OUTCOME_DONE ? 1 : 0));
        assertEq(blueprint.canLeave(service, holder), outcome != OUTCOME_DONE);
        if (outcome == OUTCOME_DONE) answer(service, submitDelete(service, call), OUTCOME_DONE, 0);
        assertTrue(blueprint.canLeave(service, holder));
    }

    function test_aSlotOfABatchKeepsItsOperatorToo() public {
        uint64 call = submitBatch(service, 3, "round_robin");
        assertTrue(blueprint.canLeave(service, operatorAt(1)));
        answerAs(operatorAt(1), service, call, receipt(OUTCOME_DONE, 2));
        assertFalse(blueprint.canLeave(service, operatorAt(1)));
        assertTrue(blueprint.canLeave(service, operatorAt(0)));
        answer(service, submitDelete(service, call, 1), OUTCOME_DONE, 0);
        assertTrue(blueprint.canLeave(service, operatorAt(1)));
    }

    function testFuzz_whoLeavesWithNothingLosesNothing(uint8 which) public {
        address leaver = operatorAt(which % 3);
        uint64 call = submitCreate(service, 0);
        answer(service, call, OUTCOME_CALLER, 0);
        vm.recordLogs();
        core.leave(service, leaver);
        assertEq(vm.getRecordedLogs().length, 0);
        assertFalse(isIn(leaver, blueprint.serviceOperators(service)));
        assertTrue(assignedTo(service, submitCreate(service, 0)) != leaver);
    }

    // ─── Joining ────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_onlyAnEligibleOperatorMayJoin(address operator) public {
        assertEq(blueprint.canJoin(service, operator), blueprint.operatorView(operator).eligible);
        if (!blueprint.operatorView(operator).registered) register(operator, 1);
        assertTrue(blueprint.canJoin(service, operator));
        setPaused(operator, true);
        assertFalse(blueprint.canJoin(service, operator));
    }

    function test_nobodyJoinsAServiceThatIsFull() public {
        address[] memory members = new address[](OPERATORS_MAX - 1);
        for (uint256 i; i < members.length; ++i) {
            members[i] = operatorAt(40 + i);
            register(members[i], 1);
        }
        uint64 almost = core.openService(customer, members, "", 0);
        register(operatorAt(98), 1);
        register(operatorAt(99), 1);
        assertTrue(blueprint.canJoin(almost, operatorAt(98)));
        core.join(almost, operatorAt(98));
        assertFalse(blueprint.canJoin(almost, operatorAt(99)));
        core.leave(almost, members[7]);
        assertTrue(blueprint.canJoin(almost, operatorAt(99)));
    }

    function testFuzz_whoWasLeavingAndJoinsAgainIsGivenWork(uint8 which) public {
        address operator = operatorAt(which % 3);
        core.scheduleExit(service, operator);
        core.leave(service, operator);
        vm.roll(block.number + 1);
        core.join(service, operator);
        for (uint256 i; i < 3; ++i) {
            if (operatorAt(i) != operator) setPaused(operatorAt(i), true);
        }
        assertEq(assignedTo(service, submitCreate(service, 0)), operator);
    }

    // ─── Forced out ─────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_whatAnOperatorThatIsMadeToLeaveHoldsIsLost(uint8 singles, uint8 count, bool isOpen) public {
        address loser = operatorAt(1);
        uint256 made = bound(singles, 1, CAPACITY - 1);
        uint64 other = core.openService(customer, only(loser), "", 0);
        liveSandbox(other, 0);
        uint64[] memory calls = new uint64[](made);
        for (uint256 i; i < made; ++i) {
            calls[i] = submitQuoted(service, 0, Inputs.create(0), only(loser));
            if (!isOpen) answer(service, calls[i], OUTCOME_DONE, 1);
        }
        uint32 size = uint32(bound(count, 3, 6));
        setCapacity(loser, 100);
        uint64 batch = submitBatch(service, size, "round_robin");
        I.Part memory part = blueprint.parts(service, batch)[1];
        answerAs(loser, service, batch, receipt(OUTCOME_DONE, 1 << part.firstSlot));

        vm.expectEmit(address(blueprint));
        emit I.SandboxesLost(service, loser, uint32(made + 1));
        core.forceOut(service, loser);

        for (uint256 i; i < made; ++i) {
            assertState(service, calls[i], I.SandboxState.Lost);
        }
        assertSlot(service, batch, part.firstSlot, I.SandboxState.Lost);
        assertSlot(service, batch, 0, I.SandboxState.Requested);
        assertEq(usedBy(loser), 1); // of the other service
        assertTrue(blueprint.canLeave(service, loser));
        assertFalse(blueprint.canLeave(other, loser));
    }

    function test_whatAnOperatorThatIsMadeToLeaveHoldsIsLost() public {
        testFuzz_whatAnOperatorThatIsMadeToLeaveHoldsIsLost(2, 5, false);
    }

    /// By nothing that follows: a reaping, a delete under way, a receipt, its return, the end.
    function testFuzz_whatIsLostIsFreedOnce(bool isOpen, bool rejoins, uint8 step, uint32 later) public {
        address loser = operatorAt(1);
        uint64 call = submitQuoted(service, 0, Inputs.create(TTL_BLOCKS), only(loser));
        if (!isOpen) answer(service, call, OUTCOME_DONE, 1);
        uint64 deletion = isOpen ? 0 : submitDelete(service, call);
        core.forceOut(service, loser);
        assertEq(usedBy(loser), 0);
        vm.roll(block.number + 1);
        if (rejoins) core.join(service, loser);
        // Were something freed twice, it would be one of these.
        uint64 other = core.openService(customer, only(loser), "", 0);
        liveSandbox(other, 0);
        if (rejoins) submitQuoted(service, 0, Inputs.create(0), only(loser));
        uint32 expected = rejoins ? 2 : 1;

        if (step % 4 == 0) {
            vm.roll(block.number + TTL_BLOCKS + later);
            vm.expectEmit(address(blueprint));
            emit I.Reaped(service, call, 0);
            blueprint.reap(service, call);
        } else if (step % 4 == 1 && rejoins) {
            if (isOpen) answerAs(loser, service, call, receipt(OUTCOME_DONE, 1));
            else answerAs(loser, service, deletion, receipt(OUTCOME_DONE, 0));
        } else if (step % 4 == 2 && rejoins && isOpen) {
            answerAs(loser, service, call, receipt(OUTCOME_CALLER, 0));
        } else if (step % 4 == 3) {
            core.terminate(service);
            expected = 1;
        }
        assertEq(usedBy(loser), expected);
        assertEq(blueprint.operatorView(loser).eligible, true);
    }

    function test_whatIsLostIsFreedOnce() public {
        for (uint8 i; i < 16; ++i) {
            uint256 snapshot = vm.snapshotState();
            testFuzz_whatIsLostIsFreedOnce(i & 4 == 0, i & 8 == 0, i & 3, 0);
            vm.revertToState(snapshot);
        }
    }

    /// What is given and what is lost in one block could not be told apart.
    function test_whoWasMadeToLeaveJoinsFromTheNextBlockOn() public {
        address loser = assignedTo(service, liveSandbox(service, 0));
        core.forceOut(service, loser);
        assertFalse(blueprint.canJoin(service, loser));
        vm.roll(block.number + 1);
        assertTrue(blueprint.canJoin(service, loser));
        core.join(service, loser);
        uint64 call = submitQuoted(service, 0, Inputs.create(0), only(loser));
        answer(service, call, OUTCOME_DONE, 1);
        assertState(service, call, I.SandboxState.Live);
        assertEq(usedBy(loser), 1);
        answer(service, submitDelete(service, call), OUTCOME_DONE, 0);
        assertEq(usedBy(loser), 0);
    }

    /// A sandbox of its return is lost with its second leaving, and one before the first stays so.
    function testFuzz_whoLeavesTwiceLosesTwice(uint32 between) public {
        address loser = operatorAt(2);
        uint64[2] memory calls;
        for (uint256 i; i < 2; ++i) {
            calls[i] = submitQuoted(service, 0, Inputs.create(0), only(loser));
            answer(service, calls[i], OUTCOME_DONE, 1);
            vm.roll(block.number + between);
            core.forceOut(service, loser);
            vm.roll(block.number + 1);
            core.join(service, loser);
            assertState(service, calls[i], I.SandboxState.Lost);
            assertEq(usedBy(loser), 0);
        }
        assertState(service, calls[0], I.SandboxState.Lost);
    }

    // ─── The eligible set ───────────────────────────────────────────────────────────────────────────────────────────

    /// After any steps the set is what the operators' own words make it, and draws of all of it give all of it.
    /// forge-config: default.fuzz.runs = 128
    function testFuzz_theEligibleSetFollowsEveryStep(uint256 steps) public {
        for (uint256 i = 3; i < 8; ++i) {
            register(operatorAt(i), CAPACITY);
        }
        uint64 last;
        for (uint256 i; i < 32; ++i) {
            uint256 step = steps >> (8 * i) & 255;
            address operator = operatorAt(step & 7);
            I.OperatorView memory seen = blueprint.operatorView(operator);
            uint256 kind = step >> 3 & 7;
            if (kind == 0 && seen.registered && step & 7 > 2) {
                core.unregister(operator);
            } else if (kind <= 1 && !seen.registered) {
                register(operator, uint32(step >> 6));
            } else if (kind == 2 && seen.registered) {
                setPaused(operator, step >> 6 & 1 == 1);
            } else if (kind == 3 && seen.registered) {
                setCapacity(operator, uint32(step >> 6));
            } else if (kind >= 5 && anyoneHasRoom()) {
                last = submitCreate(service, 0);
            } else if (kind == 4 && !blueprint.assignment(service, last).answered && last != 0) {
                answer(service, last, OUTCOME_CALLER, 0);
            }
            agreesWithTheModel();
        }
    }

    function test_theEligibleSetFollowsEveryStep() public {
        testFuzz_theEligibleSetFollowsEveryStep(uint256(keccak256("steps")));
    }

    function agreesWithTheModel() private view {
        uint32 count;
        for (uint256 i; i < 8; ++i) {
            I.OperatorView memory seen = blueprint.operatorView(operatorAt(i));
            assertEq(seen.eligible, seen.registered && !seen.paused && seen.used < seen.capacity);
            if (seen.eligible) ++count;
        }
        assertEq(blueprint.eligibleCount(), count);
        address[] memory all = blueprint.previewOperatorSelection(count, 0);
        for (uint256 i; i < count; ++i) {
            assertTrue(blueprint.operatorView(all[i]).eligible);
            for (uint256 j; j < i; ++j) {
                assertTrue(all[j] != all[i]);
            }
        }
    }

    function anyoneHasRoom() private view returns (bool) {
        return roomOf(operatorAt(0)) + roomOf(operatorAt(1)) + roomOf(operatorAt(2)) != 0;
    }
}
