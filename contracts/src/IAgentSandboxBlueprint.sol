// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// What customers, operators and their clients read and catch. The prose of the contract lives here.
///
/// This interface holds no type of another file, so that the Rust clients are generated from it alone.
/// Calls are keyed `(serviceId, callId)`: the core numbers calls per service. A sandbox is keyed by the call that created it
/// and its slot in that call, written `sbx-<service>-<call>-<slot>`; a workflow by its service and the call that created it.
interface IAgentSandboxBlueprint {
    // ─── Types: calls and sandboxes ─────────────────────────────────────────────────────────────────────────────────

    /// One job call: who must answer it, until when, and what the answer was.
    struct Assignment {
        address operator; // zero: no such call of this blueprint, or a batch, whose `parts` say who
        address caller;
        uint64 deadlineBlock; // last block in which an answer is expected
        uint8 job;
        bool answered;
        uint8 outcome; // meaningful only when answered; of a batch the worst of its parts
        bytes32 responseHash; // likewise; zero for batches, whose receipts are in `ReceiptRecorded`
        uint256 detail; // creates: the slots created so far
        uint16 epoch; // how often the call was assigned anew
        uint8 parts; // batches: how many operators must answer; otherwise 0
        uint8 answers; // batches: how many of them have
    }

    /// One operator's part of a batch.
    struct Part {
        address operator;
        bool answered;
        uint8 outcome; // meaningful only when answered
        uint8 firstSlot; // batch create: its share is `slots` slots from here on; otherwise both are 0
        uint8 slots;
    }

    /// Where a sandbox slot is in its life, as far as the chain knows.
    enum SandboxState {
        Unknown, // never requested
        Requested, // assigned, no receipt yet
        Live,
        Failed, // its create was answered, and it is not among those created
        Deleted, // also by the end of its service
        Expired, // past its expiry block, not yet deleted
        Lost // its operator has left the service
    }

    /// One sandbox slot.
    struct SandboxView {
        address owner;
        address operator;
        uint64 expiryBlock; // type(uint64).max: until the service ends
        SandboxState state;
    }

    // ─── Types: operators and services ──────────────────────────────────────────────────────────────────────────────

    /// An operator as customers see it.
    struct OperatorView {
        address account;
        uint32 capacity;
        uint32 used;
        uint256 pricePerHour;
        bytes32 sealKey;
        string apiUrl;
        bool registered;
        bool paused; // by itself: takes nothing new
        bool eligible; // in the set that selections are drawn from
    }

    /// A service and what its operators hold.
    struct ServiceView {
        address owner;
        uint64 createdAt; // seconds since 1970
        uint64 ttl; // seconds; zero: perpetual
        bool active; // neither terminated nor past its ttl
        bytes32 seed; // of its request; draws of operators for its calls depend on it
        address[] operators;
        uint32[] held; // slots that each of `operators` holds for this service
        uint32 sandboxes; // slots held in all
    }

    /// A job id that is offered.
    struct JobView {
        uint8 id;
        string name;
        uint256 rate; // in the blueprint's settlement asset, for one plain call of an event-driven service
    }

    // ─── Types: workflows ───────────────────────────────────────────────────────────────────────────────────────────

    enum WorkflowStatus {
        Unknown,
        Pending, // no receipt yet
        Active,
        Paused, // by its owner
        Cancelled,
        Failed // answered with another outcome than done
    }

    enum WorkflowTrigger {
        Manual,
        Cron,
        Webhook,
        Event
    }

    /// A workflow's row. Its body is the inputs of the call that created it, in the core's `JobSubmitted` log of `bodyBlock`.
    struct WorkflowView {
        uint64 serviceId;
        uint64 workflowId; // call id of its create
        address owner;
        address operator; // who fires it
        uint16 epoch; // grows when it moves to another operator: one that knows a smaller epoch must not fire
        WorkflowStatus status;
        WorkflowTrigger trigger;
        uint64 lastTriggered; // seconds since 1970; zero: never
        uint64 bodyBlock;
        bytes32 bodyHash; // keccak256 of those inputs
        string triggerConfig;
    }

    /// The rest of a workflow, if it was small enough to be stored.
    struct WorkflowBody {
        bool stored; // false: fetch the log
        string name;
        string workflowJson;
        string sandboxConfigJson;
    }

    /// A firing that its operator reports.
    struct Firing {
        uint64 serviceId;
        uint64 workflowId;
        uint16 epoch;
        uint64 at; // seconds since 1970
    }

    // ─── Events ─────────────────────────────────────────────────────────────────────────────────────────────────────

    /// `operator` must answer the call by `deadlineBlock`; every other operator leaves it alone.
    event OperatorAssigned(
        uint64 indexed serviceId, uint64 indexed callId, address indexed operator, uint64 deadlineBlock
    );

    /// So many operators must each answer the batch by `deadlineBlock`; `parts` says who, and with which slots.
    event BatchAssigned(uint64 indexed serviceId, uint64 indexed callId, uint8 parts, uint64 deadlineBlock);

    /// The call is no longer `from`'s: its deadline has passed, it answered with an operator's failure, or it left the service.
    /// An `OperatorAssigned` for its successor goes with it.
    event CallReassigned(uint64 indexed serviceId, uint64 indexed callId, address indexed from, uint16 epoch);

    /// An assigned operator's answer. Only such answers complete a call and move money; a batch takes one of each operator.
    event ReceiptRecorded(
        uint64 indexed serviceId,
        uint64 indexed callId,
        address indexed operator,
        uint8 outcome,
        bytes32 responseHash,
        uint256 detail
    );

    /// A result that changed nothing: not an assigned operator's, not a receipt, or of a call already answered.
    event ResultIgnored(uint64 indexed serviceId, uint64 indexed callId, address indexed operator);

    /// The sandboxes of a creating call were given up after their expiry; their operators' slots are free again.
    event Reaped(uint64 indexed serviceId, uint64 indexed callId, uint32 slots);

    /// The operator left the service while it held sandboxes of it: they are lost, its slots are free again.
    event SandboxesLost(uint64 indexed serviceId, address indexed operator, uint32 slots);

    /// An operator's profile was set or replaced.
    event OperatorProfileSet(
        address indexed operator, uint32 capacity, uint256 pricePerHour, bytes32 sealKey, string apiUrl
    );

    /// An operator takes nothing new, or does again.
    event OperatorPaused(address indexed operator, bool paused);

    /// A workflow's owner paused or resumed it.
    event WorkflowStatusSet(uint64 indexed serviceId, uint64 indexed workflowId, WorkflowStatus status);

    /// A workflow's operator reported a firing.
    event WorkflowFired(uint64 indexed serviceId, uint64 indexed workflowId, uint16 epoch, uint64 at);

    /// The least that services cost was set.
    event ServiceFloorSet(address asset, uint256 perOperatorHour);

    // ─── Errors: jobs refused on chain, hence no call and no payment ────────────────────────────────────────────────

    /// The job id is reserved.
    error UnknownJob(uint8 job);
    /// The inputs are not the canonical ABI encoding of the job's request struct.
    error MalformedInputs(uint8 job);
    /// The inputs exceed the most bytes that a job may carry.
    error InputsTooLarge(uint256 bytesGiven, uint256 bytesMax);
    /// A field that takes one of a few words holds another.
    error UnknownOption(uint8 job, string given);
    /// A batch of nothing, or of more than one batch may hold.
    error BatchSize(uint256 given, uint256 max);
    /// An operator that a batch names does not serve in this service, is not quoted, or is not named in the order that
    /// `serviceOperators`, or the quotes, have them in.
    error OperatorNotInService(uint64 serviceId, address operator);
    /// No live sandbox of this service answers to the id or endpoint given.
    error UnknownSandbox(string sandbox);
    /// The sandbox belongs to somebody else, and so does the service.
    error NotSandboxOwner(string sandbox, address caller);
    /// The sandbox has passed its expiry block.
    error SandboxExpired(string sandbox, uint64 expiryBlock);
    /// The sandbox would outlive its service, which ends at `serviceEnd` (seconds since 1970).
    error OutlivesService(uint64 ttlBlocks, uint256 serviceEnd);
    /// The operators in question have too few free slots.
    error NoCapacity(uint64 serviceId);
    /// This service has no such workflow.
    error UnknownWorkflow(uint64 serviceId, uint64 workflowId);
    /// The workflow belongs to somebody else, and so does the service.
    error NotWorkflowOwner(uint64 serviceId, uint64 workflowId, address caller);
    /// The workflow's status does not allow this.
    error WorkflowNotActive(uint64 serviceId, uint64 workflowId, WorkflowStatus status);
    /// A workflow's trigger configuration is too long to be kept in its row.
    error TriggerConfigTooLong(uint256 bytesGiven, uint256 bytesMax);
    /// Such an RFQ call must carry the quote of one operator: it is the one that answers.
    error OneQuoteExpected(uint256 quotes);
    /// The sandbox or workflow is `expected`'s, and only that operator's quote can buy work on it.
    error QuotedOperatorMismatch(address expected, address quoted);

    // ─── Errors: what else can be done with calls ───────────────────────────────────────────────────────────────────

    /// The call created nothing that still stands, or what it created has not expired.
    error NotReapable(uint64 serviceId, uint64 callId);
    /// The call is not one that moves (only open, unquoted creates of sandboxes and workflows do, and workflows whose operator has
    /// left), its operator has until `deadlineBlock`, or no operator is left that has not been tried.
    error NotReassignable(uint64 serviceId, uint64 callId, uint64 deadlineBlock);
    /// More entries asked for, or reported, than one call takes.
    error PageTooLarge(uint256 given, uint256 max);

    // ─── Errors: service requests, registration, administration ─────────────────────────────────────────────────────

    /// More operators than a service may have.
    error TooManyOperators(uint256 given, uint256 max);
    /// The selection asks for another number of operators than were listed.
    error OperatorCountMismatch(uint32 asked, uint256 listed);
    /// The listed operators are not the ones that the seed draws; `index` is the first that differs.
    error SelectionMismatch(uint256 index, address expected, address given);
    /// Fewer operators are eligible than were asked for.
    error NotEnoughOperators(uint256 asked, uint256 eligible);
    /// A listed operator cannot take sandboxes: not registered here, paused, or full.
    error OperatorNotEligible(address operator);
    /// The request inputs are neither empty nor an ABI-encoded `SelectionRequest`.
    error MalformedSelection();
    /// The service pays less than `quoteService` says, or in another asset.
    error BelowFloor(address asset, uint256 given, address floorAsset, uint256 floor);
    /// A service that never ends has no price for its whole time.
    error NoPriceWithoutEnd();
    /// The registration inputs are not an ABI-encoded `OperatorProfile`, its `apiUrl` is too long, or its price too large.
    error MalformedProfile();
    /// The sender is not a registered operator of this blueprint.
    error NotRegistered(address sender);
    /// No further operator can ever register here.
    error RegistryFull();
    /// The sender does not own the blueprint.
    error NotBlueprintOwner(address sender);
    /// Calls of this blueprint are paid one by one, and the core takes nothing for its services.
    error FloorNotApplicable();

    // ─── Actions: operators ─────────────────────────────────────────────────────────────────────────────────────────

    /// Replaces the sender's profile; its fields are those of `OperatorProfile`. The core's `updateOperatorPreferences` hands
    /// managers a key and an RPC address only, so the profile is changed here.
    function setOperatorProfile(uint32 capacity, uint256 pricePerHour, bytes32 sealKey, string calldata apiUrl) external;

    /// Takes the sender out of selections and new assignments, or back in. What it holds goes on.
    function setPaused(bool paused) external;

    /// Reports firings of the sender's workflows, at most `PAGE_MAX`. One that is not the sender's, not active, of another epoch, in
    /// the future or not after the last known is left out, so that one stale entry does not hold up the others.
    function recordFirings(Firing[] calldata firings) external;

    // ─── Actions: customers ─────────────────────────────────────────────────────────────────────────────────────────

    /// Stops a workflow from firing. For its owner and the service's.
    function pauseWorkflow(uint64 serviceId, uint64 workflowId) external;

    /// Lets a paused workflow fire again. For its owner and the service's.
    function resumeWorkflow(uint64 serviceId, uint64 workflowId) external;

    // ─── Actions: anybody ───────────────────────────────────────────────────────────────────────────────────────────

    /// Gives up what the call created, once it or its service has expired, and frees the operators' slots.
    function reap(uint64 serviceId, uint64 callId) external;

    /// Gives the call to another operator of the service that has not been tried, drawn by the service's seed.
    function reassign(uint64 serviceId, uint64 callId) external;

    // ─── Actions: the blueprint's owner ─────────────────────────────────────────────────────────────────────────────

    /// Sets the least that a service costs, per operator and hour, of a blueprint whose services are paid for as a whole.
    /// Zero lifts it.
    function setServiceFloor(address asset, uint256 perOperatorHour) external;

    // ─── Views: calls and sandboxes ─────────────────────────────────────────────────────────────────────────────────

    /// The assignment and answer of a call; all zero if there is none.
    function assignment(uint64 serviceId, uint64 callId) external view returns (Assignment memory);

    /// The parts of a batch, in the order of its plan; empty for any other call.
    function parts(uint64 serviceId, uint64 callId) external view returns (Part[] memory);

    /// A sandbox slot; state Unknown if there is none.
    function sandbox(uint64 serviceId, uint64 callId, uint8 slot) external view returns (SandboxView memory);

    // ─── Views: operators and services ──────────────────────────────────────────────────────────────────────────────

    /// An operator's profile and load.
    function operatorView(address operator) external view returns (OperatorView memory);

    /// Every operator that ever registered, `limit` from `cursor` on, oldest first; `next` is zero at the end.
    function operators(uint256 cursor, uint256 limit) external view returns (OperatorView[] memory page, uint256 next);

    /// The operators of a service, as the core lists them now: in the order of the request while nobody has left.
    function serviceOperators(uint64 serviceId) external view returns (address[] memory);

    /// A service; reverts in the core if there is none.
    function serviceView(uint64 serviceId) external view returns (ServiceView memory);

    /// The `count` distinct operators that `seed` draws from those eligible now. Enforcement uses the same code, so a
    /// request built from this passes unless the eligible set changes in between.
    function previewOperatorSelection(uint32 count, bytes32 seed) external view returns (address[] memory);

    /// How many operators selections are drawn from.
    function eligibleCount() external view returns (uint256);

    // ─── Views: prices ──────────────────────────────────────────────────────────────────────────────────────────────

    /// The 17 jobs, by id.
    function jobs() external view returns (JobView[] memory);

    /// What the core takes for a plain call of the job in this service: `asset` zero is the chain's coin, `amount` zero free.
    function callCost(uint64 serviceId, uint8 job) external view returns (address asset, uint256 amount);

    /// The least that a service of so many operators costs for `ttl` seconds, begun hours counted whole. Zero without a floor.
    function quoteService(uint32 operatorCount, uint64 ttl) external view returns (address asset, uint256 amount);

    // ─── Views: workflows ───────────────────────────────────────────────────────────────────────────────────────────

    /// A workflow with its body; status Unknown if there is none.
    function getWorkflow(uint64 serviceId, uint64 workflowId)
        external
        view
        returns (WorkflowView memory row, WorkflowBody memory body);

    /// The active workflows among `limit` ever given to the operator, from `cursor` on, oldest first; `next` is zero at the end.
    function activeWorkflows(address operator, uint256 cursor, uint256 limit)
        external
        view
        returns (WorkflowView[] memory page, uint256 next);

    // ─── Views: the deployment ──────────────────────────────────────────────────────────────────────────────────────

    /// The block in which this contract was created: nothing of it is to be found before.
    function deployedBlock() external view returns (uint64);

    /// Most operators of a service.
    function SERVICE_OPERATORS_MAX() external view returns (uint256);
    /// Most bytes of a job's inputs.
    function INPUT_BYTES_MAX() external view returns (uint256);
    /// Most sandboxes of a batch create.
    function BATCH_SANDBOXES_MAX() external view returns (uint256);
    /// Most endpoints of another batch.
    function BATCH_ENDPOINTS_MAX() external view returns (uint256);
    /// Most bytes of a workflow's trigger configuration.
    function TRIGGER_CONFIG_BYTES_MAX() external view returns (uint256);
    /// Most bytes of a workflow, strings and their lengths, that is stored whole.
    function WORKFLOW_STORED_BYTES_MAX() external view returns (uint256);
    /// Most entries of one page or report.
    function PAGE_MAX() external view returns (uint256);
}
