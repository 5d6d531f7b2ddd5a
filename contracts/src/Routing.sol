// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {BatchPlan} from "./BatchPlan.sol";
import {Batches} from "./Batches.sol";
import {Calls} from "./Calls.sol";
import {IAgentSandboxBlueprint as I} from "./IAgentSandboxBlueprint.sol";
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
    JOB_WORKFLOW_TRIGGER
} from "./JobTypes.sol";
import {OPERATORS_MAX, Operators} from "./Operators.sol";
import {Requests} from "./Requests.sol";
import {SandboxIds} from "./SandboxIds.sol";
import {State} from "./State.sol";
import {Words} from "./Words.sol";
import {Workflows} from "./Workflows.sol";

/// The first half of a call's road: what is asked, whether the caller may ask it, and who must answer. A revert here cancels the call
/// and its payment, so everything that can be refused is refused here.
abstract contract Routing is State {
    using Batches for Batches.Batch;
    using Calls for Calls.Slot;
    using Operators for Operators.Registry;
    using Words for address[];
    using Words for uint256[];
    using Workflows for Workflows.Workflow;

    // ─── Job calls ──────────────────────────────────────────────────────────────────────────────────────────────────

    function onJobCall(uint64 serviceId, uint8 job, uint64 callId, bytes calldata inputs) external onlyCore {
        if (inputs.length > INPUTS_MAX) revert I.InputsTooLarge(inputs.length, INPUTS_MAX);
        Requests.requireShape(inputs, job);
        // The core stores both before it calls this hook.
        (address caller, bool isRFQ) = _submission(serviceId, callId);
        address[] memory quoted = new address[](0);
        if (isRFQ) {
            quoted = CORE.getJobQuotedOperators(serviceId, callId);
            if (quoted.length > OPERATORS_MAX) revert I.TooManyOperators(quoted.length, OPERATORS_MAX);
        }

        if (job == JOB_WORKFLOW_CANCEL || job == JOB_WORKFLOW_TRIGGER) {
            uint64 workflowId = Requests.workflowControl(inputs).workflow_id;
            _callOnWorkflow(serviceId, job, callId, workflowId, caller, quoted);
        } else if (job == JOB_SANDBOX_CREATE) {
            _callCreate(serviceId, callId, inputs, caller, quoted);
        } else if (job == JOB_BATCH_CREATE) {
            _callBatchCreate(serviceId, callId, inputs, caller, quoted);
        } else if (job == JOB_BATCH_TASK || job == JOB_BATCH_EXEC || job == JOB_BATCH_COLLECT) {
            _callBatch(serviceId, job, callId, inputs, quoted);
        } else if (job == JOB_WORKFLOW_CREATE) {
            _callWorkflowCreate(serviceId, callId, inputs, caller, quoted);
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
        if (job == JOB_SANDBOX_DELETE) _setTarget(serviceId, callId, targetCall, slot);
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
        Batches.Batch memory plan = Batches.empty();
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

    function _assignBatch(uint64 serviceId, uint8 job, uint64 callId, uint256 parts, Batches.Batch memory plan)
        private
    {
        uint40 deadlineBlock = _deadline(job);
        // forge-lint: disable-next-line(unsafe-typecast)
        _calls[serviceId][callId].openBatch(deadlineBlock, job, uint8(parts));
        _batches[serviceId][callId].store(plan, parts);
        // forge-lint: disable-next-line(unsafe-typecast)
        emit I.BatchAssigned(serviceId, callId, uint8(parts), deadlineBlock);
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

    /// That they are all of the pool, and in its order: so none is named twice, and one walk tells. Leaves of the pool those that are named.
    function _requireAmong(uint64 serviceId, address[] calldata named, address[] memory pool)
        private
        pure
        returns (address[] memory)
    {
        uint256 count = named.length;
        uint256 size = pool.length;
        uint256 place = 0;
        for (uint256 i; i < count; ++i) {
            address one = named[i];
            while (place < size && pool.get(place) != one) ++place;
            if (place == size) revert I.OperatorNotInService(serviceId, one);
            pool.set(i, pool.get(place++)); // what is before has been passed
        }
        assembly ("memory-safe") {
            mstore(pool, count)
        }
        return pool;
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
}
