// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";

import {Batches} from "./Batches.sol";
import {Calls} from "./Calls.sol";
import {CoreBound} from "./CoreBound.sol";
import {Holdings} from "./Holdings.sol";
import {IAgentSandboxBlueprint} from "./IAgentSandboxBlueprint.sol";
import {ITangleCore} from "./ITangleCore.sol";
import {JobTable} from "./JobTable.sol";
import {Load, OPERATORS_MAX, Operators} from "./Operators.sol";
import {Workflows} from "./Workflows.sol";

/// What the blueprint remembers, and what both of its halves do with it: `AgentSandboxBlueprint` and `AgentSandboxAnnex`, whose code runs
/// on the first one's storage. All storage is declared here and in `CoreBound`, so that the two have one layout.
///
/// What the core knows (members, callers and ends of services) is asked of the core when it is needed and never copied: the hooks
/// that would keep a copy fresh are best effort, and the extension of a service has none.
abstract contract State is CoreBound {
    using Batches for Batches.Batch;
    using Calls for Calls.Slot;
    using Holdings for Holdings.List;
    using Operators for Operators.Registry;

    // ─── Limits ─────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Most bytes of a job's inputs.
    uint256 internal constant INPUTS_MAX = 65_536;
    /// Most sandboxes of a batch create; a slot is a byte, a row's slots a word.
    uint256 internal constant SANDBOXES_MAX = 200;
    /// Most endpoints of another batch.
    uint256 internal constant ENDPOINTS_MAX = 128;
    /// Most entries of a page or report.
    uint256 internal constant ENTRIES_MAX = 100;

    uint40 internal constant NO_EXPIRY = type(uint40).max;
    uint256 internal constant MS_PER_SECOND = 1000;

    // ─── Types ──────────────────────────────────────────────────────────────────────────────────────────────────────

    struct Service {
        bytes32 seed;
        bool opened; // keeps the word from being zero, so that ending costs a quarter
        bool ended; // terminated, and its slots freed
        Operators.Tenancy tenancy;
    }

    /// What one creating call asked for: slots 0 … slots − 1. Bitmaps are of slots.
    struct Row {
        address owner;
        uint40 expiryBlock;
        uint40 sinceBlock; // of the assignment
        uint16 slots;
        uint256 created; // as the receipts say
        uint256 gone; // deleted or reaped
    }

    // ─── Storage ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Mean time between blocks, which turns `ttl_blocks` into time and answer times into blocks.
    uint256 public immutable BLOCK_TIME_MS;

    Operators.Registry internal _operators;
    mapping(uint64 requestId => bytes32) internal _requestSeeds;
    mapping(uint64 serviceId => Service) internal _services;
    mapping(uint64 serviceId => mapping(uint64 callId => Calls.Slot)) internal _calls;
    /// Once a call is answered the hash of its response; until then, of a delete what it is to free. The word is written twice for the price
    /// of once and a bit.
    mapping(uint64 serviceId => mapping(uint64 callId => bytes32)) internal _memos;
    mapping(uint64 serviceId => mapping(uint64 callId => Row)) internal _rows;
    mapping(uint64 serviceId => mapping(uint64 callId => Batches.Batch)) internal _batches;
    mapping(uint64 serviceId => mapping(uint64 callId => uint32[OPERATORS_MAX])) internal _tried; // numbers that had the call before, by epoch
    mapping(uint64 serviceId => mapping(uint64 callId => Workflows.Workflow)) internal _workflows;
    /// Service and call ids of the workflows that an operator was ever given, 64 bits each: append-only, so that pages stay put.
    mapping(address operator => uint128[]) internal _workflowsOf;
    /// The block in which an operator last left a service, with what it held then.
    mapping(uint64 serviceId => mapping(address operator => uint256)) internal _leftAt;
    address internal _floorAsset;
    uint256 internal _floorPerOperatorHour;

    constructor(uint64 blockTimeMs) {
        if (blockTimeMs == 0) revert InvalidDeployment();
        BLOCK_TIME_MS = blockTimeMs;
    }

    // ─── Assignments ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Who submitted the call, and whether it carries quotes: two words of the struct that `CORE.getJobCall` gives. Every call asks this, and
    /// to decode the rest would cost a thirtieth of the cheapest one's hook.
    function _submission(uint64 serviceId, uint64 callId) internal view returns (address sender, bool isRFQ) {
        address core = address(CORE);
        bytes memory question = abi.encodeCall(ITangleCore.getJobCall, (serviceId, callId));
        assembly ("memory-safe") {
            let answer := mload(0x40)
            if iszero(staticcall(gas(), core, add(question, 0x20), mload(question), answer, 0xc0)) {
                returndatacopy(answer, 0, returndatasize())
                revert(answer, returndatasize())
            }
            sender := mload(add(answer, 0x20))
            isRFQ := mload(add(answer, 0xa0))
        }
    }

    function _deadline(uint8 job) internal view returns (uint40) {
        // forge-lint: disable-next-line(unsafe-typecast)
        return uint40(block.number + (JobTable.answerMs(job) + BLOCK_TIME_MS - 1) / BLOCK_TIME_MS);
    }

    // ─── Writing what one half alone writes ─────────────────────────────────────────────────────────────────────────
    // Here all the same, so that what the halves share can be read in one place.

    function _openService(uint64 serviceId, uint64 requestId) internal {
        Service storage service = _services[serviceId];
        (service.seed, service.opened) = (_requestSeeds[requestId], true);
        service.tenancy.holdings.open();
        delete _requestSeeds[requestId];
    }

    function _setTarget(uint64 serviceId, uint64 callId, uint64 targetCall, uint8 slot) internal {
        _memos[serviceId][callId] = bytes32(uint256(targetCall) << 8 | slot);
    }

    function _target(uint64 serviceId, uint64 callId) internal view returns (uint64 targetCall, uint8 slot) {
        uint256 memo = uint256(_memos[serviceId][callId]);
        // forge-lint: disable-next-line(unsafe-typecast)
        return (uint64(memo >> 8), uint8(memo));
    }

    function _setTried(uint64 serviceId, uint64 callId, uint256 epoch, uint256 number) internal {
        // forge-lint: disable-next-line(unsafe-typecast)
        _tried[serviceId][callId][epoch] = uint32(number);
    }

    function _setResponse(uint64 serviceId, uint64 callId, bytes32 responseHash) internal {
        _memos[serviceId][callId] = responseHash;
    }

    function _giveWorkflow(address operator, uint64 serviceId, uint64 workflowId) internal {
        _workflowsOf[operator].push(uint128(serviceId) << 64 | workflowId);
    }

    function _noteLeft(uint64 serviceId, address operator) internal {
        _leftAt[serviceId][operator] = block.number;
    }

    function _setFloor(address asset, uint256 perOperatorHour) internal {
        (_floorAsset, _floorPerOperatorHour) = (asset, perOperatorHour);
    }

    // ─── Choosing operators ─────────────────────────────────────────────────────────────────────────────────────────

    /// An operator of the service that may be given something new, and is neither `except` nor had the call before; zero if there is none.
    /// The members are drawn one after another, as `Selection` does, until one will do: every such operator is equally likely.
    function _drawFree(uint64 serviceId, uint64 callId, uint16 epoch, uint256 except) internal view returns (address) {
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

    function _freeSlots(uint64 serviceId, address operator) internal view returns (uint256) {
        return Operators.freeSlots(_operators.load(operator), _services[serviceId].tenancy.leaving);
    }

    // ─── Slots ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Who holds a slot, or is to make it; zero for one that the call has not.
    function _holder(uint64 serviceId, uint64 callId, uint256 slot) internal view returns (address) {
        Calls.Call memory call = _calls[serviceId][callId].load();
        if (call.parts == 0) return call.operator;
        // Of no part the number is zero, and of zero the account.
        return _operators.accounts[_batches[serviceId][callId].findSlot(call.parts, slot).number];
    }

    /// The slots that take up capacity: of a single create from the assignment on, of a batch once a receipt names them.
    function _held(Calls.Call memory call, Row storage row) internal view returns (uint256) {
        bool isPromised = call.parts == 0 && !call.answered;
        return (isPromised ? _mask(row.slots) : row.created) & ~row.gone;
    }

    /// Frees slots of an operator, unless its leaving or the end of the service has freed them.
    function _free(uint64 serviceId, Row storage row, address operator, uint256 slots)
        internal
        returns (uint256 freed)
    {
        Service storage service = _services[serviceId];
        if (service.ended || _isLost(serviceId, row, operator)) return 0;
        return _operators.release(service.tenancy, operator, slots);
    }

    function _isLost(uint64 serviceId, Row storage row, address operator) internal view returns (bool) {
        uint256 leftAt = _leftAt[serviceId][operator];
        return leftAt != 0 && leftAt >= row.sinceBlock;
    }

    function _mask(uint256 slots) internal pure returns (uint256) {
        return (1 << slots) - 1;
    }

    // ─── Services ───────────────────────────────────────────────────────────────────────────────────────────────────

    function _isServiceOwner(uint64 serviceId, address caller) internal view returns (bool) {
        return CORE.getService(serviceId).owner == caller;
    }

    /// In seconds since 1970; zero: perpetual.
    function _serviceEnd(ITangleCore.Service memory service) internal pure returns (uint256) {
        return service.ttl == 0 ? 0 : uint256(service.createdAt) + service.ttl;
    }

    /// The least that a service costs; begun hours count whole.
    function _floor(uint256 operatorCount, uint64 ttl) internal view returns (uint256) {
        uint256 perOperatorHour = _floorPerOperatorHour;
        if (perOperatorHour == 0) return 0;
        if (ttl == 0) revert IAgentSandboxBlueprint.NoPriceWithoutEnd();
        return perOperatorHour * operatorCount * Math.ceilDiv(ttl, 1 hours);
    }
}
