// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {BatchPlan} from "../src/BatchPlan.sol";
import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {JOB_BATCH_CREATE, OUTCOME_CALLER, OUTCOME_DONE, OUTCOME_OPERATOR, OperatorProfile} from "../src/JobTypes.sol";
import {FakeCore} from "./FakeCore.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// Calls that several operators answer, each its part.
contract BatchesTest is Fixture {
    uint256 private constant MEMBERS = 6;
    uint32 private constant ROOM = 10;
    uint64 private constant TTL_BLOCKS = 100;
    bytes32 private constant SEED = keccak256("seed");

    uint64 private service;

    function setUp() public override {
        super.setUp();
        service = seededService(registerMany(MEMBERS), SEED);
        for (uint256 i; i < MEMBERS; ++i) {
            setProfile(i, ROOM, 0);
        }
    }

    // ─── The plan ───────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_theBatchIsPlannedAsAnyoneCan(
        uint8[MEMBERS] memory rooms,
        uint8[MEMBERS] memory prices,
        uint8 singles,
        uint8 count,
        uint8 distribution
    ) public {
        for (uint256 i; i < singles % 8; ++i) {
            submitCreate(service, 0);
        }
        for (uint256 i; i < MEMBERS; ++i) {
            setProfile(i, rooms[i] % 32, prices[i]);
        }
        isPlanned(core.getServiceOperators(service), uint32(bound(count, 1, 200)), distribution % 3, false);
    }

    function test_theBatchIsPlannedAsAnyoneCan() public {
        for (uint8 i; i < 9; ++i) {
            uint256 snapshot = vm.snapshotState();
            uint8[MEMBERS] memory rooms = [3, 0, 31, 7, 1, 12];
            testFuzz_theBatchIsPlannedAsAnyoneCan(rooms, [uint8(5), 1, 5, 9, 0, 5], i, i * 6 + 1, i);
            vm.revertToState(snapshot);
        }
    }

    /// The same among those named, whoever else serves here.
    function testFuzz_aBatchAmongNamedOperatorsIsPlannedAmongThem(uint8 chosen, uint8 count, uint8 distribution)
        public
    {
        address[] memory named = membersOf(uint8(bound(chosen, 1, 2 ** MEMBERS - 1)));
        for (uint256 i; i < MEMBERS; ++i) {
            setProfile(i, ROOM, (i * 7) % 5);
        }
        isPlanned(named, uint32(bound(count, 1, 80)), distribution % 3, true);
    }

    function testFuzz_whoMayTakeNothingNewIsLeftOut(uint8 paused, uint8 leaving, uint8 count) public {
        uint256 left;
        for (uint256 i; i < MEMBERS; ++i) {
            if (paused >> i & 1 == 1) setPaused(operatorAt(i), true);
            if (leaving >> i & 1 == 1) core.scheduleExit(service, operatorAt(i));
            if ((paused | leaving) >> i & 1 == 0) ++left;
        }
        uint32 made = uint32(bound(count, 1, MEMBERS * ROOM));
        if (made > left * ROOM) return refusesForCapacity(made);
        uint64 call = submitBatch(service, made, "random");
        I.Part[] memory parts = blueprint.parts(service, call);
        for (uint256 i; i < parts.length; ++i) {
            uint256 which = uint160(parts[i].operator) - uint160(operatorAt(0));
            assertEq((paused | leaving) >> which & 1, 0);
        }
    }

    function isPlanned(address[] memory pool, uint32 count, uint8 distribution, bool isNamed) private {
        uint256[] memory offers = new uint256[](pool.length);
        uint256 free;
        for (uint256 i; i < pool.length; ++i) {
            I.OperatorView memory seen = blueprint.operatorView(pool[i]);
            offers[i] = roomOf(pool[i]) | seen.pricePerHour << 32;
            free += roomOf(pool[i]);
        }
        uint64 next = submitWorkflowAnywhere();
        bytes32 seed = keccak256(abi.encode(SEED, service, next));
        (uint256[] memory order, uint256[] memory shares) =
            BatchPlan.plan(offers, count, BatchPlan.Distribution(distribution), seed);

        string memory word = ["round_robin", "cheapest", "random"][distribution];
        bytes memory inputs = Inputs.batchCreate(count, 0, isNamed ? pool : new address[](0), word);
        if (free < count) vm.expectRevert(abi.encodeWithSelector(I.NoCapacity.selector, service));
        uint64 call = submitAs(customer, service, JOB_BATCH_CREATE, inputs);
        if (free < count) return;
        assertEq(call, next);
        hasParts(call, pool, order, shares);
    }

    /// The id of the next call, whose own operators are asked for none.
    function submitWorkflowAnywhere() private returns (uint64 next) {
        uint256 snapshot = vm.snapshotState();
        next = submitAs(customer, service, 23, Inputs.plainBatch(23, 0, ""));
        vm.revertToState(snapshot);
    }

    function hasParts(uint64 call, address[] memory pool, uint256[] memory order, uint256[] memory shares)
        private
        view
    {
        I.Part[] memory parts = blueprint.parts(service, call);
        uint256 used;
        uint256 slot;
        for (uint256 i; i < order.length; ++i) {
            if (shares[i] == 0) continue;
            I.Part memory part = parts[used++];
            assertEq(part.operator, pool[order[i]]);
            assertEq(part.slots, shares[i]);
            assertEq(part.firstSlot, slot);
            assertFalse(part.answered);
            for (uint256 end = slot + shares[i]; slot < end; ++slot) {
                assertEq(blueprint.sandbox(service, call, uint8(slot)).operator, part.operator);
                assertSlot(service, call, uint8(slot), I.SandboxState.Requested);
            }
        }
        assertEq(parts.length, used);
        assertEq(blueprint.assignment(service, call).parts, used);
        assertSlot(service, call, uint8(slot), I.SandboxState.Unknown);
    }

    function test_aBatchOfTheMostSandboxesAmongTheMostOperators() public {
        address[] memory members = new address[](OPERATORS_MAX);
        for (uint256 i; i < OPERATORS_MAX; ++i) {
            members[i] = operatorAt(100 + i);
            register(members[i], 600);
        }
        service = seededService(members, SEED);
        string[3] memory words = ["round_robin", "cheapest", "random"];
        for (uint256 i; i < 3; ++i) {
            uint64 call = submitBatch(service, 200, words[i]);
            I.Part[] memory parts = blueprint.parts(service, call);
            assertEq(parts.length, i == 1 ? 1 : OPERATORS_MAX); // the cheapest of equals is the first
            for (uint256 j; j < parts.length; ++j) {
                answerAs(parts[j].operator, service, call, receipt(OUTCOME_DONE, shareOf(parts[j])));
            }
            assertTrue(core.isCompleted(service, call));
            assertEq(blueprint.assignment(service, call).detail, type(uint256).max >> 56);
            assertSlot(service, call, 199, I.SandboxState.Live);
            assertSlot(service, call, 200, I.SandboxState.Unknown);
        }
        assertEq(blueprint.serviceView(service).sandboxes, 600);
    }

    // ─── Named operators ────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_anOperatorThatDoesNotServeHereIsNotNamed(address outsider, uint8 at) public {
        vm.assume(!isIn(outsider, core.getServiceOperators(service)));
        address[] memory named = membersOf(0x3F);
        named[at % MEMBERS] = outsider;
        refusesNamed(named, outsider);
    }

    function testFuzz_anOperatorIsNamedOnceAndInTheServicesOrder(uint8 first, uint8 second) public {
        address[] memory named = new address[](2);
        (named[0], named[1]) = (operatorAt(first % MEMBERS), operatorAt(second % MEMBERS));
        if (first % MEMBERS >= second % MEMBERS) refusesNamed(named, named[1]);
        else submitNamed(2, named);
    }

    function test_namesThatAreRefused() public {
        testFuzz_anOperatorThatDoesNotServeHereIsNotNamed(address(0), 0);
        testFuzz_anOperatorThatDoesNotServeHereIsNotNamed(stranger, 5);
        testFuzz_anOperatorIsNamedOnceAndInTheServicesOrder(1, 1);
        testFuzz_anOperatorIsNamedOnceAndInTheServicesOrder(2, 1);
    }

    function testFuzz_moreNamesThanMembersAreRefused(uint8 more) public {
        address[] memory named = new address[](MEMBERS + bound(more, 1, 100));
        for (uint256 i; i < named.length; ++i) {
            named[i] = operatorAt(i);
        }
        refusesNamed(named, operatorAt(MEMBERS));
    }

    // ─── Capacity ───────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_asManyAsThereIsRoomForAndNotOneMore(uint8[MEMBERS] memory rooms, uint8 distribution) public {
        uint32 free;
        for (uint256 i; i < MEMBERS; ++i) {
            setProfile(i, rooms[i] % 32, 0);
            free += rooms[i] % 32;
        }
        refusesForCapacity(free + 1);
        if (free == 0) return;
        string memory word = ["round_robin", "cheapest", "random"][distribution % 3];
        I.Part[] memory parts = blueprint.parts(service, submitBatch(service, free, word));
        for (uint256 i; i < parts.length; ++i) {
            assertEq(parts[i].slots, roomOf(parts[i].operator));
        }
    }

    /// Slots are taken up by a receipt, and until then may be promised twice.
    function testFuzz_slotsAreHeldFromTheReceiptOn(uint8 count, uint256 made) public {
        uint64 call = submitBatch(service, uint32(bound(count, 1, 60)), "round_robin");
        I.Part[] memory parts = blueprint.parts(service, call);
        uint32 held;
        for (uint256 i; i < parts.length; ++i) {
            assertEq(usedBy(parts[i].operator), 0);
            uint256 detail = shareOf(parts[i]) & made;
            answerAs(parts[i].operator, service, call, receipt(detail == 0 ? OUTCOME_CALLER : OUTCOME_DONE, detail));
            assertEq(usedBy(parts[i].operator), bits(detail));
            held += bits(detail);
        }
        assertEq(blueprint.serviceView(service).sandboxes, held);
        assertEq(bits(blueprint.assignment(service, call).detail), held);
    }

    /// What was planned on is made, also if it is more than there is room for by then.
    function test_twoBatchesPlannedOnTheSameRoomBothStand() public {
        uint64 first = submitBatch(service, uint32(MEMBERS) * ROOM, "cheapest");
        uint64 second = submitBatch(service, uint32(MEMBERS) * ROOM, "cheapest");
        answerAll(first, OUTCOME_DONE);
        assertEq(blueprint.eligibleCount(), 0);
        answerAll(second, OUTCOME_DONE);
        for (uint256 i; i < MEMBERS; ++i) {
            assertEq(usedBy(operatorAt(i)), 2 * ROOM);
        }
        core.terminate(service);
        assertEq(blueprint.eligibleCount(), MEMBERS);
        assertEq(usedBy(operatorAt(0)), 0);
    }

    // ─── Who answers what ───────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aReceiptNamesSlotsOfItsOwnShareOnly(uint8 which, uint256 detail) public {
        uint64 call = submitBatch(service, 24, "random");
        I.Part[] memory parts = blueprint.parts(service, call);
        I.Part memory part = parts[which % parts.length];
        if (detail != 0 && detail & ~shareOf(part) == 0) return;
        ignores(part.operator, call, receipt(OUTCOME_DONE, detail));
        assertSlot(service, call, part.firstSlot, I.SandboxState.Requested);
    }

    function test_aReceiptNamesSlotsOfItsOwnShareOnly() public {
        uint64 call = submitBatch(service, 24, "random");
        I.Part[] memory parts = blueprint.parts(service, call);
        uint256 own = shareOf(parts[2]);
        uint256 last = 1 << (parts[2].firstSlot + parts[2].slots - 1);
        uint256[6] memory details = [0, own | own << 1, own | own >> 1, shareOf(parts[1]), 1 << 200, last << 1];
        for (uint256 i; i < details.length; ++i) {
            uint256 snapshot = vm.snapshotState();
            ignores(parts[2].operator, call, receipt(OUTCOME_DONE, details[i]));
            vm.revertToState(snapshot);
        }
        answerAs(parts[2].operator, service, call, receipt(OUTCOME_DONE, last));
        assertEq(blueprint.assignment(service, call).detail, last);
    }

    function testFuzz_aFailureNamesNone(uint8 outcome, uint256 detail) public {
        vm.assume(detail != 0);
        uint64 call = submitBatch(service, 24, "random");
        address operator = blueprint.parts(service, call)[0].operator;
        ignores(operator, call, receipt(uint8(bound(outcome, 1, 2)), detail));
    }

    function testFuzz_theReceiptOfAPlainBatchNamesNone(uint8 job, uint8 outcome, uint256 detail) public {
        vm.assume(detail != 0);
        uint64 call = submitPlain(job);
        ignores(operatorAt(0), call, receipt(outcome % 3, detail));
    }

    function testFuzz_whoHasNoPartIsIgnored(uint8 outcome, uint256 detail) public {
        uint64 call = submitBatch(service, 3, "round_robin"); // of the first three
        outcome %= 3;
        ignores(operatorAt(4), call, receipt(outcome, detail));
        register(operatorAt(9), 1);
        core.join(service, operatorAt(9));
        ignores(operatorAt(9), call, receipt(outcome, detail));
        uint64 plain = submitPlain(0);
        register(operatorAt(10), 1);
        core.join(service, operatorAt(10));
        ignores(operatorAt(10), plain, receipt(outcome, 0));
    }

    /// The core hears an operator once; were it to ask again, nothing would change.
    function testFuzz_aPartIsAnsweredOnce(uint8 job, uint8 first, uint8 second) public {
        uint64 call = submitPlain(job);
        answerAs(operatorAt(1), service, call, receipt(first % 3, 0));
        vm.expectRevert(FakeCore.AlreadyAnswered.selector);
        answerAs(operatorAt(1), service, call, receipt(second % 3, 0));
        uint8 id = blueprint.assignment(service, call).job;
        vm.expectEmit(address(blueprint));
        emit I.ResultIgnored(service, call, operatorAt(1));
        vm.prank(address(core));
        blueprint.onJobResult(service, id, call, operatorAt(1), 0, receipt(second % 3, 0));
        assertEq(blueprint.assignment(service, call).answers, 1);
        assertEq(blueprint.parts(service, call)[1].outcome, first % 3);
    }

    function testFuzz_bytesThatAreNoReceiptAreIgnored(uint8 job, bytes memory output) public {
        vm.assume(output.length != 96);
        ignores(operatorAt(0), submitPlain(job), output);
    }

    // ─── Completion ─────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_theLastAnswerCompletesAPlainBatchAndTheWorstIsItsOutcome(
        uint8 job,
        uint8[MEMBERS] memory outcomes,
        uint8 rotation
    ) public {
        uint64 call = submitPlain(job);
        uint8 worst;
        for (uint256 i; i < MEMBERS; ++i) {
            assertFalse(core.isCompleted(service, call));
            uint8 outcome = outcomes[i] % 3;
            if (outcome > worst) worst = outcome;
            uint256 which = (i + rotation) % MEMBERS;
            vm.expectEmit(address(blueprint));
            emit I.ReceiptRecorded(service, call, operatorAt(which), outcome, RESPONSE, 0);
            answerAs(operatorAt(which), service, call, receipt(outcome, 0));
            I.Assignment memory seen = blueprint.assignment(service, call);
            assertEq(seen.answers, i + 1);
            assertEq(seen.outcome, worst);
            assertEq(seen.answered, i + 1 == MEMBERS);
            I.Part memory part = blueprint.parts(service, call)[which];
            assertTrue(part.answered);
            assertEq(part.outcome, outcome);
            assertEq(part.slots, 0);
            assertEq(part.firstSlot, 0);
        }
        assertTrue(core.isCompleted(service, call));
        assertEq(blueprint.assignment(service, call).responseHash, 0);
        assertEq(blueprint.assignment(service, call).operator, address(0));
    }

    function test_theLastAnswerCompletesAPlainBatchAndTheWorstIsItsOutcome() public {
        for (uint8 i; i < 3; ++i) {
            testFuzz_theLastAnswerCompletesAPlainBatchAndTheWorstIsItsOutcome(i, [0, 1, 0, 2, 1, 0], i);
        }
    }

    function testFuzz_theLastAnswerCompletesABatchCreate(uint8 count, uint8 distribution, uint256 made, uint16 failures)
        public
    {
        string memory word = ["round_robin", "cheapest", "random"][distribution % 3];
        uint64 call = submitBatch(service, uint32(bound(count, 1, 60)), word);
        I.Part[] memory parts = blueprint.parts(service, call);
        uint256 created;
        uint8 worst;
        for (uint256 i; i < parts.length; ++i) {
            assertFalse(core.isCompleted(service, call));
            uint256 detail = shareOf(parts[i]) & made;
            uint8 outcome = detail == 0 || failures >> i & 1 == 1 ? uint8(1 + (failures >> 8 & 1)) : OUTCOME_DONE;
            if (outcome != OUTCOME_DONE) detail = 0;
            if (outcome > worst) worst = outcome;
            created |= detail;
            vm.expectEmit(address(blueprint));
            emit I.ReceiptRecorded(service, call, parts[i].operator, outcome, RESPONSE, detail);
            answerAs(parts[i].operator, service, call, receipt(outcome, detail));
        }
        assertTrue(core.isCompleted(service, call));
        assertEq(blueprint.assignment(service, call).detail, created);
        assertEq(blueprint.assignment(service, call).outcome, worst);
    }

    /// Not even if every operator fails: whom else should it go to?
    function testFuzz_anOperatorsFailureDoesNotMoveAPart(uint8 count) public {
        uint64 call = submitBatch(service, uint32(bound(count, 1, 60)), "random");
        I.Part[] memory parts = blueprint.parts(service, call);
        answerAll(call, OUTCOME_OPERATOR);
        assertTrue(core.isCompleted(service, call));
        assertEq(blueprint.assignment(service, call).epoch, 0);
        I.Part[] memory after_ = blueprint.parts(service, call);
        for (uint256 i; i < parts.length; ++i) {
            assertEq(after_[i].operator, parts[i].operator);
            assertEq(after_[i].outcome, OUTCOME_OPERATOR);
        }
    }

    /// An accepted result before it in the same transaction lends a part that is not the last nothing.
    function testFuzz_aPartDoesNotBorrowTheResultBefore(uint32 gasLimit) public {
        (uint64[] memory calls, bytes[] memory outputs) = (new uint64[](2), new bytes[](2));
        calls[1] = submitPlain(0);
        do {
            calls[0] = submitCreate(service, 0);
        } while (assignedTo(service, calls[0]) != operatorAt(0));
        (outputs[0], outputs[1]) = (receipt(OUTCOME_DONE, 1), receipt(OUTCOME_DONE, 0));
        vm.prank(operatorAt(0));
        try core.submitResults{gas: bound(gasLimit, 20_000, 400_000)}(service, calls, outputs) {} catch {}
        assertFalse(core.isCompleted(service, calls[1]));
        assertEq(core.isCompleted(service, calls[0]), blueprint.assignment(service, calls[0]).answered);
    }

    // ─── Slots ──────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_eachSlotGoesItsOwnWay(uint8 count, uint256 answered, uint256 made, uint256 deleted) public {
        uint32 size = uint32(bound(count, 1, 60));
        uint64 call = submitBatchFor(size);
        I.Part[] memory parts = blueprint.parts(service, call);
        for (uint256 i; i < parts.length; ++i) {
            if (answered >> i & 1 == 0) continue;
            uint256 detail = shareOf(parts[i]) & made;
            answerAs(parts[i].operator, service, call, receipt(detail == 0 ? OUTCOME_OPERATOR : OUTCOME_DONE, detail));
        }
        uint256 created = blueprint.assignment(service, call).detail;
        for (uint8 slot; slot < size; slot += 7) {
            if ((created & deleted) >> slot & 1 == 1) {
                answer(service, submitDelete(service, call, slot), OUTCOME_DONE, 0);
            } else {
                deleted &= ~(1 << slot);
            }
        }
        uint256 snapshot = vm.snapshotState();
        haveStates(call, size, created, deleted, I.SandboxState.Live, I.SandboxState.Requested);
        vm.roll(block.number + TTL_BLOCKS + 1);
        haveStates(call, size, created, deleted, I.SandboxState.Expired, I.SandboxState.Expired);
        vm.revertToState(snapshot);
        core.terminate(service);
        haveStates(call, size, created, deleted, I.SandboxState.Deleted, I.SandboxState.Deleted);
    }

    function test_eachSlotGoesItsOwnWay() public {
        testFuzz_eachSlotGoesItsOwnWay(59, 0x2A, 0xF0F0F0F0F0F0F0F0, 0xFF00FF00FF00FF00);
    }

    /// Only every seventh was deleted: `deleted` says nothing of the others.
    function haveStates(
        uint64 call,
        uint256 size,
        uint256 created,
        uint256 deleted,
        I.SandboxState live,
        I.SandboxState open
    ) private view {
        I.Part[] memory parts = blueprint.parts(service, call);
        for (uint256 i; i < parts.length; ++i) {
            for (uint256 slot = parts[i].firstSlot; slot < parts[i].firstSlot + parts[i].slots; ++slot) {
                I.SandboxState expected = parts[i].answered ? I.SandboxState.Failed : open;
                if (created >> slot & 1 == 1) expected = live;
                if (slot % 7 == 0 && (created & deleted) >> slot & 1 == 1) expected = I.SandboxState.Deleted;
                assertSlot(service, call, uint8(slot), expected);
            }
        }
        assertSlot(service, call, uint8(size), I.SandboxState.Unknown);
    }

    function testFuzz_aSlotIsDeletedByItself(uint8 count, uint8 slot) public {
        uint32 size = uint32(bound(count, 2, 60));
        uint64 call = submitBatch(service, size, "random");
        answerAll(call, OUTCOME_DONE);
        slot = uint8(bound(slot, 1, size - 1));
        address holder = blueprint.sandbox(service, call, slot).operator;
        uint32 before = usedBy(holder);
        uint64 deletion = submitDelete(service, call, slot);
        assertEq(assignedTo(service, deletion), holder);
        answer(service, deletion, OUTCOME_DONE, 0);
        assertEq(usedBy(holder), before - 1);
        assertEq(blueprint.serviceView(service).sandboxes, size - 1);
        assertSlot(service, call, slot, I.SandboxState.Deleted);
        assertSlot(service, call, slot - 1, I.SandboxState.Live);
        if (slot + 1 < size) assertSlot(service, call, slot + 1, I.SandboxState.Live);
    }

    // ─── The end ────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aReapFreesEachOperatorsPart(uint8 count, uint256 made, uint256 deleted, uint8 others) public {
        uint32 size = uint32(bound(count, 1, 40));
        uint64 call = submitBatchFor(size);
        I.Part[] memory parts = blueprint.parts(service, call);
        for (uint256 i; i < parts.length; ++i) {
            uint256 detail = shareOf(parts[i]) & made;
            if (detail != 0) answerAs(parts[i].operator, service, call, receipt(OUTCOME_DONE, detail));
        }
        for (uint8 slot; slot < size; slot += 5) {
            if ((made & deleted) >> slot & 1 == 0) continue;
            answer(service, submitDelete(service, call, slot), OUTCOME_DONE, 0);
        }
        uint32 held = blueprint.serviceView(service).sandboxes;
        uint256 singles = others % 6;
        for (uint256 i; i < singles; ++i) {
            liveSandbox(service, 0);
        }
        vm.roll(block.number + TTL_BLOCKS);
        refusesToReap(call);
        vm.roll(block.number + 1);
        if (held == 0) return refusesToReap(call);
        vm.expectEmit(address(blueprint));
        emit I.Reaped(service, call, held);
        blueprint.reap(service, call);
        assertEq(blueprint.serviceView(service).sandboxes, singles);
        refusesToReap(call);
    }

    function test_aReceiptAfterTheReapingIsReapedAgain() public {
        uint64 call = submitBatchFor(12);
        I.Part[] memory parts = blueprint.parts(service, call);
        answerAs(parts[0].operator, service, call, receipt(OUTCOME_DONE, shareOf(parts[0])));
        vm.roll(block.number + TTL_BLOCKS + 1);
        blueprint.reap(service, call);
        answerAs(parts[1].operator, service, call, receipt(OUTCOME_DONE, shareOf(parts[1])));
        assertEq(usedBy(parts[1].operator), 2);
        assertSlot(service, call, parts[1].firstSlot, I.SandboxState.Expired);
        blueprint.reap(service, call);
        assertEq(blueprint.serviceView(service).sandboxes, 0);
    }

    /// Of what its operator lost by leaving nothing comes back, though it may join again and answer.
    function testFuzz_aPartAnsweredAfterALossHoldsNothing(uint32 later) public {
        uint64 call = submitBatch(service, uint32(MEMBERS), "round_robin");
        uint64 single = submitQuoted(service, 0, Inputs.create(0), only(operatorAt(2)));
        core.forceOut(service, operatorAt(2));
        assertSlot(service, call, 2, I.SandboxState.Lost);
        vm.roll(block.number + 1 + later);
        core.join(service, operatorAt(2));
        answerAs(operatorAt(2), service, call, receipt(OUTCOME_DONE, 4));
        answerAs(operatorAt(2), service, single, receipt(OUTCOME_DONE, 1));
        assertSlot(service, call, 2, I.SandboxState.Lost);
        assertState(service, single, I.SandboxState.Lost);
        assertEq(usedBy(operatorAt(2)), 0);
        assertTrue(blueprint.canLeave(service, operatorAt(2)));
    }

    // ─── Words ──────────────────────────────────────────────────────────────────────────────────────────────────────

    function setProfile(uint256 which, uint32 capacity, uint256 price) private {
        vm.prank(operatorAt(which));
        blueprint.setOperatorProfile(capacity, price, 0, "");
    }

    function submitPlain(uint8 which) private returns (uint64) {
        uint8 job = Inputs.plainBatches()[which % 3];
        return submitAs(customer, service, job, Inputs.plainBatch(job, 2, "all"));
    }

    function submitBatchFor(uint32 count) private returns (uint64) {
        bytes memory inputs = Inputs.batchCreate(count, TTL_BLOCKS, new address[](0), "round_robin");
        return submitAs(customer, service, JOB_BATCH_CREATE, inputs);
    }

    function submitNamed(uint32 count, address[] memory named) private returns (uint64) {
        return submitAs(customer, service, JOB_BATCH_CREATE, Inputs.batchCreate(count, 0, named, "cheapest"));
    }

    function answerAll(uint64 call, uint8 outcome) private {
        I.Part[] memory parts = blueprint.parts(service, call);
        for (uint256 i; i < parts.length; ++i) {
            uint256 detail = outcome == OUTCOME_DONE ? shareOf(parts[i]) : 0;
            answerAs(parts[i].operator, service, call, receipt(outcome, detail));
        }
    }

    function shareOf(I.Part memory part) private pure returns (uint256) {
        return ((1 << uint256(part.slots)) - 1) << part.firstSlot;
    }

    function membersOf(uint8 chosen) private pure returns (address[] memory members) {
        members = new address[](bits(chosen));
        uint256 count;
        for (uint256 i; i < 8; ++i) {
            if (chosen >> i & 1 == 1) members[count++] = operatorAt(i);
        }
    }

    function bits(uint256 word) private pure returns (uint32 count) {
        for (; word != 0; word &= word - 1) {
            ++count;
        }
    }

    function ignores(address operator, uint64 call, bytes memory output) private {
        I.Assignment memory before = blueprint.assignment(service, call);
        vm.expectEmit(address(blueprint));
        emit I.ResultIgnored(service, call, operator);
        answerAs(operator, service, call, output);
        assertFalse(core.isCompleted(service, call));
        assertEq(abi.encode(blueprint.assignment(service, call)), abi.encode(before));
        assertEq(usedBy(operator), 0);
    }

    function refusesNamed(address[] memory named, address first) private {
        bytes memory refusal = abi.encodeWithSelector(I.OperatorNotInService.selector, service, first);
        vm.expectRevert(refusal);
        submitNamed(1, named);
    }

    function refusesForCapacity(uint32 count) private {
        if (count > 200) return;
        vm.expectRevert(abi.encodeWithSelector(I.NoCapacity.selector, service));
        submitBatch(service, count, "round_robin");
    }

    function refusesToReap(uint64 call) private {
        vm.expectRevert(abi.encodeWithSelector(I.NotReapable.selector, service, call));
        blueprint.reap(service, call);
    }
}
