// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "forge-std/Test.sol";

import {AgentSandboxBlueprint} from "../src/AgentSandboxBlueprint.sol";
import {IAgentSandboxBlueprint} from "../src/IAgentSandboxBlueprint.sol";
import {FakeCore} from "./FakeCore.sol";
import {Fixture} from "./Fixture.sol";

/// Does anything that anybody may do, in any order, and remembers what it did.
contract Life is Fixture {
    uint256 public constant OPERATORS = 4;

    struct Place {
        uint64 service;
        uint64 call;
    }

    uint64[] public services;
    Place[] private _creates;
    Place[] private _pending;
    mapping(uint64 => mapping(uint64 => bool)) public wasGone;

    function openCore(FakeCore core_, AgentSandboxBlueprint blueprint_) external {
        (core, blueprint) = (core_, blueprint_);
    }

    function openService(uint256 count, uint32 ttl) external {
        count = bound(count, 1, OPERATORS);
        address[] memory members = new address[](count);
        for (uint256 i; i < count; ++i) {
            members[i] = operatorAt(i);
            if (!blueprint.operatorView(members[i]).eligible) return;
        }
        services.push(core.openService(customer, members, "", ttl % 4 == 0 ? 0 : uint64(bound(ttl, 3600, 10_000))));
    }

    function create(uint256 service, uint8 ttlBlocks) external {
        if (services.length == 0) return;
        uint64 id = services[service % services.length];
        vm.prank(customer);
        try core.submitJob(id, 0, createInputs(ttlBlocks)) returns (uint64 call) {
            _creates.push(Place(id, call));
            _pending.push(Place(id, call));
        } catch {}
    }

    function remove(uint256 which) external {
        if (_creates.length == 0) return;
        Place memory target = _creates[which % _creates.length];
        vm.prank(customer);
        try core.submitJob(target.service, 3, deleteInputs(idOf(target.service, target.call, 0))) returns (
            uint64 call
        ) {
            _pending.push(Place(target.service, call));
        } catch {}
    }

    function answerOne(uint256 which, uint8 outcome, uint8 by) external {
        if (_pending.length == 0) return;
        uint256 index = which % _pending.length;
        Place memory place = _pending[index];
        IAgentSandboxBlueprint.Assignment memory due = blueprint.assignment(place.service, place.call);
        address operator = by % 4 == 0 ? operatorAt(by % OPERATORS) : due.operator;
        outcome = outcome % 3;
        vm.prank(operator);
        try core.submitResult(place.service, place.call, receipt(outcome, due.job == 0 && outcome == 0 ? 1 : 0)) {
            if (core.isCompleted(place.service, place.call)) {
                _pending[index] = _pending[_pending.length - 1];
                _pending.pop();
            }
        } catch {}
    }

    function reapOne(uint256 which) external {
        if (_creates.length == 0) return;
        Place memory place = _creates[which % _creates.length];
        try blueprint.reap(place.service, place.call) {} catch {}
    }

    function terminate(uint256 service) external {
        if (services.length < 3) return;
        core.terminate(services[service % services.length]);
    }

    function changeCapacity(uint256 which, uint8 capacity) external {
        address operator = operatorAt(which % OPERATORS);
        if (!blueprint.operatorView(operator).registered) return;
        vm.prank(operator);
        blueprint.setOperatorProfile(capacity % 8, 0, 0, "");
    }

    function comeOrGo(uint256 which) external {
        address operator = operatorAt(which % OPERATORS);
        if (blueprint.operatorView(operator).registered) core.unregister(operator);
        else register(operator, 4);
    }

    function wait(uint8 blocks) external {
        vm.roll(block.number + blocks);
        vm.warp(block.timestamp + uint256(blocks) * 2);
    }

    // ─── What it remembers ──────────────────────────────────────────────────────────────────────────────────────────

    function creates() external view returns (Place[] memory) {
        return _creates;
    }

    /// Notes which sandboxes are gone, deleted or failed; false if one of those noted before has come back.
    function noteGone() external returns (bool) {
        for (uint256 i; i < _creates.length; ++i) {
            Place memory place = _creates[i];
            IAgentSandboxBlueprint.SandboxState state = stateOf(place.service, place.call);
            bool gone = state == IAgentSandboxBlueprint.SandboxState.Deleted
                || state == IAgentSandboxBlueprint.SandboxState.Failed;
            if (wasGone[place.service][place.call] && !gone) return false;
            wasGone[place.service][place.call] = gone;
        }
        return true;
    }
}

contract SlotsInvariant is Fixture {
    Life private life;

    function setUp() public override {
        super.setUp();
        life = new Life();
        life.openCore(core, blueprint);
        registerMany(life.OPERATORS());
        life.openService(3, 0);
        targetContract(address(life));
        bytes4[] memory actions = new bytes4[](9);
        actions[0] = Life.openService.selector;
        actions[1] = Life.create.selector;
        actions[2] = Life.remove.selector;
        actions[3] = Life.answerOne.selector;
        actions[4] = Life.reapOne.selector;
        actions[5] = Life.terminate.selector;
        actions[6] = Life.changeCapacity.selector;
        actions[7] = Life.comeOrGo.selector;
        actions[8] = Life.wait.selector;
        targetSelector(FuzzSelector({addr: address(life), selectors: actions}));
    }

    function invariant_usedSlotsAreThoseOfSandboxesThatStand() public view {
        uint32[] memory standing = new uint32[](life.OPERATORS());
        Life.Place[] memory creates = life.creates();
        for (uint256 i; i < creates.length; ++i) {
            IAgentSandboxBlueprint.SandboxView memory seen = blueprint.sandbox(creates[i].service, creates[i].call, 0);
            if (takesASlot(seen.state)) ++standing[uint160(seen.operator) - uint160(operatorAt(0))];
        }
        for (uint256 i; i < standing.length; ++i) {
            assertEq(usedBy(operatorAt(i)), standing[i]);
        }
    }

    function invariant_theEligibleAreTheRegisteredWithRoom() public view {
        uint256 count;
        for (uint256 i; i < life.OPERATORS(); ++i) {
            IAgentSandboxBlueprint.OperatorView memory seen = blueprint.operatorView(operatorAt(i));
            assertEq(seen.eligible, seen.registered && seen.used < seen.capacity);
            if (seen.eligible) ++count;
        }
        assertEq(blueprint.eligibleCount(), count);
    }

    function invariant_nobodyLeavesAServiceWithSandboxesBehind() public view {
        Life.Place[] memory creates = life.creates();
        for (uint256 i; i < creates.length; ++i) {
            IAgentSandboxBlueprint.SandboxView memory seen = blueprint.sandbox(creates[i].service, creates[i].call, 0);
            if (takesASlot(seen.state)) assertFalse(blueprint.canLeave(creates[i].service, seen.operator));
        }
    }

    function invariant_aSandboxThatIsGoneNeverReturns() public {
        assertTrue(life.noteGone());
    }

    function takesASlot(IAgentSandboxBlueprint.SandboxState state) private pure returns (bool) {
        return state == IAgentSandboxBlueprint.SandboxState.Requested
            || state == IAgentSandboxBlueprint.SandboxState.Live || state == IAgentSandboxBlueprint.SandboxState.Expired;
    }
}
