// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {Fixture} from "./Fixture.sol";
import {Life} from "./Life.sol";

/// What holds whatever happened.
contract LifeInvariant is Fixture {
    Life private life;

    function setUp() public override {
        super.setUp();
        life = new Life();
        life.open(core, blueprint);
        targetContract(address(life));
        bytes4[] memory actions = new bytes4[](20);
        (actions[0], actions[1]) = (Life.openService.selector, Life.terminate.selector);
        (actions[2], actions[3]) = (Life.join.selector, Life.leave.selector);
        (actions[4], actions[5]) = (Life.thinkOfLeaving.selector, Life.changeProfile.selector);
        (actions[6], actions[7]) = (Life.pause.selector, Life.comeOrGo.selector);
        (actions[8], actions[9]) = (Life.create.selector, Life.createBatch.selector);
        (actions[10], actions[11]) = (Life.createWorkflow.selector, Life.callBatch.selector);
        (actions[12], actions[13]) = (Life.callOnSandbox.selector, Life.callOnWorkflow.selector);
        (actions[14], actions[15]) = (Life.switchWorkflow.selector, Life.answerOne.selector);
        (actions[16], actions[17]) = (Life.answerMany.selector, Life.reapOne.selector);
        (actions[18], actions[19]) = (Life.reassignOne.selector, Life.wait.selector);
        targetSelector(FuzzSelector({addr: address(life), selectors: actions}));
    }

    // ─── Slots ──────────────────────────────────────────────────────────────────────────────────────────────────────

    function invariant_usedSlotsAreThoseOfSandboxesThatStand() public view {
        uint32[] memory standing = new uint32[](life.OPERATORS());
        Life.Place[] memory creates = life.creates();
        for (uint256 i; i < creates.length; ++i) {
            for (uint8 slot; slot < creates[i].slots; ++slot) {
                if (stands(creates[i], slot)) ++standing[indexOf(holderOf(creates[i], slot))];
            }
        }
        for (uint256 i; i < standing.length; ++i) {
            assertEq(usedBy(operatorAt(i)), standing[i]);
        }
    }

    function invariant_whatAnOperatorUsesIsWhatItHoldsOfItsServices() public view {
        uint32[] memory held = new uint32[](life.OPERATORS());
        uint64[] memory services = life.allServices();
        for (uint256 i; i < services.length; ++i) {
            I.ServiceView memory seen = blueprint.serviceView(services[i]);
            uint32 sum;
            for (uint256 j; j < seen.operators.length; ++j) {
                held[indexOf(seen.operators[j])] += seen.held[j];
                sum += seen.held[j];
            }
            assertEq(seen.sandboxes, sum);
        }
        for (uint256 i; i < held.length; ++i) {
            assertEq(usedBy(operatorAt(i)), held[i]);
        }
    }

    function invariant_whoHoldsSandboxesDoesNotLeaveAndWhoHoldsNoneMay() public view {
        uint64[] memory services = life.allServices();
        Life.Place[] memory creates = life.creates();
        for (uint256 i; i < services.length; ++i) {
            uint256 holders;
            for (uint256 j; j < creates.length; ++j) {
                for (uint8 slot; slot < creates[j].slots && creates[j].service == services[i]; ++slot) {
                    if (stands(creates[j], slot)) holders |= 1 << indexOf(holderOf(creates[j], slot));
                }
            }
            for (uint256 j; j < life.OPERATORS(); ++j) {
                assertEq(blueprint.canLeave(services[i], operatorAt(j)), holders >> j & 1 == 0);
            }
        }
    }

    function invariant_theEligibleAreTheRegisteredWithRoomThatAreNotPaused() public view {
        uint256 count;
        for (uint256 i; i < life.OPERATORS(); ++i) {
            I.OperatorView memory seen = blueprint.operatorView(operatorAt(i));
            assertEq(seen.eligible, seen.registered && !seen.paused && seen.used < seen.capacity);
            if (seen.eligible) ++count;
        }
        assertEq(blueprint.eligibleCount(), count);
    }

    function invariant_aSandboxThatIsGoneNeverReturns() public {
        assertTrue(life.noteGone());
    }

    // ─── Calls ──────────────────────────────────────────────────────────────────────────────────────────────────────

    function invariant_aCallIsCompletedExactlyIfItIsAnswered() public view {
        Life.Place[] memory calls = life.calls();
        for (uint256 i; i < calls.length; ++i) {
            I.Assignment memory seen = blueprint.assignment(calls[i].service, calls[i].call);
            assertEq(core.isCompleted(calls[i].service, calls[i].call), seen.answered);
            if (seen.parts != 0) assertEq(seen.answered, seen.answers == seen.parts);
        }
    }

    function invariant_partsFollowEachOtherAndNameNobodyTwice() public view {
        Life.Place[] memory calls = life.calls();
        for (uint256 i; i < calls.length; ++i) {
            I.Part[] memory parts = blueprint.parts(calls[i].service, calls[i].call);
            uint256 slots;
            uint256 named;
            for (uint256 j; j < parts.length; ++j) {
                uint256 bit = 1 << indexOf(parts[j].operator);
                assertEq(named & bit, 0);
                if (calls[i].slots != 0) assertEq(parts[j].firstSlot, slots);
                (named, slots) = (named | bit, slots + parts[j].slots);
            }
            if (parts.length != 0) assertEq(slots, calls[i].slots);
        }
    }

    /// Completed by one that was not assigned, given twice to one operator, and what else is seen while it happens.
    function invariant_nothingHappensThatMustNot() public view {
        assertEq(life.fault(), "");
    }

    // ─── Workflows ──────────────────────────────────────────────────────────────────────────────────────────────────

    function invariant_anActiveWorkflowIsListedOnceAndAtItsOperator() public view {
        Life.Place[] memory workflows = life.workflows();
        uint256 active;
        for (uint256 i; i < workflows.length; ++i) {
            (I.WorkflowView memory row,) = blueprint.getWorkflow(workflows[i].service, workflows[i].call);
            assertEq(row.operator, assignedTo(workflows[i].service, workflows[i].call));
            bool fires = row.status == I.WorkflowStatus.Active && blueprint.serviceView(workflows[i].service).active;
            if (fires) ++active;
            assertEq(timesListed(row.operator, workflows[i]), fires ? 1 : 0);
        }
        uint256 listed;
        for (uint256 i; i < life.OPERATORS(); ++i) {
            (I.WorkflowView[] memory page,) = blueprint.activeWorkflows(operatorAt(i), 0, 100);
            listed += page.length;
        }
        assertEq(listed, active);
    }

    function timesListed(address operator, Life.Place memory workflow) private view returns (uint256 times) {
        (I.WorkflowView[] memory page,) = blueprint.activeWorkflows(operator, 0, 100);
        for (uint256 i; i < page.length; ++i) {
            if (page[i].serviceId == workflow.service && page[i].workflowId == workflow.call) ++times;
        }
    }

    // ─── Words ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Whether the slot takes up its operator's capacity: of a single create from the assignment on, of a batch from the receipt on.
    function stands(Life.Place memory place, uint8 slot) private view returns (bool) {
        I.SandboxState state = blueprint.sandbox(place.service, place.call, slot).state;
        I.Assignment memory call = blueprint.assignment(place.service, place.call);
        bool isMade = call.parts == 0 || call.detail >> slot & 1 == 1;
        return isMade
            && (state == I.SandboxState.Requested || state == I.SandboxState.Live || state == I.SandboxState.Expired);
    }

    function holderOf(Life.Place memory place, uint8 slot) private view returns (address) {
        return blueprint.sandbox(place.service, place.call, slot).operator;
    }

    function indexOf(address operator) private pure returns (uint256) {
        return uint160(operator) - uint160(operatorAt(0));
    }
}
