// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IBlueprintServiceManager, Types} from "./IBlueprintServiceManager.sol";
import {ITangleCore} from "./ITangleCore.sol";

/// A blueprint manager that answers every hook of the published ABI and changes nothing.
///
/// Hooks that may write are admitted for the core alone. A product overrides what it has an opinion on; every other answer is
/// the one with which the core falls back on its own defaults.
abstract contract BlueprintManagerBase is IBlueprintServiceManager {
    // ─── Errors ─────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Only the core may call a hook.
    error OnlyCore(address sender);
    /// The blueprint was created by somebody else, or names another core.
    error ForeignBlueprint(address owner, address core);
    /// This manager already serves a blueprint.
    error AlreadyBound(uint64 blueprintId);
    /// The core is not a contract, or the owner is the zero address.
    error InvalidDeployment();

    // ─── Storage ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The Tangle core, the only admitted caller of hooks.
    ITangleCore public immutable CORE;
    /// Who must create the blueprint. Anyone may name this manager in a blueprint of theirs; were the first to do so bound, a
    /// stranger could claim a fresh deployment before its owner does.
    address public immutable CREATOR;

    /// The one blueprint this manager serves, meaningful once `isBound`.
    uint64 public blueprintId;
    bool public isBound;

    modifier onlyCore() {
        _requireCore();
        _;
    }

    // ─── Constructor ────────────────────────────────────────────────────────────────────────────────────────────────

    constructor(address core, address creator) {
        if (core.code.length == 0 || creator == address(0)) revert InvalidDeployment();
        CORE = ITangleCore(core);
        CREATOR = creator;
    }

    /// A function and not the modifier's body, which is copied into each hook.
    function _requireCore() private view {
        if (msg.sender != address(CORE)) revert OnlyCore(msg.sender);
    }

    // ─── Blueprint and registration ─────────────────────────────────────────────────────────────────────────────────

    function onBlueprintCreated(uint64 id, address owner, address core) external virtual onlyCore {
        if (owner != CREATOR || core != address(CORE)) revert ForeignBlueprint(owner, core);
        if (isBound) revert AlreadyBound(blueprintId);
        blueprintId = id;
        isBound = true;
    }

    function onRegister(address, bytes calldata) external payable virtual onlyCore {}

    function onUnregister(address) external virtual onlyCore {}

    function onUpdatePreferences(address, bytes calldata) external payable virtual onlyCore {}

    function onBinaryVersionPublished(uint64, Types.BinaryVersion calldata, string calldata)
        external
        virtual
        onlyCore
    {}

    function onOperatorBinaryAcked(uint64, uint64, address) external virtual onlyCore {}

    // ─── Services ───────────────────────────────────────────────────────────────────────────────────────────────────

    function onRequest(uint64, address, address[] calldata, bytes calldata, uint64, address, uint256)
        external
        payable
        virtual
        onlyCore
    {}

    function onApprove(address, uint64, uint8) external payable virtual onlyCore {}

    function onReject(address, uint64) external virtual onlyCore {}

    function onServiceInitialized(uint64, uint64, uint64, address, address[] calldata, uint64)
        external
        virtual
        onlyCore
    {}

    function onServiceTermination(uint64, address) external virtual onlyCore {}

    function onOperatorJoined(uint64, address, uint16) external virtual onlyCore {}

    function onOperatorLeft(uint64, address) external virtual onlyCore {}

    function onExitScheduled(uint64, address, uint64) external virtual onlyCore {}

    function onExitCanceled(uint64, address) external virtual onlyCore {}

    // ─── Jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────

    function onJobCall(uint64, uint8, uint64, bytes calldata) external payable virtual onlyCore {}

    function onJobResult(uint64, uint8, uint64, address, bytes32, bytes calldata) external payable virtual onlyCore {}

    function onAggregatedResult(
        uint64,
        uint8,
        uint64,
        bytes calldata,
        uint256,
        uint256[2] calldata,
        uint256[4] calldata
    ) external virtual onlyCore {}

    // ─── Slashing ───────────────────────────────────────────────────────────────────────────────────────────────────

    function onUnappliedSlash(uint64, bytes calldata, uint8) external virtual onlyCore {}

    function onSlash(uint64, bytes calldata, uint8) external virtual onlyCore {}

    // ─── Answers: the core's own defaults ───────────────────────────────────────────────────────────────────────────

    function canJoin(uint64, address) external view virtual returns (bool) {
        return true;
    }

    function canLeave(uint64, address) external view virtual returns (bool) {
        return true;
    }

    function getRequiredResultCount(uint64, uint8) external view virtual returns (uint32) {
        return 1;
    }

    function requiresAggregation(uint64, uint8) external view virtual returns (bool) {
        return false;
    }

    function getAggregationThreshold(uint64, uint8) external view virtual returns (uint16, uint8) {
        return (0, 0);
    }

    function getMinOperatorStake() external view virtual returns (bool, uint256) {
        return (true, 0);
    }

    function getHeartbeatInterval(uint64) external view virtual returns (bool, uint64) {
        return (true, 0);
    }

    function getHeartbeatThreshold(uint64) external view virtual returns (bool, uint8) {
        return (true, 0);
    }

    function getSlashingWindow(uint64) external view virtual returns (bool, uint64) {
        return (true, 0);
    }

    function getExitConfig(uint64) external view virtual returns (bool, uint64, uint64, bool) {
        return (true, 0, 0, false);
    }

    function getNonPaymentTerminationPolicy(uint64) external view virtual returns (bool, uint64) {
        return (true, 0);
    }

    function forceRemoveAllowsBelowMin(uint64) external view virtual returns (bool) {
        return false;
    }

    /// The rate in full.
    function computeBillAdjustmentBps(uint64, uint64, uint64) external view virtual returns (uint16) {
        return 10_000;
    }

    function querySlashingOrigin(uint64) external view virtual returns (address) {
        return address(0);
    }

    function queryDisputeOrigin(uint64) external view virtual returns (address) {
        return address(0);
    }

    /// Zero: the blueprint's owner, also after it was handed over.
    function queryDeveloperPaymentAddress(uint64) external view virtual returns (address payable) {
        return payable(address(0));
    }

    function queryIsPaymentAssetAllowed(uint64, address) external view virtual returns (bool) {
        return true;
    }
}
