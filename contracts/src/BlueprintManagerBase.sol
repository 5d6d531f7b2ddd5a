// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {CoreBound} from "./CoreBound.sol";
import {IBlueprintServiceManager} from "./IBlueprintServiceManager.sol";

/// The hooks of the published ABI that a manager needs no opinion on: they change nothing, or answer what makes the core fall back on its
/// own defaults. The others are the product's. Hooks that may write are admitted for the core alone.
abstract contract BlueprintManagerBase is CoreBound {
    /// The blueprint was created by somebody else, or names another core.
    error ForeignBlueprint(address owner, address core);
    /// This manager already serves a blueprint.
    error AlreadyBound(uint64 blueprintId);
    /// Neither a hook nor a function of this contract.
    error UnknownFunction(bytes4 selector);

    // ─── Blueprint and registration ─────────────────────────────────────────────────────────────────────────────────

    function onBlueprintCreated(uint64 id, address owner, address core) external onlyCore {
        if (owner != CREATOR || core != address(CORE)) revert ForeignBlueprint(owner, core);
        if (isBound) revert AlreadyBound(blueprintId);
        blueprintId = id;
        isBound = true;
    }

    // ─── Hooks that change nothing ──────────────────────────────────────────────────────────────────────────────────

    /// Named one by one, so that a hook of a later core fails, which the core takes for its default, instead of answering nothing.
    fallback() external {
        bytes4 hook = msg.sig;
        bool isHook = hook == IBlueprintServiceManager.onApprove.selector
            || hook == IBlueprintServiceManager.onReject.selector
            || hook == IBlueprintServiceManager.onUpdatePreferences.selector
            || hook == IBlueprintServiceManager.onBinaryVersionPublished.selector
            || hook == IBlueprintServiceManager.onOperatorBinaryAcked.selector
            || hook == IBlueprintServiceManager.onAggregatedResult.selector
            || hook == IBlueprintServiceManager.onUnappliedSlash.selector
            || hook == IBlueprintServiceManager.onSlash.selector;
        if (!isHook) revert UnknownFunction(hook);
        _requireCore();
    }

    // ─── Answers: the core's own defaults ───────────────────────────────────────────────────────────────────────────

    function requiresAggregation(uint64, uint8) external pure returns (bool) {
        return false;
    }

    function getAggregationThreshold(uint64, uint8) external pure returns (uint16, uint8) {
        return (0, 0);
    }

    function getMinOperatorStake() external pure returns (bool, uint256) {
        return (true, 0);
    }

    function getHeartbeatInterval(uint64) external pure returns (bool, uint64) {
        return (true, 0);
    }

    function getHeartbeatThreshold(uint64) external pure returns (bool, uint8) {
        return (true, 0);
    }

    function getSlashingWindow(uint64) external pure returns (bool, uint64) {
        return (true, 0);
    }

    function getExitConfig(uint64) external pure returns (bool, uint64, uint64, bool) {
        return (true, 0, 0, false);
    }

    function getNonPaymentTerminationPolicy(uint64) external pure returns (bool, uint64) {
        return (true, 0);
    }

    function forceRemoveAllowsBelowMin(uint64) external pure returns (bool) {
        return false;
    }

    /// The rate in full.
    function computeBillAdjustmentBps(uint64, uint64, uint64) external pure returns (uint16) {
        return 10_000;
    }

    function querySlashingOrigin(uint64) external pure returns (address) {
        return address(0);
    }

    function queryDisputeOrigin(uint64) external pure returns (address) {
        return address(0);
    }

    /// Zero: the blueprint's owner, also after it was handed over.
    function queryDeveloperPaymentAddress(uint64) external pure returns (address payable) {
        return payable(address(0));
    }

    function queryIsPaymentAssetAllowed(uint64, address) external pure returns (bool) {
        return true;
    }
}
