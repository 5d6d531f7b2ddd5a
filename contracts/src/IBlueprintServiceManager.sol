// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

// What the Tangle core calls on a blueprint's manager: `cast interface` over `abi/IBlueprintServiceManager.json` of the crate
// tnt-core-bindings 0.20.0, unchanged but for this header. `test/data/manager-hooks.txt` lists the same ABI's selectors.

library Types {
    struct BinaryVersion {
        uint64 versionId;
        uint64 publishedAt;
        bool deprecated;
        bytes32 sha256Hash;
        bytes32 attestationHash;
    }
}

interface IBlueprintServiceManager {
    function canJoin(uint64 serviceId, address operator) external view returns (bool allowed);
    function canLeave(uint64 serviceId, address operator) external view returns (bool allowed);
    function computeBillAdjustmentBps(uint64 serviceId, uint64 periodStart, uint64 periodEnd)
        external
        view
        returns (uint16 adjustmentBps);
    function forceRemoveAllowsBelowMin(uint64 serviceId) external view returns (bool ok);
    function getAggregationThreshold(uint64 serviceId, uint8 jobIndex)
        external
        view
        returns (uint16 thresholdBps, uint8 thresholdType);
    function getExitConfig(uint64 serviceId)
        external
        view
        returns (bool useDefault, uint64 minCommitmentDuration, uint64 exitQueueDuration, bool forceExitAllowed);
    function getHeartbeatInterval(uint64 serviceId) external view returns (bool useDefault, uint64 interval);
    function getHeartbeatThreshold(uint64 serviceId) external view returns (bool useDefault, uint8 threshold);
    function getMinOperatorStake() external view returns (bool useDefault, uint256 minStake);
    function getNonPaymentTerminationPolicy(uint64 serviceId)
        external
        view
        returns (bool useDefault, uint64 graceIntervals);
    function getRequiredResultCount(uint64 serviceId, uint8 jobIndex) external view returns (uint32 required);
    function getSlashingWindow(uint64 serviceId) external view returns (bool useDefault, uint64 window);
    function onAggregatedResult(
        uint64 serviceId,
        uint8 job,
        uint64 jobCallId,
        bytes memory output,
        uint256 signerBitmap,
        uint256[2] memory aggregatedSignature,
        uint256[4] memory aggregatedPubkey
    ) external;
    function onApprove(address operator, uint64 requestId, uint8 stakingPercent) external payable;
    function onBinaryVersionPublished(uint64 blueprintId, Types.BinaryVersion memory version, string memory binaryUri)
        external;
    function onBlueprintCreated(uint64 blueprintId, address owner, address tangleCore) external;
    function onExitCanceled(uint64 serviceId, address operator) external;
    function onExitScheduled(uint64 serviceId, address operator, uint64 executeAfter) external;
    function onJobCall(uint64 serviceId, uint8 job, uint64 jobCallId, bytes memory inputs) external payable;
    function onJobResult(
        uint64 serviceId,
        uint8 job,
        uint64 jobCallId,
        address operator,
        bytes32 inputsHash,
        bytes memory outputs
    ) external payable;
    function onOperatorBinaryAcked(uint64 serviceId, uint64 versionId, address operator) external;
    function onOperatorJoined(uint64 serviceId, address operator, uint16 exposureBps) external;
    function onOperatorLeft(uint64 serviceId, address operator) external;
    function onRegister(address operator, bytes memory registrationInputs) external payable;
    function onReject(address operator, uint64 requestId) external;
    function onRequest(
        uint64 requestId,
        address requester,
        address[] memory operators,
        bytes memory requestInputs,
        uint64 ttl,
        address paymentAsset,
        uint256 paymentAmount
    ) external payable;
    function onServiceInitialized(
        uint64 blueprintId,
        uint64 requestId,
        uint64 serviceId,
        address owner,
        address[] memory permittedCallers,
        uint64 ttl
    ) external;
    function onServiceTermination(uint64 serviceId, address owner) external;
    function onSlash(uint64 serviceId, bytes memory offender, uint8 slashPercent) external;
    function onUnappliedSlash(uint64 serviceId, bytes memory offender, uint8 slashPercent) external;
    function onUnregister(address operator) external;
    function onUpdatePreferences(address operator, bytes memory newPreferences) external payable;
    function queryDeveloperPaymentAddress(uint64 serviceId)
        external
        view
        returns (address payable developerPaymentAddress);
    function queryDisputeOrigin(uint64 serviceId) external view returns (address disputeOrigin);
    function queryIsPaymentAssetAllowed(uint64 serviceId, address asset) external view returns (bool isAllowed);
    function querySlashingOrigin(uint64 serviceId) external view returns (address slashingOrigin);
    function requiresAggregation(uint64 serviceId, uint8 jobIndex) external view returns (bool required);
}
