// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {OUTCOME_CALLER, OUTCOME_DONE} from "../src/JobTypes.sol";
import {FakeCore} from "./FakeCore.sol";
import {Fixture} from "./Fixture.sol";

/// Reaping and termination: how slots come back without their owner's delete.
contract EndingTest is Fixture {
    uint64 private constant TTL_SECONDS = 3600;
    uint64 private constant TTL_BLOCKS = 100;

    uint64 private service;

    function setUp() public override {
        super.setUp();
        service = serviceOf(3, TTL_SECONDS);
    }

    // ─── Reaping ────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_anyoneMayReapWhatHasExpired(address anyone, bool answered, uint32 later) public {
        uint64 call = answered ? liveSandbox(service, TTL_BLOCKS) : submitCreate(service, TTL_BLOCKS);
        address holder = assignedTo(service, call);
        vm.roll(blueprint.sandbox(service, call, 0).expiryBlock + 1 + uint256(later));
        vm.expectEmit(address(blueprint));
        emit I.Reaped(service, call, 1);
        vm.prank(anyone);
        blueprint.reap(service, call);

        assertEq(usedBy(holder), 0);
        assertState(service, call, I.SandboxState.Deleted);
        refusesToReap(call);
    }

    function testFuzz_nothingIsReapedUpToItsExpiryBlock(uint64 blocks) public {
        uint64 call = liveSandbox(service, TTL_BLOCKS);
        vm.roll(bound(blocks, block.number, blueprint.sandbox(service, call, 0).expiryBlock));
        refusesToReap(call);
    }

    function test_inItsExpiryBlockItStillStands() public {
        uint64 call = liveSandbox(service, TTL_BLOCKS);
        vm.roll(block.number + TTL_BLOCKS);
        assertState(service, call, I.SandboxState.Live);
        refusesToReap(call);
        vm.roll(block.number + 1);
        assertState(service, call, I.SandboxState.Expired);
        blueprint.reap(service, call);
    }

    function testFuzz_withoutExpiryItIsReapedOnceItsServiceHasEnded(uint32 later) public {
        uint64 call = liveSandbox(service, 0);
        skip(TTL_SECONDS);
        refusesToReap(call);
        assertState(service, call, I.SandboxState.Live);
        skip(1 + uint256(later));
        assertState(service, call, I.SandboxState.Expired);
        blueprint.reap(service, call);
        assertEq(usedBy(assignedTo(service, call)), 0);
    }

    function testFuzz_whatWasNeverCreatedOrIsGoneIsNotReaped(uint64 unknown) public {
        uint64 failed = submitCreate(service, TTL_BLOCKS);
        answer(service, failed, OUTCOME_CALLER, 0);
        uint64 deleted = liveSandbox(service, TTL_BLOCKS);
        answer(service, submitDelete(service, deleted), OUTCOME_DONE, 0);
        vm.roll(block.number + TTL_BLOCKS + 1);
        refusesToReap(failed);
        refusesToReap(deleted);
        if (unknown > deleted) refusesToReap(unknown);
    }

    /// Nor is what nobody waits for any more given to another operator.
    function testFuzz_aReceiptAfterReapingCompletesButHoldsNothing(uint8 outcome) public {
        outcome = uint8(bound(outcome, 0, 2));
        uint64 call = submitCreate(service, TTL_BLOCKS);
        vm.roll(block.number + TTL_BLOCKS + 1);
        blueprint.reap(service, call);
        answer(service, call, outcome, outcome == OUTCOME_DONE ? 1 : 0);
        assertTrue(core.isCompleted(service, call));
        for (uint256 i; i < 3; ++i) {
            assertEq(usedBy(operatorAt(i)), 0);
        }
        I.SandboxState state = stateOf(service, call);
        if (outcome == OUTCOME_DONE) assertTrue(state == I.SandboxState.Deleted);
        else assertTrue(state == I.SandboxState.Failed);
    }

    function test_aDeleteUnderWayAtReapingFreesNothingMore() public {
        uint64 call = liveSandbox(service, TTL_BLOCKS);
        address holder = assignedTo(service, call);
        uint64 deletion = submitDelete(service, call);
        vm.roll(block.number + TTL_BLOCKS + 1);
        blueprint.reap(service, call);
        answer(service, deletion, OUTCOME_DONE, 0);
        assertEq(usedBy(holder), 0);
    }

    // ─── Termination ────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_terminationFreesTheSlotsOfItsServiceAndOfNoOther(uint8 mine, uint8 theirs) public {
        address[] memory members = blueprint.serviceOperators(service);
        uint64 other = core.openService(customer, members, "", 0);
        uint256 otherCount = bound(theirs, 0, 4);
        for (uint256 i; i < otherCount; ++i) {
            liveSandbox(other, 0);
        }
        uint64 last;
        for (uint256 i; i < bound(mine, 1, 5); ++i) {
            last = i % 2 == 0 ? liveSandbox(service, 0) : submitCreate(service, TTL_BLOCKS);
        }

        core.terminate(service);

        uint256 used;
        for (uint256 i; i < members.length; ++i) {
            used += usedBy(members[i]);
            assertTrue(blueprint.canLeave(service, members[i]));
        }
        assertEq(used, otherCount);
        assertEq(blueprint.eligibleCount(), eligibleAmong(members));
        assertState(service, last, I.SandboxState.Deleted);
        vm.roll(block.number + TTL_BLOCKS + 1);
        refusesToReap(last);
    }

    function testFuzz_aServiceThatHasEndedTakesNoCalls(uint8 job, bytes memory inputs) public {
        core.terminate(service);
        vm.expectRevert(FakeCore.ServiceNotActive.selector);
        submitAs(customer, service, job, inputs);
    }

    function test_aTerminationThatIsToldTwiceFreesOnce() public {
        address holder = assignedTo(service, liveSandbox(service, 0));
        core.terminate(service);
        core.terminate(service);
        assertEq(usedBy(holder), 0);
    }

    function eligibleAmong(address[] memory operators) private view returns (uint256 count) {
        for (uint256 i; i < operators.length; ++i) {
            if (blueprint.operatorView(operators[i]).eligible) ++count;
        }
    }

    function refusesToReap(uint64 call) private {
        vm.expectRevert(abi.encodeWithSelector(I.NotReapable.selector, service, call));
        blueprint.reap(service, call);
    }
}
