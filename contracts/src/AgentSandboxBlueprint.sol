// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Proxy} from "@openzeppelin/contracts/proxy/Proxy.sol";

import {AgentSandboxAnnex} from "./AgentSandboxAnnex.sol";
import {Batches} from "./Batches.sol";
import {BatchPlan} from "./BatchPlan.sol";
import {Calls} from "./Calls.sol";
import {CoreBound} from "./CoreBound.sol";
import {IAgentSandboxBlueprint as I} from "./IAgentSandboxBlueprint.sol";
import {ITangleCore} from "./ITangleCore.sol";
import {
    BatchCreateRequest,
    JOB_BATCH_COLLECT,
    JOB_BATCH_CREATE,
    JOB_BATCH_EXEC,
    JOB_BATCH_TASK,
    JOB_SANDBOX_CREATE,
    JOB_SANDBOX_DELETE,
    JOB_WORKFLOW_CANCEL,
    JOB_WORKFLOW_CREATE,
    JOB_WORKFLOW_TRIGGER,
    JobReceipt,
    OUTCOME_DONE,
    OUTCOME_OPERATOR
} from "./JobTypes.sol";
import {Load, OPERATORS_MAX, Operators} from "./Operators.sol";
import {Requests} from "./Requests.sol";
import {SandboxIds} from "./SandboxIds.sol";
import {State} from "./State.sol";
import {Words} from "./Words.sol";
import {Workflows} from "./Workflows.sol";

/// Chooses operators, assigns each call to one of them, and lets only that one's receipt complete it.
///
/// The prose is in `IAgentSandboxBlueprint`. Here is a call's road, from its assignment to its receipt.
/// Every other hook, and all that is not the core's, is code of `AgentSandboxAnnex`, run here: one contract would exceed the
/// size that a chain takes.
contract AgentSandboxBlueprint is State, Proxy {
    using Batches for Batches.Batch;
    using Calls for Calls.Slot;
    using Operators for Operators.Registry;
    using Words for address[];
    using Words for uint256[];
    using Workflows for Workflows.Workflow;

    // ─── Storage ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The code that answers what this one does not.
    address public immutable ANNEX;

    /// Whether the result in hand completes its call. `onJobResult` writes it, `getRequiredResultCount` reads it, back to back.
    bool private transient _accepted;

    // ─── Constructor ────────────────────────────────────────────────────────────────────────────────────────────────

    constructor(address core, address creator, uint64 blockTimeMs) CoreBound(core, creator) State(blockTimeMs) {
        ANNEX = address(new AgentSandboxAnnex(core, creator, blockTimeMs));
    }

    function _implementation() internal view override returns (address) {
        return ANNEX;
    }

    // ─── The end of a service ───────────────────────────────────────────────────────────────────────────────────────

    /// Frees the slots of the service by its operators: of its calls there is no bound.
    function onServiceTermination(uint64 serviceId, address) external onlyCore {
        Service storage service = _services[serviceId];
        if (service.ended) return;
        service.ended = true;
        _operators.releaseAll(service.tenancy);
    }

    // ─── Job calls ──────────────────────────────────────────────────────────────────────────────────────────────────

    function onJobCall(uint64 serviceId, uint8 job, uint64 callId, bytes calldata inputs)
        external
        payable
        onlyCore
    {
        if (inputs.length > INPUTS_MAX) revert I.InputsTooLarge(inputs.length, INPUTS_MAX);
        Requests.requireShape(inputs, job);
        // The core stores both before it calls this hook.
        (, address caller,,,, bool isRFQ) = CORE.getJobCall(serviceId, callId);
        address[] memory quoted;
        if (isRFQ) {
            quoted = CORE.getJobQuotedOperators(serviceId, callId);
            if (quoted.length > OPERATORS_MAX) revert I.TooManyOperators(quoted.length, OPERATORS_MAX);
        }

        if (job == JOB_SANDBOX_CREATE) {
            _callCreate(serviceId, callId, inputs, caller, quoted);
        } else if (job == JOB_BATCH_CREATE) {
            _callBatchCreate(serviceId, callId, inputs, caller, quoted);
        } else if (job == JOB_BATCH_TASK || job == JOB_BATCH_EXEC || job == JOB_BATCH_COLLECT) {
            _callBatch(serviceId, job, callId, inputs, quoted);
        } else if (job == JOB_WORKFLOW_CREATE) {
            _callWorkflowCreate(serviceId, callId, inputs, caller, quoted);
        } else if (job == JOB_WORKFLOW_TRIGGER || job == JOB_WORKFLOW_CANCEL) {
            uint64 workflowId = Requests.workflowControl(inputs).workflow_id;
            _callOnWorkflow(serviceId, job, callId, workflowId, caller, quoted);
        } else {
            _callOnSandbox(serviceId, job, callId, Requests.sandbox(inputs), caller, quoted);
        }
    }

    function _assign(uint64 serviceId, uint8 job, uint64 callId, address operator) private {
        uint40 deadlineBlock = _deadline(job);
        _calls[serviceId][callId].open(operator, deadlineBlock, job);
        emit I.OperatorAssigned(serviceId, callId, operator, deadlineBlock);
    }

    /// The one operator that an RFQ call is for; zero if the call is none.
    function _quotedOne(address[] memory quoted) private pure returns (address) {
        if (quoted.length == 0) return address(0);
        if (quoted.length != 1) revert I.OneQuoteExpected(quoted.length);
        return quoted[0];
    }

    /// What is an operator's can be worked on by no other, quoted or not.
    function _requireQuotedIs(address operator, address[] memory quoted) private pure {
        address quotedOne = _quotedOne(quoted);
        if (quotedOne != address(0) && quotedOne != operator) revert I.QuotedOperatorMismatch(operator, quotedOne);
    }

    function _drawUnquoted(uint64 serviceId, uint64 callId, address[] memory quoted) private view returns (address) {
        address operator = _quotedOne(quoted);
        if (operator == address(0)) operator = _drawFree(serviceId, callId, 0, 0);
        else if (_freeSlots(serviceId, operator) == 0) operator = address(0);
        if (operator == address(0)) revert I.NoCapacity(serviceId);
        return operator;
    }

    // ─── Job calls: sandboxes ───────────────────────────────────────────────────────────────────────────────────────

    function _callCreate(
        uint64 serviceId,
        uint64 callId,
        bytes calldata inputs,
        address caller,
        address[] memory quoted
    ) private {
        _openRow(serviceId, callId, caller, Requests.create(inputs).ttl_blocks, 1);
        address operator = _drawUnquoted(serviceId, callId, quoted);
        _operators.hold(_services[serviceId].tenancy, operator, 1);
        _assign(serviceId, JOB_SANDBOX_CREATE, callId, operator);
    }

    function _openRow(uint64 serviceId, uint64 callId, address owner, uint64 ttlBlocks, uint256 slots) private {
        Row storage row = _rows[serviceId][callId];
        row.owner = owner;
        row.expiryBlock = _expiryBlock(serviceId, ttlBlocks);
        row.sinceBlock = uint40(block.number);
        // forge-lint: disable-next-line(unsafe-typecast)
        row.slots = uint16(slots);
    }

    function _expiryBlock(uint64 serviceId, uint64 ttlBlocks) private view returns (uint40) {
        if (ttlBlocks == 0) return NO_EXPIRY;
        uint256 end = _serviceEnd(CORE.getService(serviceId));
        uint256 expiryMs = block.timestamp * MS_PER_SECOND + ttlBlocks * BLOCK_TIME_MS;
        if (end != 0 && expiryMs > end * MS_PER_SECOND) revert I.OutlivesService(ttlBlocks, end);
        uint256 expiryBlock = block.number + ttlBlocks;
        // forge-lint: disable-next-line(unsafe-typecast)
        return expiryBlock < NO_EXPIRY ? uint40(expiryBlock) : NO_EXPIRY;
    }

    /// For the operator that holds the live sandbox named by `text`. Refused to all but the sandbox's owner and the service's. A sandbox
    /// may be deleted after its expiry too, as long as nobody has reaped it.
    function _callOnSandbox(
        uint64 serviceId,
        uint8 job,
        uint64 callId,
        string calldata text,
        address caller,
        address[] memory quoted
    ) private {
        (bool ok, uint64 service, uint64 targetCall, uint8 slot) = SandboxIds.parse(bytes(text));
        Row storage row = _rows[serviceId][targetCall];
        if (!ok || service != serviceId || (row.created & ~row.gone) >> slot & 1 == 0) revert I.UnknownSandbox(text);
        address holder = _holder(serviceId, targetCall, slot);
        if (_isLost(serviceId, row, holder)) revert I.UnknownSandbox(text);
        if (caller != row.owner && !_isServiceOwner(serviceId, caller)) revert I.NotSandboxOwner(text, caller);
        if (job == JOB_SANDBOX_DELETE) _targets[serviceId][callId] = Target(targetCall, slot);
        else if (block.number > row.expiryBlock) revert I.SandboxExpired(text, row.expiryBlock);
        _requireQuotedIs(holder, quoted);
        _assign(serviceId, job, callId, holder);
    }

    // ─── Job calls: batches ─────────────────────────────────────────────────────────────────────────────────────────

    /// Planned over the operators named, which must serve here; by default over those quoted, or over all of the service.
    function _callBatchCreate(
        uint64 serviceId,
        uint64 callId,
        bytes calldata inputs,
        address caller,
        address[] memory quoted
    ) private {
        BatchCreateRequest calldata request = Requests.batchCreate(inputs);
        uint256 count = request.count;
        if (count == 0 || count > SANDBOXES_MAX) revert I.BatchSize(count, SANDBOXES_MAX);
        _openRow(serviceId, callId, caller, request.template.ttl_blocks, count);
        address[] memory pool = quoted.length == 0 ? _members(serviceId) : quoted;
        if (request.operators.length != 0) pool = _requireAmong(serviceId, request.operators, pool);
        BatchPlan.Distribution distribution = _distribution(request.distribution);
        (uint256 parts, Batches.Batch memory plan) = _plan(serviceId, callId, pool, count, distribution);
        // Each quote is paid for, so each must be for something.
        if (quoted.length != 0 && parts != quoted.length) revert I.NoCapacity(serviceId);
        _assignBatch(serviceId, JOB_BATCH_CREATE, callId, parts, plan);
    }

    /// Who makes how many, without those that make none.
    function _plan(
        uint64 serviceId,
        uint64 callId,
        address[] memory pool,
        uint256 count,
        BatchPlan.Distribution distribution
    ) private view returns (uint256 parts, Batches.Batch memory plan) {
        Service storage service = _services[serviceId];
        uint32[] memory leaving = service.tenancy.leaving;
        uint256[] memory offers = new uint256[](pool.length);
        for (uint256 i; i < offers.length; ++i) {
            offers.set(i, _operators.offer(pool.get(i), leaving));
        }
        bytes32 seed = keccak256(abi.encode(service.seed, serviceId, callId));
        (uint256[] memory order, uint256[] memory shares) = BatchPlan.plan(offers, count, distribution, seed);
        for (uint256 i; i < order.length; ++i) {
            uint256 share = shares.get(i);
            if (share == 0) continue;
            plan.put(parts, offers.get(order.get(i)) >> 128, share);
            unchecked {
                (parts, count) = (parts + 1, count - share); // the shares are of `count`
            }
        }
        if (count != 0) revert I.NoCapacity(serviceId);
    }

    /// Of a plain batch every operator of the service has a part, of a quoted one those that are quoted.
    function _callBatch(uint64 serviceId, uint8 job, uint64 callId, bytes calldata inputs, address[] memory quoted)
        private
    {
        if (job == JOB_BATCH_TASK) {
            _requireBatch(job, Requests.batchTask(inputs).sidecar_endpoints, Requests.batchTask(inputs).aggregation);
        } else if (job == JOB_BATCH_EXEC) {
            _requireBatch(job, Requests.batchExec(inputs).sidecar_endpoints, Requests.batchExec(inputs).aggregation);
        }
        address[] memory pool = quoted.length == 0 ? _members(serviceId) : quoted;
        Batches.Batch memory plan;
        for (uint256 i; i < pool.length; ++i) {
            plan.put(i, _operators.load(pool.get(i)).number(), 0);
        }
        _assignBatch(serviceId, job, callId, pool.length, plan);
    }

    /// Whose the endpoints are is for each operator to see: an item that is wrong fails by itself, not the batch.
    function _requireBatch(uint8 job, string[] calldata endpoints, string calldata aggregation) private pure {
        if (endpoints.length == 0 || endpoints.length > ENDPOINTS_MAX) {
            revert I.BatchSize(endpoints.length, ENDPOINTS_MAX);
        }
        bytes32 word = keccak256(bytes(aggregation));
        if (word != keccak256("all") && word != keccak256("first_success") && word != keccak256("majority")) {
            revert I.UnknownOption(job, aggregation);
        }
    }

    function _assignBatch(uint64 serviceId, uint8 job, uint64 callId, uint256 parts, Batches.Batch memory plan) private {
        Calls.Call memory call;
        // forge-lint: disable-next-line(unsafe-typecast)
        (call.job, call.deadlineBlock, call.parts) = (job, _deadline(job), uint8(parts));
        _calls[serviceId][callId].store(call);
        _batches[serviceId][callId].store(plan, parts);
        emit I.BatchAssigned(serviceId, callId, call.parts, call.deadlineBlock);
    }

    function _distribution(string calldata word) private pure returns (BatchPlan.Distribution) {
        bytes32 hash = keccak256(bytes(word));
        if (hash == keccak256("round_robin")) return BatchPlan.Distribution.RoundRobin;
        if (hash == keccak256("cheapest")) return BatchPlan.Distribution.Cheapest;
        if (hash == keccak256("random")) return BatchPlan.Distribution.Random;
        revert I.UnknownOption(JOB_BATCH_CREATE, word);
    }

    /// The operators of the service, but never more than the most: the core keeps to that, since `onRequest` and `canJoin` do.
    function _members(uint64 serviceId) private view returns (address[] memory members) {
        members = CORE.getServiceOperators(serviceId);
        if (members.length > OPERATORS_MAX) revert I.TooManyOperators(members.length, OPERATORS_MAX);
    }

    /// That they are all of the pool, and in its order: so none is named twice, and one walk tells.
    function _requireAmong(uint64 serviceId, address[] memory named, address[] memory pool)
        private
        pure
        returns (address[] memory)
    {
        uint256 place;
        for (uint256 i; i < named.length; ++i) {
            while (place < pool.length && pool.get(place) != named.get(i)) ++place;
            if (place == pool.length) revert I.OperatorNotInService(serviceId, named.get(i));
            ++place;
        }
        return named;
    }

    // ─── Job calls: workflows ───────────────────────────────────────────────────────────────────────────────────────

    function _callWorkflowCreate(
        uint64 serviceId,
        uint64 callId,
        bytes calldata inputs,
        address caller,
        address[] memory quoted
    ) private {
        _workflows[serviceId][callId].create(caller, inputs, Requests.workflowCreate(inputs));
        _assign(serviceId, JOB_WORKFLOW_CREATE, callId, _drawUnquoted(serviceId, callId, quoted));
    }

    /// A cancel counts from the call on: the operator has nothing to refuse.
    function _callOnWorkflow(
        uint64 serviceId,
        uint8 job,
        uint64 callId,
        uint64 workflowId,
        address caller,
        address[] memory quoted
    ) private {
        Workflows.Workflow storage workflow = _workflows[serviceId][workflowId];
        I.WorkflowStatus status = workflow.status;
        if (status == I.WorkflowStatus.Unknown) revert I.UnknownWorkflow(serviceId, workflowId);
        if (caller != workflow.owner && !_isServiceOwner(serviceId, caller)) {
            revert I.NotWorkflowOwner(serviceId, workflowId, caller);
        }
        if (job == JOB_WORKFLOW_TRIGGER) {
            if (status != I.WorkflowStatus.Active) revert I.WorkflowNotActive(serviceId, workflowId, status);
            workflow.lastTriggered = uint40(block.timestamp);
        } else {
            if (status > I.WorkflowStatus.Paused) revert I.WorkflowNotActive(serviceId, workflowId, status);
            workflow.status = I.WorkflowStatus.Cancelled;
        }
        address operator = _calls[serviceId][workflowId].operatorOf();
        _requireQuotedIs(operator, quoted);
        _assign(serviceId, job, callId, operator);
    }

    // ─── Choosing operators, again and again ────────────────────────────────────────────────────────────────────────

    /// An operator of the service that may be given something new, and is neither `except` nor had the call before; zero if there is none.
    /// The members are drawn one after another, as `Selection` does, until one will do: every such operator is equally likely.
    function _drawFree(uint64 serviceId, uint64 callId, uint16 epoch, uint256 except) private view returns (address) {
        Service storage service = _services[serviceId];
        uint32[] memory leaving = service.tenancy.leaving;
        uint32[OPERATORS_MAX] storage tried = _tried[serviceId][callId];
        address[] memory members = CORE.getServiceOperators(serviceId);
        bytes32 seed = keccak256(abi.encode(service.seed, serviceId, callId, epoch));
        for (uint256 i; i < members.length && i < OPERATORS_MAX; ++i) {
            uint256 place = i + uint256(keccak256(abi.encode(seed, i))) % (members.length - i);
            address drawn = members[place];
            members[place] = members[i];
            Load load = _operators.load(drawn);
            bool isFree = Operators.freeSlots(load, leaving) != 0 && load.number() != except;
            for (uint256 j; isFree && j + 1 < epoch; ++j) {
                isFree = tried[j] != load.number();
            }
            if (isFree) return drawn;
        }
        return address(0);
    }

    function _freeSlots(uint64 serviceId, address operator) private view returns (uint256) {
        return Operators.freeSlots(_operators.load(operator), _services[serviceId].tenancy.leaving);
    }

    /// Gives an open call to another operator, with what it holds for it. False if it stays where it is.
    function _moveOn(uint64 serviceId, uint64 callId, Calls.Call memory call) private returns (bool) {
        (,,,,, bool isRFQ) = CORE.getJobCall(serviceId, callId);
        if (isRFQ || call.epoch == OPERATORS_MAX) return false;
        address from = call.operator;
        uint256 number = _operators.load(from).number();
        address to = _drawFree(serviceId, callId, call.epoch + 1, number);
        if (to == address(0)) return false;

        if (call.job == JOB_SANDBOX_CREATE) {
            Row storage row = _rows[serviceId][callId];
            _free(serviceId, row, from, 1);
            row.sinceBlock = uint40(block.number);
            _operators.hold(_services[serviceId].tenancy, to, 1);
        }
        // forge-lint: disable-next-line(unsafe-typecast)
        _tried[serviceId][callId][call.epoch] = uint32(number);
        emit I.CallReassigned(serviceId, callId, from, call.epoch + 1);
        _handOver(serviceId, callId, call, to);
        return true;
    }

    function _handOver(uint64 serviceId, uint64 callId, Calls.Call memory call, address to) private {
        (call.operator, call.epoch, call.deadlineBlock) = (to, call.epoch + 1, _deadline(call.job));
        _calls[serviceId][callId].store(call);
        emit I.OperatorAssigned(serviceId, callId, to, call.deadlineBlock);
    }

    function reassign(uint64 serviceId, uint64 callId) external {
        Calls.Call memory call = _calls[serviceId][callId].load();
        uint64 deadlineBlock = call.deadlineBlock;
        bool isOpen = !call.answered && block.number > deadlineBlock && _mayMove(serviceId, callId, call);
        bool isOrphan = call.answered && _isOrphan(serviceId, callId, call.operator);
        if ((!isOpen && !isOrphan) || !_moveOn(serviceId, callId, call)) {
            revert I.NotReassignable(serviceId, callId, deadlineBlock);
        }
        // A workflow that had been confirmed is confirmed: it needs no second receipt, which the core would not take.
        if (isOrphan) _workflowsOf[call.operator].push(uint128(serviceId) << 64 | callId);
    }

    /// Only what nothing is bound to yet, and what is still wanted, can be another operator's.
    function _mayMove(uint64 serviceId, uint64 callId, Calls.Call memory call) private view returns (bool) {
        if (call.operator == address(0) || _services[serviceId].ended) return false;
        if (call.job == JOB_SANDBOX_CREATE) return _held(call, _rows[serviceId][callId]) != 0;
        return call.job == JOB_WORKFLOW_CREATE && _workflows[serviceId][callId].status == I.WorkflowStatus.Pending;
    }

    function _isOrphan(uint64 serviceId, uint64 workflowId, address operator) private view returns (bool) {
        I.WorkflowStatus status = _workflows[serviceId][workflowId].status;
        bool isAlive = status == I.WorkflowStatus.Active || status == I.WorkflowStatus.Paused;
        return isAlive && !_services[serviceId].ended && !CORE.isServiceOperator(serviceId, operator);
    }

    // ─── Job results ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Never reverts: the core would swallow it, and a revert also undoes the clearing of `_accepted`, which an earlier result of
    /// the same transaction may have set. Starving the hook of gas is such a revert but gains nothing: the hook costs less than
    /// the cap, so it fails only on less gas than it needs, and the 1/64 of that which the core is left with cannot pay for
    /// completing a call.
    function onJobResult(
        uint64 serviceId,
        uint8 job,
        uint64 callId,
        address operator,
        bytes32,
        bytes calldata outputs
    ) external payable onlyCore {
        _accepted = false;
        Calls.Call memory call = _calls[serviceId][callId].load();
        (bool isReceipt, JobReceipt memory receipt) = Requests.receipt(outputs);
        bool counts;
        if (isReceipt && !call.answered && call.job == job && operator != address(0)) {
            if (call.parts != 0) {
                counts = _takePart(serviceId, callId, call, operator, receipt);
            } else if (call.operator == operator && _isPlausible(serviceId, callId, job, receipt)) {
                // With whom it starts anew the call stays open, and this answer moves nothing.
                if (receipt.outcome == OUTCOME_OPERATOR && _mayMove(serviceId, callId, call)) {
                    if (_moveOn(serviceId, callId, call)) return;
                }
                _settle(serviceId, callId, call, receipt);
                counts = true;
            }
        }
        if (counts) {
            emit I.ReceiptRecorded(
                serviceId, callId, operator, receipt.outcome, receipt.responseHash, receipt.detail
            );
        } else {
            emit I.ResultIgnored(serviceId, callId, operator);
        }
    }

    function getRequiredResultCount(uint64, uint8) external view returns (uint32) {
        return _accepted ? 1 : type(uint32).max;
    }

    /// A create that is done says which of its slots, at least one; every other receipt says nothing in `detail`.
    function _isPlausible(uint64 serviceId, uint64 callId, uint8 job, JobReceipt memory receipt)
        private
        view
        returns (bool)
    {
        if (job != JOB_SANDBOX_CREATE || receipt.outcome != OUTCOME_DONE) return receipt.detail == 0;
        return _isAmong(receipt.detail, _mask(_rows[serviceId][callId].slots));
    }

    function _isAmong(uint256 created, uint256 slots) private pure returns (bool) {
        return created != 0 && created & ~slots == 0;
    }

    function _settle(uint64 serviceId, uint64 callId, Calls.Call memory call, JobReceipt memory receipt) private {
        bool isDone = receipt.outcome == OUTCOME_DONE;
        if (call.job == JOB_SANDBOX_CREATE) _settleCreate(serviceId, callId, call, receipt.detail);
        else if (call.job == JOB_WORKFLOW_CREATE) _settleWorkflow(serviceId, callId, call.operator, isDone);
        else if (call.job == JOB_SANDBOX_DELETE && isDone) _settleDelete(serviceId, callId, call.operator);
        (call.answered, call.outcome) = (true, receipt.outcome);
        _calls[serviceId][callId].store(call);
        _responses[serviceId][callId] = receipt.responseHash;
        _accepted = true;
    }

    /// Until the call is marked as answered, its slots count as held.
    function _settleCreate(uint64 serviceId, uint64 callId, Calls.Call memory call, uint256 created) private {
        Row storage row = _rows[serviceId][callId];
        uint256 failed = _held(call, row) & ~created;
        if (created != 0) row.created = created;
        if (failed != 0) _free(serviceId, row, call.operator, _count(failed));
    }

    /// Another delete may have come first, or a reaping.
    function _settleDelete(uint64 serviceId, uint64 callId, address operator) private {
        Target memory target = _targets[serviceId][callId];
        Row storage row = _rows[serviceId][target.callId];
        uint256 bit = 1 << target.slot;
        if (row.gone & bit != 0) return;
        row.gone |= bit;
        _free(serviceId, row, operator, 1);
    }

    function _settleWorkflow(uint64 serviceId, uint64 callId, address operator, bool isDone) private {
        Workflows.Workflow storage workflow = _workflows[serviceId][callId];
        if (workflow.status != I.WorkflowStatus.Pending) return; // cancelled meanwhile
        workflow.status = isDone ? I.WorkflowStatus.Active : I.WorkflowStatus.Failed;
        if (isDone) _workflowsOf[operator].push(uint128(serviceId) << 64 | callId);
    }

    // ─── Job results: parts of batches ──────────────────────────────────────────────────────────────────────────────

    /// Whether this is the answer that is due from the operator. The batch is complete with the last of them.
    function _takePart(
        uint64 serviceId,
        uint64 callId,
        Calls.Call memory call,
        address operator,
        JobReceipt memory receipt
    ) private returns (bool) {
        Batches.Batch storage batch = _batches[serviceId][callId];
        (uint256 index, Batches.Part memory part) = batch.find(call.parts, _operators.load(operator).number());
        if (index == call.parts || part.mark != 0) return false;
        if (call.job == JOB_BATCH_CREATE && receipt.outcome == OUTCOME_DONE) {
            if (!_isAmong(receipt.detail, _mask(part.share) << part.firstSlot)) return false;
            Row storage row = _rows[serviceId][callId];
            row.created |= receipt.detail;
            // What one that was made to leave makes after its return is lost all the same: nothing would ever free it.
            if (!_isLost(serviceId, row, operator)) {
                _operators.hold(_services[serviceId].tenancy, operator, _count(receipt.detail));
            }
        } else if (receipt.detail != 0) {
            return false;
        }

        batch.setMark(index, 1 + uint256(receipt.outcome));
        if (receipt.outcome > call.outcome) call.outcome = receipt.outcome;
        call.answers += 1;
        call.answered = call.answers == call.parts;
        _calls[serviceId][callId].store(call);
        _accepted = call.answered;
        return true;
    }
}
