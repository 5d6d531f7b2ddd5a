//! The contracts we talk to: the Tangle core as far as we use it, and our blueprint.
//!
//! The core's part is written out here instead of taken from its published ABI because that ABI declares `JobSubmitted`
//! with an indexed job id while the deployed core emits it unindexed, and because the published bindings cost a minute
//! of every build.

#![allow(missing_docs, unreachable_pub, clippy::too_many_arguments)] // generated; the prose stands with the contracts

use alloy::sol;

sol! {
    #[sol(rpc, all_derives)]
    interface ITangleCore {
        struct Asset { uint8 kind; address token; }
        struct SecurityCommitment { Asset asset; uint16 exposureBps; }
        struct TeeCommitment { uint8 backend; bytes32 expectedMeasurement; bytes32 nonceBinding; uint64 expiresAt; }
        struct Approval {
            uint64 requestId;
            SecurityCommitment[] securityCommitments;
            uint256[4] blsPubkey;
            uint256[2] blsPopSignature;
            TeeCommitment[] teeCommitments;
        }
        struct JobCall {
            uint8 jobIndex;
            address caller;
            uint64 createdAt;
            uint32 resultCount;
            bool completed;
            bool isRFQ;
            uint256 payment;
        }
        struct Service {
            uint64 blueprintId;
            address owner;
            uint64 createdAt;
            uint64 ttl;
            uint64 terminatedAt;
            uint64 lastPaymentAt;
            uint32 operatorCount;
            uint32 minOperators;
            uint32 maxOperators;
            uint8 membership;
            uint8 pricing;
            uint8 status;
            uint8 confidentiality;
        }
        struct ServiceRequest {
            uint64 blueprintId;
            address requester;
            uint64 createdAt;
            uint64 ttl;
            uint32 operatorCount;
            uint32 approvalCount;
            address paymentToken;
            uint256 paymentAmount;
            uint8 membership;
            uint32 minOperators;
            uint32 maxOperators;
            bool rejected;
            uint8 confidentiality;
            bool activated;
        }
        struct Blueprint { address owner; address manager; uint64 createdAt; uint8 membership; uint8 pricing; bool active; }

        struct BlueprintConfig {
            uint8 membership;
            uint8 pricing;
            uint32 minOperators;
            uint32 maxOperators;
            uint256 subscriptionRate;
            uint64 subscriptionInterval;
            uint256 eventRate;
        }
        struct BlueprintMetadata {
            string name;
            string description;
            string author;
            string category;
            string codeRepository;
            string logo;
            string website;
            string license;
            string profilingData;
        }
        struct JobDefinition { string name; string description; string metadataUri; bytes paramsSchema; bytes resultSchema; }
        struct ContainerSource { string registry; string image; string tag; }
        struct WasmSource { uint8 runtime; uint8 fetcher; string artifactUri; string entrypoint; }
        struct NativeSource { uint8 fetcher; string artifactUri; string entrypoint; }
        struct TestingSource { string cargoPackage; string cargoBin; string basePath; }
        struct BlueprintBinary { uint8 arch; uint8 os; string name; bytes32 sha256; }
        struct BlueprintSource {
            uint8 kind;
            ContainerSource container;
            WasmSource wasm;
            NativeSource native;
            TestingSource testing;
            BlueprintBinary[] binaries;
        }
        struct BlueprintDefinition {
            string metadataUri;
            bytes32 metadataHash;
            address manager;
            uint32 masterManagerRevision;
            bool hasConfig;
            BlueprintConfig config;
            BlueprintMetadata metadata;
            JobDefinition[] jobs;
            bytes registrationSchema;
            bytes requestSchema;
            BlueprintSource[] sources;
            uint8[] supportedMemberships;
        }

        /// What an operator signs to offer a job at a price. The operator is not in it, so that two offers that agree in every
        /// field are one to the core: see `quotes::Ledger`.
        struct JobQuoteDetails {
            address requester;
            uint64 serviceId;
            uint8 jobIndex;
            uint256 price;
            uint64 timestamp;
            uint64 expiry;
            uint8 confidentiality;
            bytes32 inputsHash;
        }
        struct SignedJobQuote { JobQuoteDetails details; bytes signature; address operator; }

        event JobSubmitted(uint64 indexed serviceId, uint64 indexed callId, uint8 jobIndex, address caller, bytes inputs);
        event JobSubmittedFromQuote(
            uint64 indexed serviceId,
            uint64 indexed callId,
            uint8 jobIndex,
            address caller,
            address[] quotedOperators,
            uint256 totalPrice,
            bytes inputs
        );
        event JobResultSubmitted(uint64 indexed serviceId, uint64 indexed callId, address indexed operator, bytes result);
        event JobCompleted(uint64 indexed serviceId, uint64 indexed callId);
        event BlueprintCreated(
            uint64 indexed blueprintId, address indexed owner, address manager, string metadataUri, bytes32 metadataHash
        );
        event ServiceRequested(
            uint64 indexed requestId, uint64 indexed blueprintId, address indexed requester, uint8 confidentiality
        );
        event ServiceActivated(
            uint64 indexed serviceId, uint64 indexed requestId, uint64 indexed blueprintId, uint8 confidentiality
        );
        event ServiceTerminated(uint64 indexed serviceId);
        event PaymentDistributed(
            uint64 indexed serviceId,
            uint64 indexed blueprintId,
            address indexed token,
            uint256 grossAmount,
            address developerRecipient,
            uint256 developerAmount,
            uint256 protocolAmount,
            uint256 operatorPoolAmount,
            uint256 stakerPoolAmount
        );

        error Unauthorized();
        error UnknownSelector(bytes4 selector);
        error BlueprintNotFound(uint64 blueprintId);
        error BlueprintNotActive(uint64 blueprintId);
        error NotBlueprintOwner(uint64 blueprintId, address caller);
        error BlueprintMetadataRequired();
        error BlueprintMetadataHashRequired();
        error BlueprintMetadataLocked(uint64 blueprintId);
        error BlueprintSourcesRequired();
        error BlueprintBinaryRequired();
        error BlueprintBinaryHashRequired();
        error OperatorNotRegistered(uint64 blueprintId, address operator);
        error OperatorAlreadyRegistered(uint64 blueprintId, address operator);
        error OperatorNotActive(address operator);
        error OperatorHasActiveServices(uint64 blueprintId, address operator);
        error OperatorRpcAddressRequired();
        error InsufficientStake(address operator, uint256 required, uint256 actual);
        error InvalidOperatorKey();
        error DuplicateOperatorKey(uint64 blueprintId, bytes32 keyHash);
        error ServiceRequestNotFound(uint64 requestId);
        error ServiceRequestAlreadyProcessed(uint64 requestId);
        error ServiceRequestExpiredError(uint64 requestId);
        error AlreadyApproved(uint64 requestId, address operator);
        error NoOperators();
        error InsufficientOperators(uint32 required, uint32 provided);
        error TooManyOperators(uint32 maximum, uint32 provided);
        error SecurityCommitmentsRequired(uint64 requestId);
        error InvalidTTL(uint64 ttl);
        error TTLBelowMinimum(uint64 ttl, uint64 minimum);
        error TTLAboveMaximum(uint64 ttl, uint64 maximum);
        error ServiceNotFound(uint64 serviceId);
        error ServiceNotActive(uint64 serviceId);
        error ServiceExpired(uint64 serviceId);
        error NotServiceOwner(uint64 serviceId, address caller);
        error NotPermittedCaller(uint64 serviceId, address caller);
        error OperatorNotInService(uint64 serviceId, address operator);
        error NotServiceOperator();
        error ExitAlreadyScheduled(uint64 serviceId, address operator);
        error InvalidState();
        error ExitTooEarly(uint64 serviceId, address operator, uint64 minCommitmentEnd, uint64 currentTime);
        error InvalidJobIndex(uint8 jobIndex);
        error JobCallNotFound(uint64 serviceId, uint64 callId);
        error JobAlreadyCompleted(uint64 serviceId, uint64 callId);
        error ResultAlreadySubmitted(uint64 serviceId, uint64 callId, address operator);
        error NotQuotedOperator(uint64 serviceId, uint64 callId);
        error AggregationRequired(uint64 serviceId, uint8 jobIndex);
        error SchemaValidationFailed(uint8 target, uint64 refId, uint64 auxId, uint256 path);
        error NoQuotes();
        error QuoteExpired(address operator, uint64 expiry);
        error QuoteTimestampTooOld(address operator, uint64 timestamp, uint64 maxAge);
        error QuoteAlreadyUsed(address operator);
        error InvalidQuoteSignature(address operator);
        error DuplicateOperatorQuote(address operator);
        error JobQuoteRequesterMismatch(address operator, address quoted, address sender);
        error JobQuoteInputsMismatch(address operator, bytes32 expectedInputsHash, bytes32 quotedInputsHash);
        error JobQuoteServiceMismatch(uint64 expected, uint64 quoted);
        error JobQuoteJobIndexMismatch(uint8 expected, uint8 quoted);
        error ECDSAInvalidSignature();
        error ECDSAInvalidSignatureLength(uint256 length);
        error ECDSAInvalidSignatureS(bytes32 s);
        error InvalidMsgValue(uint256 expected, uint256 given);
        error PaymentTooSmall(uint256 amount, uint256 minimumRequired);
        error PaymentFailed();
        error TokenNotAllowed(address token);
        error FeeOnTransferTokenRejected(address token);
        error SafeERC20FailedOperation(address token);
        error InvalidPaymentToken();
        error UpfrontPaymentNotAllowedForEventDriven();
        error ManagerReverted(address manager, bytes reason);
        error ManagerRejected(address manager);
        error EnforcedPause();

        function createBlueprint(BlueprintDefinition definition) external returns (uint64);
        function blueprintCount() external view returns (uint64);
        function getBlueprint(uint64 blueprintId) external view returns (Blueprint);
        function setJobEventRates(uint64 blueprintId, uint8[] jobIndexes, uint256[] rates) external;
        function setBlueprintSettlementAsset(uint64 blueprintId, address asset) external;
        function getBlueprintSettlementAsset(uint64 blueprintId) external view returns (address);
        function getJobEventRate(uint64 blueprintId, uint8 jobIndex) external view returns (uint256);
        function getBlueprintConfig(uint64 blueprintId) external view returns (BlueprintConfig);
        function blueprintMetadata(uint64 blueprintId)
            external
            view
            returns (BlueprintMetadata metadata, string metadataUri, bytes32 metadataHash);
        function updateBlueprint(uint64 blueprintId, string metadataUri, bytes32 metadataHash) external;
        function blueprintSourcesHash(uint64 blueprintId) external view returns (bytes32);
        function setBlueprintSources(uint64 blueprintId, BlueprintSource[] sources) external;

        function registerOperator(uint64 blueprintId, bytes ecdsaPublicKey, string rpcAddress, bytes registrationInputs) external;
        function isOperatorRegistered(uint64 blueprintId, address operator) external view returns (bool);

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
        function getServiceRequest(uint64 requestId) external view returns (ServiceRequest);
        function approveService(Approval params) external;
        function rejectService(uint64 requestId) external;
        function getService(uint64 serviceId) external view returns (Service);
        function serviceCount() external view returns (uint64);
        function isServiceOperator(uint64 serviceId, address operator) external view returns (bool);
        function isPermittedCaller(uint64 serviceId, address caller) external view returns (bool);
        function terminateService(uint64 serviceId) external;

        function submitJob(uint64 serviceId, uint8 jobIndex, bytes inputs) external payable returns (uint64);
        function submitJobFromQuote(uint64 serviceId, uint8 jobIndex, bytes inputs, SignedJobQuote[] quotes)
            external
            payable
            returns (uint64);
        function getJobCall(uint64 serviceId, uint64 callId) external view returns (JobCall);
        function getJobQuotedOperators(uint64 serviceId, uint64 callId) external view returns (address[]);
        function getJobQuotedPrice(uint64 serviceId, uint64 callId, address operator) external view returns (uint256);
        function submitResult(uint64 serviceId, uint64 callId, bytes result) external;
        function submitResults(uint64 serviceId, uint64[] callIds, bytes[] results) external;

        function pendingRewards(address account) external view returns (uint256);
        function rewardTokens(address account) external view returns (address[]);
        function claimRewards() external;
        function claimRewardsAll() external;
        function treasury() external view returns (address);
    }

    /// The core's rewards in tokens, apart because these names are overloaded there.
    #[sol(rpc, all_derives)]
    interface ITokenRewards {
        function pendingRewards(address account, address token) external view returns (uint256);
    }

    /// How an operator leaves a service of the core.
    #[sol(rpc, all_derives)]
    interface IExits {
        struct ExitRequest { uint64 serviceId; uint64 scheduledAt; uint64 executeAfter; bool pending; }

        function scheduleExit(uint64 serviceId) external;
        function executeExit(uint64 serviceId) external;
        function getExitRequest(uint64 serviceId, address operator) external view returns (ExitRequest);
        function operatorStatusRegistry() external view returns (address);
    }

    /// Where operators say that they are there.
    #[sol(rpc, all_derives)]
    interface IStatusRegistry {
        struct Metric { string name; uint256 value; }

        function submitHeartbeatDirect(uint64 serviceId, uint64 blueprintId, uint8 statusCode, bytes metrics) external;
        function decodeMetricPairs(bytes payload) external pure returns (Metric[] pairs);
        function getLastHeartbeat(uint64 serviceId, address operator) external view returns (uint256);
        function isOnline(uint64 serviceId, address operator) external view returns (bool);
    }

    /// What the blueprint says of its own time.
    #[sol(rpc)]
    interface IBlockTime {
        function BLOCK_TIME_MS() external view returns (uint256);
    }

    /// What the blueprint's base adds to the errors of its interface.
    #[sol(all_derives)]
    interface IManagerBase {
        error OnlyCore(address sender);
        error ForeignBlueprint(address owner, address core);
        error AlreadyBound(uint64 blueprintId);
        error InvalidDeployment();
    }

    /// What our contract was created with, and what it is bound to.
    #[sol(rpc)]
    interface IManagerFacts {
        function CORE() external view returns (address);
        function CREATOR() external view returns (address);
        function BLOCK_TIME_MS() external view returns (uint256);
        function isBound() external view returns (bool);
        function blueprintId() external view returns (uint64);
    }

    /// What amounts of a token are written with.
    #[sol(rpc)]
    interface IToken {
        function decimals() external view returns (uint8);
        function symbol() external view returns (string);
    }

    /// The part of the staking contract that makes an account an operator.
    #[sol(rpc)]
    interface IStaking {
        function registerOperatorWithAsset(address token, uint256 amount) external;
        function isOperatorActive(address operator) external view returns (bool);
        function getOperatorStake(address operator) external view returns (uint256);
    }

    #[sol(rpc, all_derives)]
    interface IERC20 {
        error ERC20InsufficientAllowance(address spender, uint256 allowance, uint256 needed);
        error ERC20InsufficientBalance(address sender, uint256 balance, uint256 needed);

        function approve(address spender, uint256 amount) external returns (bool);
        function allowance(address owner, address spender) external view returns (uint256);
        function balanceOf(address account) external view returns (uint256);
    }
}

sol!(
    #[sol(rpc, all_derives)]
    "../../contracts/src/IAgentSandboxBlueprint.sol"
);
