// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IBlueprintServiceManager} from "../src/IBlueprintServiceManager.sol";
import {ITangleCore, PRICING_EVENT_DRIVEN} from "../src/ITangleCore.sol";

/// As much of the Tangle core as the blueprint can tell from the real one: the order of its writes, hooks and questions, its gas cap,
/// and which hooks may refuse. No payments, schemas or stake, and of refusals only those without which the blueprint would be asked
/// what the real core never asks. That the real core behaves so is shown end to end elsewhere.
contract FakeCore is ITangleCore {
    event HookFailed(bytes4 selector);
    event JobResultSubmitted(uint64 indexed serviceId, uint64 indexed callId, address indexed operator, bytes result);
    event JobCompleted(uint64 indexed serviceId, uint64 indexed callId);

    error AlreadyAnswered();
    error ServiceNotActive();
    error ServiceNotFound();
    error NotQuoted();
    error QuotedTwice();
    error AggregationRequired();
    error NotMember();
    error MayNotLeave();
    error MayNotJoin();

    uint256 public constant HOOK_GAS_MAX = 500_000;
    uint256 private constant OPERATORS_MIN = 1;

    IBlueprintServiceManager public manager;
    uint64 public serviceCount;
    uint64 public requestCount;
    uint8 public pricing = PRICING_EVENT_DRIVEN;
    address public asset;
    address public blueprintOwner;

    mapping(uint64 => Service) private _services;
    mapping(uint64 => address[]) private _operators;
    mapping(uint64 => uint64) private _callCounts;
    mapping(uint64 => mapping(uint64 => JobCall)) private _calls;
    mapping(uint64 => mapping(uint64 => bytes32)) private _inputsHashes;
    mapping(uint64 => mapping(uint64 => address[])) private _quoted;
    mapping(uint64 => mapping(uint64 => mapping(address => bool))) private _hasAnswered;

    // ─── Hooks ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// One that may refuse.
    function _callManager(bytes memory payload) private {
        (bool ok, bytes memory reason) = _hook(payload);
        if (ok) return;
        assembly ("memory-safe") {
            revert(add(reason, 0x20), mload(reason))
        }
    }

    /// One that may not.
    function _tryCallManager(bytes memory payload) private {
        (bool ok,) = _hook(payload);
        if (!ok) emit HookFailed(bytes4(payload));
    }

    function _hook(bytes memory payload) internal virtual returns (bool, bytes memory) {
        return address(manager).call{gas: HOOK_GAS_MAX}(payload);
    }

    // ─── Blueprint and registration ─────────────────────────────────────────────────────────────────────────────────

    function createBlueprint(IBlueprintServiceManager manager_, uint64 id, address owner) external {
        (manager, blueprintOwner) = (manager_, owner);
        _callManager(abi.encodeCall(manager.onBlueprintCreated, (id, owner, address(this))));
    }

    /// Of the services to come.
    function setPricing(uint8 pricing_, address asset_) external {
        (pricing, asset) = (pricing_, asset_);
    }

    function handOver(address owner) external {
        blueprintOwner = owner;
    }

    function register(address operator, bytes calldata inputs) external {
        _callManager(abi.encodeCall(manager.onRegister, (operator, inputs)));
    }

    function unregister(address operator) external {
        _tryCallManager(abi.encodeCall(manager.onUnregister, (operator)));
    }

    // ─── Services ───────────────────────────────────────────────────────────────────────────────────────────────────

    /// Request and, as if every operator had approved at once, activation.
    function openService(address owner, address[] calldata operators, bytes calldata inputs, uint64 ttl)
        external
        returns (uint64)
    {
        return openPaidService(owner, operators, inputs, ttl, address(0), 0);
    }

    function openPaidService(
        address owner,
        address[] calldata operators,
        bytes calldata inputs,
        uint64 ttl,
        address paidIn,
        uint256 amount
    ) public returns (uint64 id) {
        _callManager(abi.encodeCall(manager.onRequest, (++requestCount, owner, operators, inputs, ttl, paidIn, amount)));
        id = ++serviceCount;
        _operators[id] = operators;
        _activate(id, owner, ttl);
    }

    function _activate(uint64 id, address owner, uint64 ttl) private {
        Service storage service = _services[id];
        (service.blueprintId, service.owner, service.createdAt) = (1, owner, uint64(block.timestamp));
        (service.ttl, service.pricing) = (ttl, pricing);
        _tryCallManager(
            abi.encodeCall(manager.onServiceInitialized, (1, requestCount, id, owner, new address[](0), ttl))
        );
    }

    function terminate(uint64 serviceId) external {
        _services[serviceId].terminatedAt = uint64(block.timestamp);
        _tryCallManager(abi.encodeCall(manager.onServiceTermination, (serviceId, msg.sender)));
    }

    /// As `extendServiceFromQuotes`, of which no hook tells.
    function extend(uint64 serviceId, uint64 moreSeconds) external {
        _services[serviceId].ttl += moreSeconds;
    }

    function join(uint64 serviceId, address operator) external {
        _requireActive(serviceId);
        if (isServiceOperator(serviceId, operator) || !manager.canJoin{gas: HOOK_GAS_MAX}(serviceId, operator)) {
            revert MayNotJoin();
        }
        _operators[serviceId].push(operator);
        _tryCallManager(abi.encodeCall(manager.onOperatorJoined, (serviceId, operator, 10_000)));
    }

    function scheduleExit(uint64 serviceId, address operator) external {
        _tryCallManager(abi.encodeCall(manager.onExitScheduled, (serviceId, operator, 0)));
    }

    function cancelExit(uint64 serviceId, address operator) external {
        _tryCallManager(abi.encodeCall(manager.onExitCanceled, (serviceId, operator)));
    }

    function leave(uint64 serviceId, address operator) external {
        if (!manager.canLeave{gas: HOOK_GAS_MAX}(serviceId, operator)) revert MayNotLeave();
        forceOut(serviceId, operator);
    }

    /// As a removal that the manager is not asked about.
    function forceOut(uint64 serviceId, address operator) public {
        _requireActive(serviceId);
        address[] storage members = _operators[serviceId];
        for (uint256 i; i < members.length; ++i) {
            if (members[i] != operator) continue;
            if (members.length == OPERATORS_MIN) revert MayNotLeave();
            members[i] = members[members.length - 1];
            members.pop();
            return _tryCallManager(abi.encodeCall(manager.onOperatorLeft, (serviceId, operator)));
        }
        revert NotMember();
    }

    // ─── Jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    function submitJob(uint64 serviceId, uint8 job, bytes calldata inputs) external returns (uint64) {
        return submitJobFromQuotes(serviceId, job, inputs, new address[](0));
    }

    function submitJobFromQuotes(uint64 serviceId, uint8 job, bytes calldata inputs, address[] memory quoted)
        public
        returns (uint64 callId)
    {
        _requireActive(serviceId);
        _requireQuotable(serviceId, quoted);
        callId = _callCounts[serviceId]++;
        _calls[serviceId][callId] = JobCall(job, msg.sender, uint64(block.timestamp), 0, false, quoted.length != 0);
        _inputsHashes[serviceId][callId] = keccak256(inputs);
        _quoted[serviceId][callId] = quoted;
        _callManager(abi.encodeCall(manager.onJobCall, (serviceId, job, callId, inputs)));
    }

    function submitResult(uint64 serviceId, uint64 callId, bytes calldata output) external {
        _submitResult(serviceId, callId, output);
    }

    function submitResults(uint64 serviceId, uint64[] calldata callIds, bytes[] calldata outputs) external {
        for (uint256 i; i < callIds.length; ++i) {
            _submitResult(serviceId, callIds[i], outputs[i]);
        }
    }

    function _submitResult(uint64 serviceId, uint64 callId, bytes calldata output) private {
        _requireActive(serviceId);
        JobCall storage call = _calls[serviceId][callId];
        if (call.completed || _hasAnswered[serviceId][callId][msg.sender]) revert AlreadyAnswered();
        if (!isServiceOperator(serviceId, msg.sender)) revert NotMember();
        if (call.isRFQ && !_isAmong(_quoted[serviceId][callId], msg.sender)) revert NotQuoted();
        if (manager.requiresAggregation{gas: HOOK_GAS_MAX}(serviceId, call.jobIndex)) revert AggregationRequired();
        _hasAnswered[serviceId][callId][msg.sender] = true;
        ++call.resultCount;

        bytes32 inputsHash = _inputsHashes[serviceId][callId];
        _tryCallManager(
            abi.encodeCall(manager.onJobResult, (serviceId, call.jobIndex, callId, msg.sender, inputsHash, output))
        );

        emit JobResultSubmitted(serviceId, callId, msg.sender, output);

        uint32 required = 1;
        try manager.getRequiredResultCount{gas: HOOK_GAS_MAX}(serviceId, call.jobIndex) returns (uint32 count) {
            required = count;
        } catch {}
        if (call.resultCount < required) return;
        call.completed = true;
        emit JobCompleted(serviceId, callId);
    }

    function _requireQuotable(uint64 serviceId, address[] memory quoted) private view {
        for (uint256 i; i < quoted.length; ++i) {
            if (!isServiceOperator(serviceId, quoted[i])) revert NotMember();
            for (uint256 j; j < i; ++j) {
                if (quoted[j] == quoted[i]) revert QuotedTwice();
            }
        }
    }

    function _requireActive(uint64 serviceId) private view {
        Service storage service = _services[serviceId];
        bool isOver = service.ttl != 0 && block.timestamp > uint256(service.createdAt) + service.ttl;
        if (service.terminatedAt != 0 || isOver) revert ServiceNotActive();
    }

    function _isAmong(address[] storage all, address one) private view returns (bool) {
        for (uint256 i; i < all.length; ++i) {
            if (all[i] == one) return true;
        }
        return false;
    }

    // ─── Questions ──────────────────────────────────────────────────────────────────────────────────────────────────

    function isCompleted(uint64 serviceId, uint64 callId) external view returns (bool) {
        return _calls[serviceId][callId].completed;
    }

    function getJobCall(uint64 serviceId, uint64 callId) external view returns (JobCall memory) {
        return _calls[serviceId][callId];
    }

    function getJobQuotedOperators(uint64 serviceId, uint64 callId) external view returns (address[] memory) {
        return _quoted[serviceId][callId];
    }

    function getService(uint64 serviceId) external view returns (Service memory) {
        if (_services[serviceId].createdAt == 0) revert ServiceNotFound();
        return _services[serviceId];
    }

    function getServiceOperators(uint64 serviceId) external view returns (address[] memory) {
        return _operators[serviceId];
    }

    function isServiceOperator(uint64 serviceId, address operator) public view returns (bool) {
        return _isAmong(_operators[serviceId], operator);
    }

    function getBlueprint(uint64) external view returns (Blueprint memory) {
        return Blueprint(blueprintOwner, address(manager), 0, 0, pricing);
    }

    function getJobEventRate(uint64, uint8 job) external pure returns (uint256) {
        return 1000 + uint256(job);
    }

    function getServicePaymentAsset(uint64) external view returns (address) {
        return asset;
    }
}
