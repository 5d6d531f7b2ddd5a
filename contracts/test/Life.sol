// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {JOB_EXEC, JOB_SANDBOX_CREATE, JOB_SANDBOX_DELETE, JOB_WORKFLOW_CREATE} from "../src/JobTypes.sol";
import {FakeCore} from "./FakeCore.sol";
import {Fixture, IBlueprint} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// Does anything that anybody may do, in any order, and remembers what it did. The core's refusals and the blueprint's are part of life.
contract Life is Fixture {
    uint256 public constant OPERATORS = 5;
    uint32 private constant BATCH_MAX = 9;

    struct Place {
        uint64 service;
        uint64 call;
        uint8 slots; // of a create
    }

    uint64[] public services;
    Place[] private _calls;
    Place[] private _creates;
    Place[] private _workflows;
    mapping(uint64 service => mapping(uint64 call => uint256)) private _gone; // slots seen deleted or failed
    mapping(uint64 service => mapping(uint64 call => uint256)) private _had; // operators that had the call

    /// What must never happen, said at once if it does.
    string public fault;

    function open(FakeCore core_, IBlueprint blueprint_) external {
        (core, blueprint) = (core_, blueprint_);
        registerMany(OPERATORS);
        openService(4, 0);
    }

    // ─── Services and members ───────────────────────────────────────────────────────────────────────────────────────

    function openService(uint256 count, uint32 ttl) public {
        address[] memory members = new address[](bound(count, 1, OPERATORS));
        for (uint256 i; i < members.length; ++i) {
            members[i] = operatorAt(i);
        }
        uint64 seconds_ = ttl % 4 == 0 ? 0 : uint64(bound(ttl, 3600, 10_000));
        try core.openService(customer, members, "", seconds_) returns (uint64 id) {
            services.push(id);
        } catch {}
    }

    function terminate(uint256 service) external {
        if (services.length >= 3) core.terminate(any(service));
    }

    function join(uint256 service, uint256 which) external {
        try core.join(any(service), operator_(which)) {} catch {}
    }

    function leave(uint256 service, uint256 which, bool isForced) external {
        if (isForced) {
            try core.forceOut(any(service), operator_(which)) {} catch {}
        } else {
            try core.leave(any(service), operator_(which)) {} catch {}
        }
    }

    function thinkOfLeaving(uint256 service, uint256 which, bool isCancelled) external {
        uint64 id = any(service);
        if (!core.isServiceOperator(id, operator_(which))) return;
        if (isCancelled) core.cancelExit(id, operator_(which));
        else core.scheduleExit(id, operator_(which));
    }

    // ─── Operators ──────────────────────────────────────────────────────────────────────────────────────────────────

    function changeProfile(uint256 which, uint8 capacity, uint8 price) external {
        vm.prank(operator_(which));
        try blueprint.setOperatorProfile(capacity % 8, price, 0, "") {} catch {}
    }

    function pause(uint256 which, uint8 choice) external {
        vm.prank(operator_(which));
        try blueprint.setPaused(choice % 3 == 0) {} catch {}
    }

    function comeOrGo(uint256 which) external {
        address operator = operator_(which);
        if (blueprint.operatorView(operator).registered) core.unregister(operator);
        else register(operator, 4);
    }

    // ─── Calls ──────────────────────────────────────────────────────────────────────────────────────────────────────

    function create(uint256 service, uint8 ttlBlocks, uint8 quoted) external {
        if (quoted % 4 == 0) submit(any(service), JOB_SANDBOX_CREATE, Inputs.create(ttlBlocks), quoted / 4, 1);
        else submit(any(service), JOB_SANDBOX_CREATE, Inputs.create(ttlBlocks), type(uint256).max, 1);
    }

    function createBatch(uint256 service, uint8 count, uint8 ttlBlocks, uint8 distribution) external {
        uint32 slots = uint32(bound(count, 1, BATCH_MAX));
        string memory word = ["round_robin", "cheapest", "random"][distribution % 3];
        bytes memory inputs = Inputs.batchCreate(slots, ttlBlocks, new address[](0), word);
        submit(any(service), 20, inputs, type(uint256).max, uint8(slots));
    }

    function createWorkflow(uint256 service, uint8 quoted) external {
        uint256 by = quoted % 4 == 0 ? quoted / 4 : type(uint256).max;
        submit(any(service), JOB_WORKFLOW_CREATE, Inputs.workflow("cron", "0 * * * * *"), by, 0);
    }

    function callBatch(uint256 service, uint8 which) external {
        uint8 job = Inputs.plainBatches()[which % 3];
        submit(any(service), job, Inputs.plainBatch(job, 2, "all"), type(uint256).max, 0);
    }

    function callOnSandbox(uint256 which, uint8 slot, bool isDelete) external {
        if (_creates.length == 0) return;
        Place memory target = aLiveCreate(which);
        uint8 job = isDelete ? JOB_SANDBOX_DELETE : JOB_EXEC;
        string memory id = idOf(target.service, target.call, slot % target.slots);
        submit(target.service, job, Inputs.onSandbox(job, id), type(uint256).max, 0);
    }

    function callOnWorkflow(uint256 which, bool isCancel) external {
        if (_workflows.length == 0) return;
        Place memory target = _workflows[which % _workflows.length];
        submit(target.service, isCancel ? 32 : 31, Inputs.control(target.call), type(uint256).max, 0);
    }

    function switchWorkflow(uint256 which, bool isPause) external {
        if (_workflows.length == 0) return;
        Place memory target = _workflows[which % _workflows.length];
        vm.prank(customer);
        if (isPause) {
            try blueprint.pauseWorkflow(target.service, target.call) {} catch {}
        } else {
            try blueprint.resumeWorkflow(target.service, target.call) {} catch {}
        }
    }

    /// `slots` is zero for what creates none; a quote is by an operator below the largest number.
    function submit(uint64 service, uint8 job, bytes memory inputs, uint256 by, uint8 slots) private {
        address[] memory quoted = by == type(uint256).max ? new address[](0) : only(operator_(by));
        vm.prank(customer);
        try core.submitJobFromQuotes(service, job, inputs, quoted) returns (uint64 call) {
            Place memory place = Place(service, call, slots);
            _calls.push(place);
            if (slots != 0) _creates.push(place);
            if (job == JOB_WORKFLOW_CREATE) _workflows.push(place);
            noteAssigned(place, blueprint.assignment(service, call), 0);
        } catch {}
    }

    // ─── Answers ────────────────────────────────────────────────────────────────────────────────────────────────────

    function answerOne(uint256 which, uint8 outcome, uint8 by, uint256 detail) public {
        if (_calls.length == 0) return;
        Place memory place = anOpenCall(which);
        I.Assignment memory before = blueprint.assignment(place.service, place.call);
        bool wasCompleted = core.isCompleted(place.service, place.call);
        address operator = by % 4 == 0 ? operator_(by / 4) : whoIsDue(place, before, by);
        vm.prank(operator);
        try core.submitResult(place.service, place.call, outputOf(place, before, operator, outcome, detail)) {} catch {}
        I.Assignment memory now_ = blueprint.assignment(place.service, place.call);
        bool completes = core.isCompleted(place.service, place.call) && !wasCompleted;
        if (completes && !isDue(place, before, operator)) fault = "completed by one that was not assigned";
        if (before.answered && !now_.answered) fault = "an answer was taken back";
        if (now_.operator != before.operator) noteAssigned(place, now_, before.epoch + 1);
    }

    /// Of one operator, in one transaction: the first may well be due, which must not carry the others.
    function answerMany(uint256 service, uint8 by, uint8 outcome, uint256 which) external {
        uint64 id = any(service);
        address operator = operator_(by);
        uint64[] memory callIds = new uint64[](3);
        bytes[] memory outputs = new bytes[](3);
        I.Assignment[] memory before = new I.Assignment[](3);
        uint256 count;
        for (uint256 i; i < _calls.length && count < 3; ++i) {
            Place memory place = _calls[(i + which % 64) % _calls.length];
            if (place.service != id || core.isCompleted(id, place.call)) continue;
            if (count != 0 && callIds[0] == place.call) break;
            before[count] = blueprint.assignment(id, place.call);
            outputs[count] = outputOf(place, before[count], operator, outcome >> (2 * count), type(uint256).max);
            callIds[count++] = place.call;
        }
        assembly ("memory-safe") {
            mstore(callIds, count)
            mstore(outputs, count)
        }
        vm.prank(operator);
        try core.submitResults(id, callIds, outputs) {} catch {}
        for (uint256 i; i < count; ++i) {
            Place memory place = Place(id, callIds[i], 0);
            bool completes = core.isCompleted(id, callIds[i]);
            if (completes && !isDue(place, before[i], operator)) fault = "carried by another result";
            I.Assignment memory now_ = blueprint.assignment(id, callIds[i]);
            if (now_.operator != before[i].operator) noteAssigned(place, now_, before[i].epoch + 1);
        }
    }

    function whoIsDue(Place memory place, I.Assignment memory due, uint8 by) private view returns (address) {
        if (due.parts == 0) return due.operator;
        return blueprint.parts(place.service, place.call)[by / 4 % due.parts].operator;
    }

    function isDue(Place memory place, I.Assignment memory due, address operator) private view returns (bool) {
        if (due.parts == 0) return due.operator == operator;
        I.Part[] memory parts = blueprint.parts(place.service, place.call);
        for (uint256 i; i < parts.length; ++i) {
            if (parts[i].operator == operator) return due.answers + 1 == due.parts;
        }
        return false;
    }

    /// Mostly as it should be.
    function outputOf(Place memory place, I.Assignment memory due, address operator, uint8 outcome, uint256 detail)
        private
        view
        returns (bytes memory)
    {
        if (outcome % 16 == 15) return "no receipt";
        if (outcome % 16 == 14) return receipt(0, detail);
        outcome = outcome % 16 < 8 ? 0 : 1 + outcome % 2;
        if (outcome != 0 || (due.job != 0 && due.job != 20)) return receipt(outcome, 0);
        if (due.job == 0) return receipt(0, 1);
        I.Part[] memory parts = blueprint.parts(place.service, place.call);
        for (uint256 i; i < parts.length; ++i) {
            if (parts[i].operator != operator) continue;
            uint256 share = ((1 << uint256(parts[i].slots)) - 1) << parts[i].firstSlot;
            return receipt(0, detail & share == 0 ? share : detail & share);
        }
        return receipt(0, detail);
    }

    // ─── Anybody ────────────────────────────────────────────────────────────────────────────────────────────────────

    function reapOne(uint256 which) external {
        if (_creates.length == 0) return;
        Place memory place = _creates[which % _creates.length];
        try blueprint.reap(place.service, place.call) {} catch {}
    }

    function reassignOne(uint256 which) external {
        if (_calls.length == 0) return;
        Place memory place = which % 4 == 0 ? _calls[which % _calls.length] : anOpenCall(which);
        I.Assignment memory before = blueprint.assignment(place.service, place.call);
        bool serves = core.isServiceOperator(place.service, before.operator);
        try blueprint.reassign(place.service, place.call) {
            if (!before.answered && block.number <= before.deadlineBlock) fault = "reassigned before its deadline";
            if (before.answered && serves) fault = "taken from an operator that serves";
            noteAssigned(place, blueprint.assignment(place.service, place.call), before.epoch + 1);
        } catch {}
    }

    function wait(uint16 blocks) external {
        vm.roll(block.number + blocks % 400);
        vm.warp(block.timestamp + uint256(blocks % 400) * 2);
    }

    // ─── What it remembers ──────────────────────────────────────────────────────────────────────────────────────────

    function noteAssigned(Place memory place, I.Assignment memory now_, uint16 epoch) private {
        if (now_.parts != 0) return;
        uint256 bit = 1 << (uint160(now_.operator) - uint160(operatorAt(0)));
        if (_had[place.service][place.call] & bit != 0) fault = "given twice to one operator";
        if (now_.epoch != epoch) fault = "an epoch was left out";
        if (!core.isServiceOperator(place.service, now_.operator) && (now_.job == 0 || now_.job == 30)) {
            fault = "given to one that does not serve";
        }
        _had[place.service][place.call] |= bit;
    }

    /// Notes which slots are deleted or failed; false if one of those noted before has come back.
    function noteGone() external returns (bool) {
        for (uint256 i; i < _creates.length; ++i) {
            Place memory place = _creates[i];
            uint256 gone;
            for (uint8 slot; slot < place.slots; ++slot) {
                I.SandboxState state = blueprint.sandbox(place.service, place.call, slot).state;
                if (state == I.SandboxState.Deleted || state == I.SandboxState.Failed) gone |= 1 << slot;
            }
            if (_gone[place.service][place.call] & ~gone != 0) return false;
            _gone[place.service][place.call] = gone;
        }
        return true;
    }

    function allServices() external view returns (uint64[] memory) {
        return services;
    }

    function calls() external view returns (Place[] memory) {
        return _calls;
    }

    function creates() external view returns (Place[] memory) {
        return _creates;
    }

    function workflows() external view returns (Place[] memory) {
        return _workflows;
    }

    /// From there on the first that is, or else that one.
    function anOpenCall(uint256 which) private view returns (Place memory place) {
        for (uint256 i; i < _calls.length; ++i) {
            place = _calls[(which % _calls.length + i) % _calls.length];
            if (!core.isCompleted(place.service, place.call)) return place;
        }
    }

    function aLiveCreate(uint256 which) private view returns (Place memory place) {
        for (uint256 i; i < _creates.length; ++i) {
            place = _creates[(which % _creates.length + i) % _creates.length];
            if (stateOf(place.service, place.call) == I.SandboxState.Live) return place;
        }
    }

    function any(uint256 service) private view returns (uint64) {
        return services[service % services.length];
    }

    function operator_(uint256 which) private pure returns (address) {
        return operatorAt(which % OPERATORS);
    }
}
