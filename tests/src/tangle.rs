//! What the tests ask of the Tangle core beyond what our clients do: its hooks, its exits, its bills.

#![allow(missing_docs, unreachable_pub, clippy::too_many_arguments)] // generated; the prose stands with the core

use alloy::sol;

sol! {
    #[sol(rpc, all_derives)]
    interface ICore {
        struct Asset { uint8 kind; address token; }
        struct Commitment { Asset asset; uint16 exposureBps; }
        struct Escrow {
            address token;
            uint256 balance;
            uint256 totalDeposited;
            uint256 totalReleased;
            uint256 reserved;
            uint256 subscriptionBaselineStake;
        }

        event ManagerHookFailed(address indexed manager, bytes4 indexed selector, bytes returnData);
        event OperatorRewardAccrued(
            uint64 indexed serviceId, address indexed operator, address indexed token, uint64 blueprintId, uint256 amount
        );

        function managerHookGasLimit() external view returns (uint256);
        function paymentSplit() external view returns (uint16, uint16, uint16, uint16, uint16);
        function getServiceOperators(uint64 serviceId) external view returns (address[] memory);
        function getServiceEscrow(uint64 serviceId) external view returns (Escrow memory);

        function requestService(
            uint64 blueprintId,
            address[] operators,
            bytes config,
            address[] permittedCallers,
            uint64 ttl,
            address paymentToken,
            uint256 paymentAmount,
            uint8 confidentiality
        ) external payable returns (uint64);
        function terminateService(uint64 serviceId) external;
        function addPermittedCaller(uint64 serviceId, address caller) external;
        function joinServiceWithCommitments(uint64 serviceId, uint16 exposureBps, Commitment[] commitments) external;
        function scheduleExit(uint64 serviceId) external;
        function executeExit(uint64 serviceId) external;
        function cancelExit(uint64 serviceId) external;
        function forceExit(uint64 serviceId, address operator) external;
        function forceRemoveOperator(uint64 serviceId, address operator) external;
        function unregisterOperator(uint64 blueprintId) external;

        function billSubscription(uint64 serviceId) external;
        function fundService(uint64 serviceId, uint256 amount) external payable;
        function withdrawRemainingEscrow(uint64 serviceId) external;

        error ExitTooEarly(uint64 serviceId, address operator, uint64 minCommitmentEnd, uint64 currentTime);
        error ForceExitNotAllowed(uint64 serviceId);
        error SubscriptionPeriodUnbilled(uint64 serviceId);
        error InvalidState();
    }

    /// The hooks of a blueprint's manager that the tests weigh.
    interface IHooks {
        function onRequest(
            uint64 requestId,
            address requester,
            address[] operators,
            bytes requestInputs,
            uint64 ttl,
            address paymentAsset,
            uint256 paymentAmount
        ) external payable;
        function onServiceInitialized(
            uint64 blueprintId,
            uint64 requestId,
            uint64 serviceId,
            address owner,
            address[] permittedCallers,
            uint64 ttl
        ) external;
        function onServiceTermination(uint64 serviceId, address owner) external;
        function onRegister(address operator, bytes registrationInputs) external payable;
        function onOperatorJoined(uint64 serviceId, address operator, uint16 exposureBps) external;
        function onExitScheduled(uint64 serviceId, address operator, uint64 executeAfter) external;
        function onOperatorLeft(uint64 serviceId, address operator) external;
        function onJobCall(uint64 serviceId, uint8 job, uint64 jobCallId, bytes inputs) external payable;
        function onJobResult(
            uint64 serviceId, uint8 job, uint64 jobCallId, address operator, bytes32 inputsHash, bytes outputs
        ) external payable;
    }

    /// The staking contract, where an operator may also try to leave.
    interface IStakes {
        function startLeaving() external;
        function scheduleOperatorUnstake(uint256 amount) external;
    }

    /// The snapshot's tokens.
    interface IMintable {
        function mint(address to, uint256 amount) external;
        function transfer(address to, uint256 amount) external returns (bool);
    }
}
