// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {BlueprintManagerBase} from "./BlueprintManagerBase.sol";
import {IAgentSandboxBlueprint} from "./IAgentSandboxBlueprint.sol";
import {ITangleCore} from "./ITangleCore.sol";
import {
    JOB_EXEC,
    JOB_SANDBOX_CREATE,
    JOB_SANDBOX_DELETE,
    JobReceipt,
    OUTCOME_DONE,
    OperatorProfile,
    SelectionRequest
} from "./JobTypes.sol";
import {Operators} from "./Operators.sol";
import {Requests} from "./Requests.sol";
import {SandboxIds} from "./SandboxIds.sol";
import {Selection} from "./Selection.sol";

/// Chooses operators, assigns each call to one of them, and lets only that one's receipt complete it.
///
/// The prose is in `IAgentSandboxBlueprint`. What the core knows (members, ends and callers of services) is asked of the core when
/// it is needed and never copied: the hooks that would keep a copy fresh are best effort, and the extension of a service has none.
contract AgentSandboxBlueprint is BlueprintManagerBase, IAgentSandboxBlueprint {
    using Operators for Operators.Registry;

    // ─── Types ──────────────────────────────────────────────────────────────────────────────────────────────────────

    struct Service {
        bytes32 seed;
        bool ended; // terminated, and its slots freed
    }

    struct Call {
        address operator;
        uint64 deadlineBlock;
        uint8 job;
        bool answered;
        uint8 outcome;
        address caller;
        uint64 targetCall; // sandbox jobs: the call that created it
        uint8 targetSlot;
        bytes32 commitment; // keccak256 of the inputs; once answered, of the response
    }

    /// What one creating call asked for: slots 0 … slots − 1. Bitmaps are of slots.
    struct Row {
        address owner;
        uint64 expiryBlock;
        uint16 slots;
        address operator;
        uint256 standing; // take up the operator's capacity: neither failed, nor deleted, nor reaped
        uint256 created; // as the receipt says
    }

    // ─── Constants ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// Most operators of a service: the dearest loop over them, at termination, stays well below a hook's gas.
    uint256 public constant SERVICE_OPERATORS_MAX = 8;
    /// Most bytes of a job's inputs.
    uint256 public constant INPUT_BYTES_MAX = 65_536;

    /// How long an operator has to answer, per job. A command may itself run for 300 s.
    uint256 public constant CREATE_ANSWER_MS = 600_000;
    uint256 public constant DELETE_ANSWER_MS = 300_000;
    uint256 public constant EXEC_ANSWER_MS = 600_000;

    uint64 private constant NO_EXPIRY = type(uint64).max;
    uint256 private constant MS_PER_SECOND = 1000;

    // ─── Storage ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Mean time between blocks, which turns `ttl_blocks` into time and answer times into blocks.
    uint256 public immutable BLOCK_TIME_MS;
    uint64 public immutable deployedBlock;

    Operators.Registry private _operators;
    mapping(uint64 requestId => bytes32) private _requestSeeds;
    mapping(uint64 serviceId => Service) private _services;
    mapping(uint64 serviceId => mapping(uint64 callId => Call)) private _calls;
    mapping(uint64 serviceId => mapping(uint64 callId => Row)) private _rows;

    /// Whether the result in hand completes its call. `onJobResult` writes it, `getRequiredResultCount` reads it, back to back.
    bool private transient _accepted;

    // ─── Constructor ────────────────────────────────────────────────────────────────────────────────────────────────

    constructor(address core, address creator, uint64 blockTimeMs) BlueprintManagerBase(core, creator) {
        if (blockTimeMs == 0) revert InvalidDeployment();
        BLOCK_TIME_MS = blockTimeMs;
        deployedBlock = uint64(block.number);
    }

    // ─── Registration ───────────────────────────────────────────────────────────────────────────────────────────────

    function onRegister(address operator, bytes calldata registrationInputs) external payable override onlyCore {
        _operators.register(operator, Requests.profile(registrationInputs));
    }

    function onUnregister(address operator) external override onlyCore {
        _operators.unregister(operator);
    }

    function setOperatorProfile(uint32 capacity, uint256 pricePerHour, bytes32 sealKey, string calldata apiUrl)
        external
    {
        if (!_operators.operators[msg.sender].registered) revert NotRegistered(msg.sender);
        _operators.setProfile(msg.sender, OperatorProfile(capacity, pricePerHour, sealKey, apiUrl));
    }

    // ─── Services ───────────────────────────────────────────────────────────────────────────────────────────────────

    function onRequest(
        uint64 requestId,
        address,
        address[] calldata operators,
        bytes calldata requestInputs,
        uint64,
        address,
        uint256
    ) external payable override onlyCore {
        if (operators.length > SERVICE_OPERATORS_MAX) {
            revert TooManyOperators(operators.length, SERVICE_OPERATORS_MAX);
        }
        for (uint256 i; i < operators.length; ++i) {
            if (!_operators.isEligible(operators[i])) revert OperatorNotEligible(operators[i]);
        }

        bytes32 seed;
        if (requestInputs.length != 0) {
            SelectionRequest memory selection = Requests.selection(requestInputs);
            seed = selection.seed;
            if (selection.operatorCount != operators.length) {
                revert OperatorCountMismatch(selection.operatorCount, operators.length);
            }
            if (selection.enforceDeterministic) _requireDrawn(operators, seed);
        }
        // Written also when zero: services made from quotes all come with request id 0.
        _requestSeeds[requestId] = seed;
    }

    function onServiceInitialized(uint64, uint64 requestId, uint64 serviceId, address, address[] calldata, uint64)
        external
        override
        onlyCore
    {
        _services[serviceId].seed = _requestSeeds[requestId];
        delete _requestSeeds[requestId];
    }

    /// Frees the slots of the service by its operators: of its calls there is no bound.
    function onServiceTermination(uint64 serviceId, address) external override onlyCore {
        _services[serviceId].ended = true;
        address[] memory operators = CORE.getServiceOperators(serviceId);
        for (uint256 i; i < operators.length && i < SERVICE_OPERATORS_MAX; ++i) {
            _operators.releaseAll(serviceId, operators[i]);
        }
    }

    function onOperatorJoined(uint64 serviceId, address operator, uint16) external override onlyCore {
        _operators.setLeaving(serviceId, operator, false);
    }

    function onExitScheduled(uint64 serviceId, address operator, uint64) external override onlyCore {
        _operators.setLeaving(serviceId, operator, true);
    }

    function onExitCanceled(uint64 serviceId, address operator) external override onlyCore {
        _operators.setLeaving(serviceId, operator, false);
    }

    function canJoin(uint64 serviceId, address operator) external view override returns (bool) {
        return _operators.isEligible(operator) && CORE.getServiceOperators(serviceId).length < SERVICE_OPERATORS_MAX;
    }

    /// Nobody leaves sandboxes behind.
    function canLeave(uint64 serviceId, address operator) external view override returns (bool) {
        return !_operators.isHolding(serviceId, operator);
    }

    function reap(uint64 serviceId, uint64 callId) external {
        Row storage row = _rows[serviceId][callId];
        bool isDue = row.standing != 0 && !_services[serviceId].ended && _isOver(serviceId, row.expiryBlock);
        if (!isDue) revert NotReapable(serviceId, callId);

        uint32 freed = _giveBack(serviceId, row, type(uint256).max);

        emit Reaped(serviceId, callId, row.operator, freed);
    }

    // ─── Job calls ──────────────────────────────────────────────────────────────────────────────────────────────────

    /// Offered so far: create, delete and exec. The other live ids of `JobTypes.sol` follow; the reserved ones never do.
    function onJobCall(uint64 serviceId, uint8 job, uint64 callId, bytes calldata inputs)
        external
        payable
        override
        onlyCore
    {
        if (_services[serviceId].ended) revert UnknownService(serviceId);
        if (inputs.length > INPUT_BYTES_MAX) revert InputsTooLarge(inputs.length, INPUT_BYTES_MAX);
        if (job == JOB_SANDBOX_CREATE) _callCreate(serviceId, callId, inputs);
        else if (job == JOB_SANDBOX_DELETE) _callDelete(serviceId, callId, inputs);
        else if (job == JOB_EXEC) _callExec(serviceId, callId, inputs);
        else revert UnknownJob(job);
    }

    function _callCreate(uint64 serviceId, uint64 callId, bytes calldata inputs) private {
        uint64 expiryBlock = _expiryBlock(serviceId, Requests.create(inputs).ttl_blocks);
        (address caller, address quoted) = _submission(serviceId, callId);
        address operator = quoted == address(0) ? _drawFree(serviceId, callId) : quoted;
        if (operator == address(0) || !_operators.isFree(serviceId, operator)) revert NoCapacity(serviceId);

        Row storage row = _rows[serviceId][callId];
        (row.owner, row.expiryBlock, row.slots, row.operator) = (caller, expiryBlock, 1, operator);
        row.standing = _mask(1);
        _operators.hold(serviceId, operator, 1);
        Call storage call = _calls[serviceId][callId];
        (call.operator, call.caller) = (operator, caller);
        _assign(serviceId, callId, JOB_SANDBOX_CREATE, inputs, CREATE_ANSWER_MS);
    }

    /// A sandbox may be deleted after its expiry too, as long as nobody has reaped it.
    function _callDelete(uint64 serviceId, uint64 callId, bytes calldata inputs) private {
        _bindToSandbox(serviceId, callId, Requests.sandboxId(inputs, JOB_SANDBOX_DELETE).sandbox_id);
        _assign(serviceId, callId, JOB_SANDBOX_DELETE, inputs, DELETE_ANSWER_MS);
    }

    function _callExec(uint64 serviceId, uint64 callId, bytes calldata inputs) private {
        string calldata sandboxText = Requests.exec(inputs).sidecar_endpoint;
        Row storage row = _bindToSandbox(serviceId, callId, sandboxText);
        if (block.number > row.expiryBlock) revert SandboxExpired(sandboxText, row.expiryBlock);
        _assign(serviceId, callId, JOB_EXEC, inputs, EXEC_ANSWER_MS);
    }

    /// Binds the call to the operator that holds the live sandbox named by `text`. Refused to all but the sandbox's owner.
    function _bindToSandbox(uint64 serviceId, uint64 callId, string calldata text) private returns (Row storage row) {
        (bool ok, uint64 service, uint64 targetCall, uint8 slot) = SandboxIds.parse(bytes(text));
        row = _rows[serviceId][targetCall];
        bool isLive = ok && service == serviceId && (row.standing & row.created) >> slot & 1 == 1;
        if (!isLive) revert UnknownSandbox(text);
        (address caller, address quoted) = _submission(serviceId, callId);
        address holder = row.operator;
        if (caller != row.owner) revert NotSandboxOwner(text, caller);
        if (quoted != address(0) && quoted != holder) revert QuotedOperatorMismatch(holder, quoted);

        Call storage call = _calls[serviceId][callId];
        (call.operator, call.caller, call.targetCall, call.targetSlot) = (holder, caller, targetCall, slot);
    }

    /// Completes the record of a call whose operator and caller are set.
    function _assign(uint64 serviceId, uint64 callId, uint8 job, bytes calldata inputs, uint256 answerMs) private {
        Call storage call = _calls[serviceId][callId];
        call.job = job;
        // forge-lint: disable-next-line(unsafe-typecast)
        call.deadlineBlock = uint64(block.number + (answerMs + BLOCK_TIME_MS - 1) / BLOCK_TIME_MS);
        call.commitment = keccak256(inputs);

        emit OperatorAssigned(serviceId, callId, call.operator, call.deadlineBlock);
    }

    /// Who submitted the call, and whose quote it carries (zero: no RFQ call). The core stores both before the hook.
    function _submission(uint64 serviceId, uint64 callId) private view returns (address caller, address quoted) {
        ITangleCore.JobCall memory submitted = CORE.getJobCall(serviceId, callId);
        caller = submitted.caller;
        if (submitted.isRFQ) {
            address[] memory quotedOperators = CORE.getJobQuotedOperators(serviceId, callId);
            if (quotedOperators.length != 1) revert OneQuoteExpected(quotedOperators.length);
            quoted = quotedOperators[0];
        }
    }

    // ─── Job results ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Never reverts: the core would swallow it, and a revert also undoes the clearing of `_accepted`, which an earlier result of
    /// the same transaction may have set. Starving the hook of gas is such a revert but gains nothing: the hook costs less than
    /// 100,000, so the 1/64 that the core is left with cannot pay for completing a call.
    function onJobResult(
        uint64 serviceId,
        uint8 job,
        uint64 callId,
        address operator,
        bytes32 inputsHash,
        bytes calldata outputs
    ) external payable override onlyCore {
        _accepted = false;
        Call storage call = _calls[serviceId][callId];
        bool isDue = operator != address(0) && call.operator == operator && !call.answered && call.job == job
            && call.commitment == inputsHash && !_services[serviceId].ended;
        (bool isReceipt, JobReceipt memory receipt) = Requests.receipt(outputs);
        if (!isDue || !isReceipt || !_isPlausible(serviceId, callId, job, receipt)) {
            emit ResultIgnored(serviceId, callId, operator);
            return;
        }

        call.answered = true;
        call.outcome = receipt.outcome;
        call.commitment = receipt.responseHash;
        if (job == JOB_SANDBOX_CREATE) _settleCreate(serviceId, callId, receipt.detail);
        else if (job == JOB_SANDBOX_DELETE && receipt.outcome == OUTCOME_DONE) _settleDelete(serviceId, call);
        _accepted = true;

        emit ReceiptRecorded(serviceId, callId, operator, receipt.outcome, receipt.responseHash, receipt.detail);
    }

    function getRequiredResultCount(uint64, uint8) external view override returns (uint32) {
        return _accepted ? 1 : type(uint32).max;
    }

    /// A create that is done says which of its slots, at least one; every other receipt says nothing in `detail`.
    function _isPlausible(uint64 serviceId, uint64 callId, uint8 job, JobReceipt memory receipt)
        private
        view
        returns (bool)
    {
        if (job != JOB_SANDBOX_CREATE || receipt.outcome != OUTCOME_DONE) return receipt.detail == 0;
        return receipt.detail != 0 && receipt.detail & ~_mask(_rows[serviceId][callId].slots) == 0;
    }

    function _settleCreate(uint64 serviceId, uint64 callId, uint256 created) private {
        Row storage row = _rows[serviceId][callId];
        row.created = created;
        _giveBack(serviceId, row, ~created);
    }

    function _settleDelete(uint64 serviceId, Call storage call) private {
        _giveBack(serviceId, _rows[serviceId][call.targetCall], 1 << call.targetSlot);
    }

    /// Frees those of the slots that still stand: another delete may have come first, or a reaping. Returns how many.
    function _giveBack(uint64 serviceId, Row storage row, uint256 slots) private returns (uint32 freed) {
        uint256 standing = row.standing;
        freed = _count(standing & slots);
        if (freed == 0) return 0;
        row.standing = standing & ~slots;
        _operators.release(serviceId, row.operator, freed);
    }

    // ─── Choosing operators ─────────────────────────────────────────────────────────────────────────────────────────

    /// An operator of the service with a free slot, drawn by service, call and the service's seed; zero if there is none.
    function _drawFree(uint64 serviceId, uint64 callId) private view returns (address) {
        address[] memory operators = CORE.getServiceOperators(serviceId);
        uint256 free;
        for (uint256 i; i < operators.length && i < SERVICE_OPERATORS_MAX; ++i) {
            if (_operators.isFree(serviceId, operators[i])) operators[free++] = operators[i];
        }
        if (free == 0) return address(0);
        return operators[uint256(keccak256(abi.encode(serviceId, callId, _services[serviceId].seed))) % free];
    }

    function _requireDrawn(address[] calldata operators, bytes32 seed) private view {
        address[] memory drawn = previewOperatorSelection(uint32(operators.length), seed);
        for (uint256 i; i < operators.length; ++i) {
            if (operators[i] != drawn[i]) revert SelectionMismatch(i, drawn[i], operators[i]);
        }
    }

    // ─── Sandboxes ──────────────────────────────────────────────────────────────────────────────────────────────────

    function _expiryBlock(uint64 serviceId, uint64 ttlBlocks) private view returns (uint64) {
        if (ttlBlocks == 0) return NO_EXPIRY;
        uint256 end = _serviceEnd(CORE.getService(serviceId));
        uint256 expiryMs = block.timestamp * MS_PER_SECOND + ttlBlocks * BLOCK_TIME_MS;
        if (end != 0 && expiryMs > end * MS_PER_SECOND) revert OutlivesService(ttlBlocks, end);
        uint256 expiryBlock = block.number + ttlBlocks;
        // forge-lint: disable-next-line(unsafe-typecast)
        return expiryBlock < NO_EXPIRY ? uint64(expiryBlock) : NO_EXPIRY;
    }

    /// Whether the expiry block or the end of the service has passed.
    function _isOver(uint64 serviceId, uint64 expiryBlock) private view returns (bool) {
        if (block.number > expiryBlock) return true;
        ITangleCore.Service memory service = CORE.getService(serviceId);
        uint256 end = _serviceEnd(service);
        return service.terminatedAt != 0 || (end != 0 && block.timestamp > end);
    }

    /// In seconds since 1970; zero: perpetual.
    function _serviceEnd(ITangleCore.Service memory service) private pure returns (uint256) {
        return service.ttl == 0 ? 0 : uint256(service.createdAt) + service.ttl;
    }

    function _stateOf(uint64 serviceId, uint64 callId, uint8 slot) private view returns (SandboxState) {
        Row storage row = _rows[serviceId][callId];
        bool answered = _calls[serviceId][callId].answered;
        if (slot >= row.slots) return SandboxState.Unknown;
        if (answered && row.created >> slot & 1 == 0) return SandboxState.Failed;
        if (row.standing >> slot & 1 == 0 || _services[serviceId].ended) return SandboxState.Deleted;
        if (_isOver(serviceId, row.expiryBlock)) return SandboxState.Expired;
        return answered ? SandboxState.Live : SandboxState.Requested;
    }

    function _mask(uint16 slots) private pure returns (uint256) {
        return (1 << slots) - 1;
    }

    /// How many bits are set, one turn for each: at most the slots of a row.
    function _count(uint256 bits) private pure returns (uint32 count) {
        for (; bits != 0; bits &= bits - 1) {
            ++count;
        }
    }

    // ─── Views ──────────────────────────────────────────────────────────────────────────────────────────────────────

    function assignment(uint64 serviceId, uint64 callId) external view returns (Assignment memory) {
        Call storage call = _calls[serviceId][callId];
        return Assignment({
            operator: call.operator,
            caller: call.caller,
            deadlineBlock: call.deadlineBlock,
            job: call.job,
            answered: call.answered,
            outcome: call.outcome,
            responseHash: call.answered ? call.commitment : bytes32(0),
            detail: _rows[serviceId][callId].created // zero for calls that create nothing, as their receipts' details are
        });
    }

    function sandbox(uint64 serviceId, uint64 callId, uint8 slot) external view returns (SandboxView memory) {
        Row storage row = _rows[serviceId][callId];
        return SandboxView({
            owner: row.owner,
            operator: row.operator,
            expiryBlock: row.expiryBlock,
            state: _stateOf(serviceId, callId, slot)
        });
    }

    function operatorView(address operator) external view returns (OperatorView memory) {
        return _operators.view_(operator);
    }

    function serviceOperators(uint64 serviceId) external view returns (address[] memory) {
        return CORE.getServiceOperators(serviceId);
    }

    function previewOperatorSelection(uint32 count, bytes32 seed) public view returns (address[] memory) {
        uint256 eligible = _operators.eligible.length;
        if (count > SERVICE_OPERATORS_MAX) revert TooManyOperators(count, SERVICE_OPERATORS_MAX);
        if (count > eligible) revert NotEnoughOperators(count, eligible);
        return Selection.draw(_operators.eligible, count, seed);
    }

    function eligibleCount() external view returns (uint256) {
        return _operators.eligible.length;
    }
}
