// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {LibBit} from "solady/utils/LibBit.sol";

import {Batches} from "./Batches.sol";
import {BlueprintManagerBase} from "./BlueprintManagerBase.sol";
import {Calls} from "./Calls.sol";
import {CoreBound} from "./CoreBound.sol";
import {IAgentSandboxBlueprint as I} from "./IAgentSandboxBlueprint.sol";
import {ITangleCore, PRICING_EVENT_DRIVEN} from "./ITangleCore.sol";
import {
    JOB_BATCH_COLLECT,
    JOB_BATCH_CREATE,
    JOB_BATCH_EXEC,
    JOB_BATCH_TASK,
    JOB_COUNT,
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
    OperatorProfile,
    SelectionRequest
} from "./JobTypes.sol";
import {JobTable} from "./JobTable.sol";
import {OPERATORS_MAX, Operators} from "./Operators.sol";
import {Requests} from "./Requests.sol";
import {Selection} from "./Selection.sol";
import {State} from "./State.sol";
import {Workflows} from "./Workflows.sol";

/// What the blueprint does off a call's road: membership, services, profiles, workflows' switches, reaping, views. The prose is in the interface.
///
/// Code only: `AgentSandboxBlueprint` runs it on its own storage. Called at its own address it finds nothing.
contract AgentSandboxAnnex is BlueprintManagerBase, State {
    using Batches for Batches.Batch;
    using Calls for Calls.Slot;
    using Operators for Operators.Registry;
    using Workflows for Workflows.Workflow;

    // ─── Constructor and limits ─────────────────────────────────────────────────────────────────────────────────────

    uint64 public immutable deployedBlock;

    uint256 public constant SERVICE_OPERATORS_MAX = OPERATORS_MAX;
    uint256 public constant INPUT_BYTES_MAX = INPUTS_MAX;
    uint256 public constant BATCH_SANDBOXES_MAX = SANDBOXES_MAX;
    uint256 public constant BATCH_ENDPOINTS_MAX = ENDPOINTS_MAX;
    uint256 public constant TRIGGER_CONFIG_BYTES_MAX = Workflows.TRIGGER_CONFIG_BYTES_MAX;
    uint256 public constant WORKFLOW_STORED_BYTES_MAX = Workflows.STORED_BYTES_MAX;
    uint256 public constant PAGE_MAX = ENTRIES_MAX;

    constructor(address core, address creator, uint64 blockTimeMs) CoreBound(core, creator) State(blockTimeMs) {
        deployedBlock = uint64(block.number);
    }

    // ─── Hooks ───────────────────────────────────────────────────────────────────────────────────────────────────────

    function onRegister(address operator, bytes calldata registrationInputs) external onlyCore {
        _operators.register(operator, Requests.profile(registrationInputs));
    }

    function onUnregister(address operator) external onlyCore {
        _operators.unregister(operator);
    }

    function onOperatorJoined(uint64 serviceId, address operator, uint16) external onlyCore {
        _operators.setLeaving(_services[serviceId].tenancy, operator, false);
    }

    function onExitScheduled(uint64 serviceId, address operator, uint64) external onlyCore {
        _operators.setLeaving(_services[serviceId].tenancy, operator, true);
    }

    function onExitCanceled(uint64 serviceId, address operator) external onlyCore {
        _operators.setLeaving(_services[serviceId].tenancy, operator, false);
    }

    /// Who was made to leave could not be kept by `canLeave`: what it holds is lost, and said to be.
    function onOperatorLeft(uint64 serviceId, address operator) external onlyCore {
        Service storage service = _services[serviceId];
        _operators.setLeaving(service.tenancy, operator, false);
        if (service.ended) return;
        uint256 lost = _operators.release(service.tenancy, operator, type(uint256).max);
        if (lost == 0) return;
        _noteLeft(serviceId, operator);
        // forge-lint: disable-next-line(unsafe-typecast)
        emit I.SandboxesLost(serviceId, operator, uint32(lost));
    }

    function canJoin(uint64 serviceId, address operator) external view returns (bool) {
        if (_leftAt[serviceId][operator] >= block.number) return false;
        return _operators.load(operator).place() != 0 && CORE.getServiceOperators(serviceId).length < OPERATORS_MAX;
    }

    /// Nobody leaves sandboxes behind.
    function canLeave(uint64 serviceId, address operator) external view returns (bool) {
        Service storage service = _services[serviceId];
        return service.ended || _operators.heldBy(service.tenancy, operator) == 0;
    }

    // ─── Hooks: services ───────────────────────────────────────────────────────────────────────────────────────────────────

    function onRequest(
        uint64 requestId,
        address,
        address[] calldata listed,
        bytes calldata requestInputs,
        uint64 ttl,
        address paymentAsset,
        uint256 paymentAmount
    ) external onlyCore {
        if (listed.length > OPERATORS_MAX) revert I.TooManyOperators(listed.length, OPERATORS_MAX);
        uint256 floor = _floor(listed.length, ttl);
        if (floor != 0 && (paymentAmount < floor || paymentAsset != _floorAsset)) {
            revert I.BelowFloor(paymentAsset, paymentAmount, _floorAsset, floor);
        }

        bytes32 seed = 0;
        bool isDrawn = false;
        if (requestInputs.length != 0) {
            SelectionRequest memory selection = Requests.selection(requestInputs);
            if (selection.operatorCount != listed.length) {
                revert I.OperatorCountMismatch(selection.operatorCount, listed.length);
            }
            (seed, isDrawn) = (selection.seed, selection.enforceDeterministic);
        }
        if (isDrawn) _requireDrawn(listed, seed);
        else _requireEligible(listed);
        // Written also when zero: services made from quotes all come with request id 0.
        _requestSeeds[requestId] = seed;
    }

    /// That they are eligible follows: only such are drawn.
    function _requireDrawn(address[] calldata listed, bytes32 seed) private view {
        uint256 eligible = _operators.eligibleCount;
        if (listed.length > eligible) revert I.NotEnoughOperators(listed.length, eligible);
        uint256[] memory drawn = Selection.indexes(eligible, listed.length, seed);
        for (uint256 i; i < drawn.length; ++i) {
            // An operator knows its place in the set, which spares reading the set itself.
            if (_operators.load(listed[i]).place() != drawn[i] + 1) {
                address expected = _operators.accounts[_operators.eligibleAt(drawn[i])];
                revert I.SelectionMismatch(i, expected, listed[i]);
            }
        }
    }

    function _requireEligible(address[] calldata listed) private view {
        for (uint256 i; i < listed.length; ++i) {
            if (_operators.load(listed[i]).place() == 0) revert I.OperatorNotEligible(listed[i]);
        }
    }

    function onServiceInitialized(uint64, uint64 requestId, uint64 serviceId, address, address[] calldata, uint64)
        external
        onlyCore
    {
        _openService(serviceId, requestId);
    }

    // ─── Actions: operators ─────────────────────────────────────────────────────────────────────────────────────────

    modifier onlyRegistered() {
        if (!_operators.load(msg.sender).registered()) revert I.NotRegistered(msg.sender);
        _;
    }

    function setOperatorProfile(uint32 capacity, uint256 pricePerHour, bytes32 sealKey, string calldata apiUrl)
        external
        onlyRegistered
    {
        _operators.setProfile(msg.sender, OperatorProfile(capacity, pricePerHour, sealKey, apiUrl));
    }

    function setPaused(bool paused) external onlyRegistered {
        _operators.setPaused(msg.sender, paused);
    }

    function recordFirings(I.Firing[] calldata firings) external {
        if (firings.length > ENTRIES_MAX) revert I.PageTooLarge(firings.length, ENTRIES_MAX);
        for (uint256 i; i < firings.length; ++i) {
            I.Firing calldata firing = firings[i];
            Workflows.Workflow storage workflow = _workflows[firing.serviceId][firing.workflowId];
            Calls.Call memory call = _calls[firing.serviceId][firing.workflowId].load();
            bool isOwn = call.operator == msg.sender && call.epoch == firing.epoch;
            bool isNews = firing.at > workflow.lastTriggered && firing.at <= block.timestamp;
            if (!isOwn || !isNews || workflow.status != I.WorkflowStatus.Active) continue;
            // forge-lint: disable-next-line(unsafe-typecast)
            workflow.lastTriggered = uint40(firing.at);
            emit I.WorkflowFired(firing.serviceId, firing.workflowId, firing.epoch, firing.at);
        }
    }

    // ─── Actions: customers ─────────────────────────────────────────────────────────────────────────────────────────

    function pauseWorkflow(uint64 serviceId, uint64 workflowId) external {
        _switchWorkflow(serviceId, workflowId, I.WorkflowStatus.Active, I.WorkflowStatus.Paused);
    }

    function resumeWorkflow(uint64 serviceId, uint64 workflowId) external {
        _switchWorkflow(serviceId, workflowId, I.WorkflowStatus.Paused, I.WorkflowStatus.Active);
    }

    function _switchWorkflow(uint64 serviceId, uint64 workflowId, I.WorkflowStatus from, I.WorkflowStatus to) private {
        Workflows.Workflow storage workflow = _workflows[serviceId][workflowId];
        if (workflow.status == I.WorkflowStatus.Unknown) revert I.UnknownWorkflow(serviceId, workflowId);
        if (msg.sender != workflow.owner && !_isServiceOwner(serviceId, msg.sender)) {
            revert I.NotWorkflowOwner(serviceId, workflowId, msg.sender);
        }
        if (workflow.status != from) revert I.WorkflowNotActive(serviceId, workflowId, workflow.status);
        workflow.status = to;
        emit I.WorkflowStatusSet(serviceId, workflowId, to);
    }

    // ─── Actions: anybody ───────────────────────────────────────────────────────────────────────────────────────────

    function reap(uint64 serviceId, uint64 callId) external {
        Row storage row = _rows[serviceId][callId];
        Calls.Call memory call = _calls[serviceId][callId].load();
        uint256 held = _held(call, row);
        bool isDue = held != 0 && !_services[serviceId].ended && _isOver(serviceId, row.expiryBlock);
        if (!isDue) revert I.NotReapable(serviceId, callId);

        row.gone |= held;
        // forge-lint: disable-next-line(unsafe-typecast)
        emit I.Reaped(serviceId, callId, uint32(_freeAll(serviceId, callId, call, row, held)));
    }

    function _freeAll(uint64 serviceId, uint64 callId, Calls.Call memory call, Row storage row, uint256 slots)
        private
        returns (uint256 freed)
    {
        if (call.parts == 0) return _free(serviceId, row, call.operator, LibBit.popCount(slots));
        Batches.Batch storage batch = _batches[serviceId][callId];
        Batches.Part memory part = Batches.Part(0, 0, 0, 0);
        for (uint256 i; i < call.parts; ++i) {
            batch.next(i, part);
            uint256 own = slots & _mask(part.share) << part.firstSlot;
            if (own != 0) freed += _free(serviceId, row, _operators.accounts[part.number], LibBit.popCount(own));
        }
    }

    // ─── Actions: the blueprint's owner ─────────────────────────────────────────────────────────────────────────────

    function setServiceFloor(address asset, uint256 perOperatorHour) external {
        ITangleCore.Blueprint memory blueprint = CORE.getBlueprint(blueprintId);
        if (!isBound || msg.sender != blueprint.owner) revert I.NotBlueprintOwner(msg.sender);
        if (blueprint.pricing == PRICING_EVENT_DRIVEN) revert I.FloorNotApplicable();
        _setFloor(asset, perOperatorHour);
        emit I.ServiceFloorSet(asset, perOperatorHour);
    }

    // ─── Views: calls and sandboxes ─────────────────────────────────────────────────────────────────────────────────

    function assignment(uint64 serviceId, uint64 callId) external view returns (I.Assignment memory) {
        Calls.Call memory call = _calls[serviceId][callId].load();
        if (call.operator == address(0) && call.parts == 0) return _noAssignment();
        return I.Assignment({
            operator: call.operator,
            caller: CORE.getJobCall(serviceId, callId).caller,
            deadlineBlock: call.deadlineBlock,
            job: call.job,
            answered: call.answered,
            outcome: call.outcome,
            responseHash: call.answered ? _memos[serviceId][callId] : bytes32(0),
            detail: _rows[serviceId][callId].created,
            epoch: call.epoch,
            parts: call.parts,
            answers: call.answers
        });
    }

    function _noAssignment() private pure returns (I.Assignment memory none) {}

    function parts(uint64 serviceId, uint64 callId) external view returns (I.Part[] memory all) {
        Batches.Batch storage batch = _batches[serviceId][callId];
        all = new I.Part[](_calls[serviceId][callId].load().parts);
        Batches.Part memory part = Batches.Part(0, 0, 0, 0);
        for (uint256 i; i < all.length; ++i) {
            batch.next(i, part);
            // A part's numbers are of eight bits or fewer.
            // forge-lint: disable-start(unsafe-typecast)
            all[i] = I.Part({
                operator: _operators.accounts[part.number],
                answered: part.mark != 0,
                outcome: part.mark == 0 ? 0 : uint8(part.mark - 1),
                firstSlot: uint8(part.firstSlot),
                slots: uint8(part.share)
            });
            // forge-lint: disable-end(unsafe-typecast)
        }
    }

    function sandbox(uint64 serviceId, uint64 callId, uint8 slot) external view returns (I.SandboxView memory) {
        Row storage row = _rows[serviceId][callId];
        return I.SandboxView({
            owner: row.owner,
            operator: _holder(serviceId, callId, slot),
            expiryBlock: row.expiryBlock == NO_EXPIRY ? type(uint64).max : row.expiryBlock,
            state: _stateOf(serviceId, callId, slot)
        });
    }

    function _stateOf(uint64 serviceId, uint64 callId, uint8 slot) private view returns (I.SandboxState) {
        Row storage row = _rows[serviceId][callId];
        bool created = row.created >> slot & 1 == 1;
        if (slot >= row.slots) return I.SandboxState.Unknown;
        if (!created && _hasAnswered(serviceId, callId, slot)) return I.SandboxState.Failed;
        if (row.gone >> slot & 1 == 1 || _services[serviceId].ended) return I.SandboxState.Deleted;
        if (_isLost(serviceId, row, _holder(serviceId, callId, slot))) return I.SandboxState.Lost;
        if (_isOver(serviceId, row.expiryBlock)) return I.SandboxState.Expired;
        return created ? I.SandboxState.Live : I.SandboxState.Requested;
    }

    /// Whether the operator that is to make the slot has answered.
    function _hasAnswered(uint64 serviceId, uint64 callId, uint256 slot) private view returns (bool) {
        Calls.Call memory call = _calls[serviceId][callId].load();
        if (call.parts == 0) return call.answered;
        return _batches[serviceId][callId].findSlot(call.parts, slot).mark != 0;
    }

    /// Whether the expiry block or the end of the service has passed.
    function _isOver(uint64 serviceId, uint256 expiryBlock) private view returns (bool) {
        if (block.number > expiryBlock) return true;
        return !_isActive(CORE.getService(serviceId));
    }

    function _isActive(ITangleCore.Service memory service) private view returns (bool) {
        uint256 end = _serviceEnd(service);
        return service.terminatedAt == 0 && (end == 0 || block.timestamp <= end);
    }

    // ─── Views: operators and services ──────────────────────────────────────────────────────────────────────────────

    function operatorView(address operator) external view returns (I.OperatorView memory) {
        return _operators.view_(operator);
    }

    function operators(uint256 cursor, uint256 limit)
        external
        view
        returns (I.OperatorView[] memory page, uint256 next)
    {
        uint256 count;
        (count, next) = _page(_operators.count, cursor, limit);
        page = new I.OperatorView[](count);
        for (uint256 i; i < count; ++i) {
            page[i] = _operators.view_(_operators.accounts[cursor + i + 1]);
        }
    }

    /// How many entries the page has, and where the next one starts.
    function _page(uint256 total, uint256 cursor, uint256 limit) private pure returns (uint256 count, uint256 next) {
        if (limit > ENTRIES_MAX) revert I.PageTooLarge(limit, ENTRIES_MAX);
        if (cursor >= total) return (0, 0);
        count = total - cursor < limit ? total - cursor : limit;
        next = cursor + count == total ? 0 : cursor + count;
    }

    function serviceOperators(uint64 serviceId) external view returns (address[] memory) {
        return CORE.getServiceOperators(serviceId);
    }

    function serviceView(uint64 serviceId) external view returns (I.ServiceView memory seen) {
        ITangleCore.Service memory service = CORE.getService(serviceId);
        Service storage own = _services[serviceId];
        (seen.owner, seen.createdAt, seen.ttl) = (service.owner, service.createdAt, service.ttl);
        (seen.active, seen.seed) = (_isActive(service), own.seed);
        seen.operators = CORE.getServiceOperators(serviceId);
        seen.held = new uint32[](seen.operators.length);
        if (own.ended) return seen;
        for (uint256 i; i < seen.operators.length; ++i) {
            // forge-lint: disable-next-line(unsafe-typecast)
            seen.held[i] = uint32(_operators.heldBy(own.tenancy, seen.operators[i]));
            seen.sandboxes += seen.held[i];
        }
    }

    function previewOperatorSelection(uint32 count, bytes32 seed) external view returns (address[] memory drawn) {
        uint256 eligible = _operators.eligibleCount;
        if (count > OPERATORS_MAX) revert I.TooManyOperators(count, OPERATORS_MAX);
        if (count > eligible) revert I.NotEnoughOperators(count, eligible);
        uint256[] memory places = Selection.indexes(eligible, count, seed);
        drawn = new address[](count);
        for (uint256 i; i < count; ++i) {
            drawn[i] = _operators.accounts[_operators.eligibleAt(places[i])];
        }
    }

    function eligibleCount() external view returns (uint256) {
        return _operators.eligibleCount;
    }

    // ─── Views: prices ──────────────────────────────────────────────────────────────────────────────────────────────

    function jobs() external view returns (I.JobView[] memory all) {
        all = new I.JobView[](JOB_COUNT);
        uint256 count;
        for (uint8 id; id < JOB_COUNT; ++id) {
            if (JobTable.shape(id) == 0) continue;
            all[count++] = I.JobView({id: id, name: _nameOf(id), rate: CORE.getJobEventRate(blueprintId, id)});
        }
        assembly ("memory-safe") {
            mstore(all, count)
        }
    }

    function _nameOf(uint8 job) private pure returns (string memory) {
        if (job == JOB_SANDBOX_CREATE) return "sandbox_create";
        if (job == JOB_SANDBOX_STOP) return "sandbox_stop";
        if (job == JOB_SANDBOX_RESUME) return "sandbox_resume";
        if (job == JOB_SANDBOX_DELETE) return "sandbox_delete";
        if (job == JOB_SANDBOX_SNAPSHOT) return "sandbox_snapshot";
        if (job == JOB_EXEC) return "exec";
        if (job == JOB_PROMPT) return "prompt";
        if (job == JOB_TASK) return "task";
        if (job == JOB_BATCH_CREATE) return "batch_create";
        if (job == JOB_BATCH_TASK) return "batch_task";
        if (job == JOB_BATCH_EXEC) return "batch_exec";
        if (job == JOB_BATCH_COLLECT) return "batch_collect";
        if (job == JOB_WORKFLOW_CREATE) return "workflow_create";
        if (job == JOB_WORKFLOW_TRIGGER) return "workflow_trigger";
        if (job == JOB_WORKFLOW_CANCEL) return "workflow_cancel";
        if (job == JOB_SSH_PROVISION) return "ssh_provision";
        return "ssh_revoke";
    }

    function callCost(uint64 serviceId, uint8 job) external view returns (address asset, uint256 amount) {
        if (JobTable.shape(job) == 0) revert I.UnknownJob(job);
        if (CORE.getService(serviceId).pricing != PRICING_EVENT_DRIVEN) return (address(0), 0);
        return (CORE.getServicePaymentAsset(serviceId), CORE.getJobEventRate(blueprintId, job));
    }

    function quoteService(uint32 operatorCount, uint64 ttl) external view returns (address asset, uint256 amount) {
        return (_floorAsset, _floor(operatorCount, ttl));
    }

    // ─── Views: workflows ───────────────────────────────────────────────────────────────────────────────────────────

    function getWorkflow(uint64 serviceId, uint64 workflowId)
        external
        view
        returns (I.WorkflowView memory row, I.WorkflowBody memory body)
    {
        row = _workflowRow(serviceId, workflowId);
        row.triggerConfig = _workflows[serviceId][workflowId].triggerConfig();
        body = _workflows[serviceId][workflowId].body();
    }

    /// Without the trigger's configuration.
    function _workflowRow(uint64 serviceId, uint64 workflowId) private view returns (I.WorkflowView memory row) {
        Workflows.Workflow storage workflow = _workflows[serviceId][workflowId];
        Calls.Call memory call = _calls[serviceId][workflowId].load();
        if (workflow.status == I.WorkflowStatus.Unknown) return row;
        (row.serviceId, row.workflowId) = (serviceId, workflowId);
        (row.owner, row.operator, row.epoch) = (workflow.owner, call.operator, call.epoch);
        (row.status, row.trigger) = (workflow.status, workflow.trigger);
        (row.lastTriggered, row.bodyBlock) = (workflow.lastTriggered, workflow.bodyBlock);
        row.bodyHash = workflow.bodyHash;
    }

    function activeWorkflows(address operator, uint256 cursor, uint256 limit)
        external
        view
        returns (I.WorkflowView[] memory page, uint256 next)
    {
        uint128[] storage given = _workflowsOf[operator];
        uint256 count;
        (count, next) = _page(given.length, cursor, limit);
        page = new I.WorkflowView[](count);
        uint256 active;
        for (uint256 i; i < count; ++i) {
            uint128 entry = given[cursor + i];
            (uint64 serviceId, uint64 workflowId) = (uint64(entry >> 64), uint64(entry));
            if (!_fires(serviceId, workflowId, operator)) continue;
            page[active] = _workflowRow(serviceId, workflowId);
            page[active].triggerConfig = _workflows[serviceId][workflowId].triggerConfig();
            ++active;
        }
        assembly ("memory-safe") {
            mstore(page, active)
        }
    }

    function _fires(uint64 serviceId, uint64 workflowId, address operator) private view returns (bool) {
        return _workflows[serviceId][workflowId].status == I.WorkflowStatus.Active
            && _calls[serviceId][workflowId].operatorOf() == operator && _isActive(CORE.getService(serviceId));
    }
}
