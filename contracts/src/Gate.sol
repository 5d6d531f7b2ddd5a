// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {LibBit} from "solady/utils/LibBit.sol";

import {Batches} from "./Batches.sol";
import {Calls} from "./Calls.sol";
import {IAgentSandboxBlueprint as I} from "./IAgentSandboxBlueprint.sol";
import {
    JOB_BATCH_CREATE,
    JOB_SANDBOX_CREATE,
    JOB_SANDBOX_DELETE,
    JOB_WORKFLOW_CREATE,
    JobReceipt,
    OUTCOME_DONE,
    OUTCOME_OPERATOR
} from "./JobTypes.sol";
import {OPERATORS_MAX, Operators} from "./Operators.sol";
import {Requests} from "./Requests.sol";
import {State} from "./State.sol";
import {Workflows} from "./Workflows.sol";

/// The second half of a call's road: whose answer counts, and what becomes of a call that its operator does not answer.
abstract contract Gate is State {
    using Batches for Batches.Batch;
    using Calls for Calls.Slot;
    using Operators for Operators.Registry;

    /// Whether the result in hand completes its call. `onJobResult` writes it, `getRequiredResultCount` reads it, back to back.
    bool private transient _accepted;

    // ─── Job results ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Never reverts: the core would swallow it, and a revert also undoes the clearing of `_accepted`, which an earlier result of
    /// the same transaction may have set. Starving the hook of gas is such a revert but gains nothing: the hook costs less than
    /// the cap, so it fails only on less gas than it needs, and the 1/64 of that which the core is left with cannot pay for
    /// completing a call.
    function onJobResult(uint64 serviceId, uint8 job, uint64 callId, address operator, bytes32, bytes calldata outputs)
        external
        onlyCore
    {
        _accepted = false;
        Calls.Call memory call = _calls[serviceId][callId].load();
        (bool isReceipt, JobReceipt memory receipt) = Requests.receipt(outputs);
        bool counts = false;
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
            emit I.ReceiptRecorded(serviceId, callId, operator, receipt.outcome, receipt.responseHash, receipt.detail);
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
        return created != 0 && created | slots <= slots;
    }

    function _settle(uint64 serviceId, uint64 callId, Calls.Call memory call, JobReceipt memory receipt) private {
        bool isDone = receipt.outcome == OUTCOME_DONE;
        if (call.job == JOB_SANDBOX_CREATE) _settleCreate(serviceId, callId, call, receipt.detail);
        else if (call.job == JOB_WORKFLOW_CREATE) _settleWorkflow(serviceId, callId, call.operator, isDone);
        else if (call.job == JOB_SANDBOX_DELETE && isDone) _settleDelete(serviceId, callId, call.operator);
        (call.answered, call.outcome) = (true, receipt.outcome);
        _calls[serviceId][callId].store(call);
        _setResponse(serviceId, callId, receipt.responseHash);
        _accepted = true;
    }

    /// Until the call is marked as answered, its slots count as held.
    function _settleCreate(uint64 serviceId, uint64 callId, Calls.Call memory call, uint256 created) private {
        Row storage row = _rows[serviceId][callId];
        uint256 failed = _held(call, row) & ~created;
        if (created != 0) row.created = created;
        if (failed != 0) _free(serviceId, row, call.operator, LibBit.popCount(failed));
    }

    /// Another delete may have come first, or a reaping.
    function _settleDelete(uint64 serviceId, uint64 callId, address operator) private {
        (uint64 targetCall, uint8 slot) = _target(serviceId, callId);
        Row storage row = _rows[serviceId][targetCall];
        uint256 bit = 1 << slot;
        if (row.gone & bit != 0) return;
        row.gone |= bit;
        _free(serviceId, row, operator, 1);
    }

    function _settleWorkflow(uint64 serviceId, uint64 callId, address operator, bool isDone) private {
        Workflows.Workflow storage workflow = _workflows[serviceId][callId];
        if (workflow.status != I.WorkflowStatus.Pending) return; // cancelled meanwhile
        workflow.status = isDone ? I.WorkflowStatus.Active : I.WorkflowStatus.Failed;
        if (isDone) _giveWorkflow(operator, serviceId, callId);
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
                _operators.hold(_services[serviceId].tenancy, operator, LibBit.popCount(receipt.detail));
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

    // ─── Reassignment ───────────────────────────────────────────────────────────────────────────────────────────────

    /// Gives an open call to another operator, with what it holds for it. False if it stays where it is.
    function _moveOn(uint64 serviceId, uint64 callId, Calls.Call memory call) private returns (bool) {
        if (call.epoch >= OPERATORS_MAX || CORE.getJobCall(serviceId, callId).isRFQ) return false;
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
        _setTried(serviceId, callId, call.epoch, number);
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
        if (isOrphan) _giveWorkflow(call.operator, serviceId, callId);
    }

    /// Only what nothing is bound to yet, and what is still wanted, can be another operator's.
    function _mayMove(uint64 serviceId, uint64 callId, Calls.Call memory call) private view returns (bool) {
        if (call.operator == address(0) || _services[serviceId].ended) return false;
        if (call.job == JOB_SANDBOX_CREATE) return _held(call, _rows[serviceId][callId]) != 0;
        if (call.job != JOB_WORKFLOW_CREATE) return false;
        I.WorkflowStatus status = _workflows[serviceId][callId].status;
        return status > I.WorkflowStatus.Unknown && status < I.WorkflowStatus.Active; // pending
    }

    function _isOrphan(uint64 serviceId, uint64 workflowId, address operator) private view returns (bool) {
        I.WorkflowStatus status = _workflows[serviceId][workflowId].status;
        bool isAlive = status > I.WorkflowStatus.Pending && status < I.WorkflowStatus.Cancelled; // active or paused
        return isAlive && !_services[serviceId].ended && !CORE.isServiceOperator(serviceId, operator);
    }
}
