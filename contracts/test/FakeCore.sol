// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IBlueprintServiceManager} from "../src/IBlueprintServiceManager.sol";
import {ITangleCore} from "../src/ITangleCore.sol";

/// As much of the Tangle core as the blueprint can tell from the real one: the order of its writes, hooks and questions, its gas cap,
/// and which hooks may refuse. No payments, schemas or stake, and of refusals only that of a second answer: what else the core would refuse first, the
/// blueprint meets here. That the real core behaves so is shown end to end elsewhere.
contract FakeCore is ITangleCore {
    event HookFailed(bytes4 selector);

    error AlreadyAnswered();

    uint256 public constant HOOK_GAS_MAX = 500_000;

    IBlueprintServiceManager public manager;
    uint64 public serviceCount;
    uint64 public requestCount;

    mapping(uint64 => Service) private _services;
    mapping(uint64 => address[]) private _operators;
    mapping(uint64 => uint64) private _callCounts;
    mapping(uint64 => mapping(uint64 => JobCall)) private _calls;
    mapping(uint64 => mapping(uint64 => bytes32)) private _inputsHashes;
    mapping(uint64 => mapping(uint64 => address[])) private _quoted;
    mapping(uint64 => mapping(uint64 => mapping(address => bool))) private _hasAnswered;

    function createBlueprint(IBlueprintServiceManager manager_, uint64 id, address owner) external {
        manager = manager_;
        manager.onBlueprintCreated{gas: HOOK_GAS_MAX}(id, owner, address(this));
    }

    function register(address operator, bytes calldata inputs) external {
        manager.onRegister{gas: HOOK_GAS_MAX}(operator, inputs);
    }

    function unregister(address operator) external {
        try manager.onUnregister{gas: HOOK_GAS_MAX}(operator) {}
        catch {
            emit HookFailed(manager.onUnregister.selector);
        }
    }

    /// Request and, as if every operator had approved at once, activation.
    function openService(address owner, address[] calldata operators, bytes calldata inputs, uint64 ttl)
        external
        returns (uint64 id)
    {
        uint64 requestId = ++requestCount;
        manager.onRequest{gas: HOOK_GAS_MAX}(requestId, owner, operators, inputs, ttl, address(0), 0);
        id = ++serviceCount;
        _operators[id] = operators;
        _services[id] =
            Service({blueprintId: 1, owner: owner, createdAt: uint64(block.timestamp), ttl: ttl, terminatedAt: 0});
        manager.onServiceInitialized{gas: HOOK_GAS_MAX}(1, requestId, id, owner, new address[](0), ttl);
    }

    function terminate(uint64 serviceId) external {
        _services[serviceId].terminatedAt = uint64(block.timestamp);
        try manager.onServiceTermination{gas: HOOK_GAS_MAX}(serviceId, msg.sender) {}
        catch {
            emit HookFailed(manager.onServiceTermination.selector);
        }
    }

    /// As `extendServiceFromQuotes`, of which no hook tells.
    function extend(uint64 serviceId, uint64 moreSeconds) external {
        _services[serviceId].ttl += moreSeconds;
    }

    function submitJob(uint64 serviceId, uint8 job, bytes calldata inputs) external returns (uint64) {
        return submitJobFromQuotes(serviceId, job, inputs, new address[](0));
    }

    function submitJobFromQuotes(uint64 serviceId, uint8 job, bytes calldata inputs, address[] memory quoted)
        public
        returns (uint64 callId)
    {
        callId = _callCounts[serviceId]++;
        _calls[serviceId][callId] = JobCall(job, msg.sender, uint64(block.timestamp), 0, false, quoted.length != 0);
        _inputsHashes[serviceId][callId] = keccak256(inputs);
        _quoted[serviceId][callId] = quoted;
        manager.onJobCall{gas: HOOK_GAS_MAX}(serviceId, job, callId, inputs);
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
        JobCall storage call = _calls[serviceId][callId];
        if (call.completed || _hasAnswered[serviceId][callId][msg.sender]) revert AlreadyAnswered();
        _hasAnswered[serviceId][callId][msg.sender] = true;
        ++call.resultCount;

        bytes32 inputsHash = _inputsHashes[serviceId][callId];
        try manager.onJobResult{gas: HOOK_GAS_MAX}(serviceId, call.jobIndex, callId, msg.sender, inputsHash, output) {}
        catch {
            emit HookFailed(manager.onJobResult.selector);
        }

        uint32 required = 1;
        try manager.getRequiredResultCount{gas: HOOK_GAS_MAX}(serviceId, call.jobIndex) returns (uint32 count) {
            required = count;
        } catch {}
        if (call.resultCount >= required) call.completed = true;
    }

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
        return _services[serviceId];
    }

    function getServiceOperators(uint64 serviceId) external view returns (address[] memory) {
        return _operators[serviceId];
    }
}
