// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// What customers, operators and their clients read and catch. The prose of the contract lives here.
///
/// This interface holds no type of another file, so that the Rust clients are generated from it alone.
/// Calls are keyed `(serviceId, callId)`: the core numbers calls per service. A sandbox is keyed by the call that created it
/// and its slot in that call, written `sbx-<service>-<call>-<slot>`.
interface IAgentSandboxBlueprint {
    // ─── Types ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// One job call: who must answer it, until when, and what the answer was.
    struct Assignment {
        address operator; // zero: no such call of this blueprint
        address caller;
        uint64 deadlineBlock; // last block in which an answer is expected
        uint8 job;
        bool answered;
        uint8 outcome; // meaningful only when answered
        bytes32 responseHash; // likewise
        uint256 detail; // likewise
    }

    /// Where a sandbox slot is in its life, as far as the chain knows.
    enum SandboxState {
        Unknown, // never requested
        Requested, // assigned, no receipt yet
        Live,
        Failed, // its create was answered with another outcome than done
        Deleted,
        Expired // past its expiry block, not yet deleted
    }

    /// One sandbox slot.
    struct SandboxView {
        address owner;
        address operator;
        uint64 expiryBlock; // type(uint64).max: until the service ends
        SandboxState state;
    }

    /// An operator as customers see it.
    struct OperatorView {
        uint32 capacity;
        uint32 used;
        uint256 pricePerHour;
        bytes32 sealKey;
        string apiUrl;
        bool registered;
        bool eligible; // in the set that selections are drawn from
    }

    // ─── Events ─────────────────────────────────────────────────────────────────────────────────────────────────────

    /// `operator` must answer the call by `deadlineBlock`; every other operator leaves it alone.
    event OperatorAssigned(
        uint64 indexed serviceId, uint64 indexed callId, address indexed operator, uint64 deadlineBlock
    );

    /// The assigned operator's answer, and the only one that completes the call and moves money.
    event ReceiptRecorded(
        uint64 indexed serviceId,
        uint64 indexed callId,
        address indexed operator,
        uint8 outcome,
        bytes32 responseHash,
        uint256 detail
    );

    /// A result that changed nothing: not the assigned operator's, not a receipt, or of a call already answered.
    event ResultIgnored(uint64 indexed serviceId, uint64 indexed callId, address indexed operator);

    /// The sandboxes of a creating call were given up after their expiry; their operator's slots are free again.
    event Reaped(uint64 indexed serviceId, uint64 indexed callId, address indexed operator, uint32 slots);

    /// An operator's profile was set or replaced.
    event OperatorProfileSet(
        address indexed operator, uint32 capacity, uint256 pricePerHour, bytes32 sealKey, string apiUrl
    );

    // ─── Errors: refused on chain, hence no call and no payment ─────────────────────────────────────────────────────

    /// The job id is reserved, or not offered by this version.
    error UnknownJob(uint8 job);
    /// The inputs are not the canonical ABI encoding of the job's request struct.
    error MalformedInputs(uint8 job);
    /// The inputs exceed the most bytes that a job may carry.
    error InputsTooLarge(uint256 bytesGiven, uint256 bytesMax);
    /// No live sandbox of this service answers to the id or endpoint given.
    error UnknownSandbox(string sandbox);
    /// The sandbox belongs to somebody else.
    error NotSandboxOwner(string sandbox, address caller);
    /// The sandbox has passed its expiry block.
    error SandboxExpired(string sandbox, uint64 expiryBlock);
    /// The sandbox would outlive its service, which ends at `serviceEnd` (seconds since 1970).
    error OutlivesService(uint64 ttlBlocks, uint256 serviceEnd);
    /// No operator of the service has a free slot.
    error NoCapacity(uint64 serviceId);
    /// The service is not one of this blueprint, or has ended.
    error UnknownService(uint64 serviceId);

    /// An RFQ call must carry the quote of one operator: it is the one that answers.
    error OneQuoteExpected(uint256 quotes);
    /// The sandbox is held by `expected`, and only that operator's quote can buy work in it.
    error QuotedOperatorMismatch(address expected, address quoted);
    /// The call created nothing that still stands, or what it created has not expired.
    error NotReapable(uint64 serviceId, uint64 callId);

    // ─── Errors: service requests and registration ──────────────────────────────────────────────────────────────────

    /// More operators than a service may have.
    error TooManyOperators(uint256 given, uint256 max);
    /// The selection asks for another number of operators than were listed.
    error OperatorCountMismatch(uint32 asked, uint256 listed);
    /// The listed operators are not the ones that the seed draws; `index` is the first that differs.
    error SelectionMismatch(uint256 index, address expected, address given);
    /// Fewer operators are eligible than were asked for.
    error NotEnoughOperators(uint256 asked, uint256 eligible);
    /// A listed operator cannot take sandboxes: not registered here, or full.
    error OperatorNotEligible(address operator);
    /// The request inputs are neither empty nor an ABI-encoded `SelectionRequest`.
    error MalformedSelection();
    /// The registration inputs are not an ABI-encoded `OperatorProfile`, or its `apiUrl` is too long.
    error MalformedProfile();
    /// The sender is not a registered operator of this blueprint.
    error NotRegistered(address sender);

    // ─── Actions ────────────────────────────────────────────────────────────────────────────────────────────────────

    /// Replaces the sender's profile; its fields are those of `OperatorProfile`. The core's `updateOperatorPreferences` hands
    /// managers a key and an RPC address only, so the profile is changed here.
    function setOperatorProfile(uint32 capacity, uint256 pricePerHour, bytes32 sealKey, string calldata apiUrl) external;

    /// Gives up what the call created, once it or its service has expired, and frees the operator's slots. Open to anyone.
    function reap(uint64 serviceId, uint64 callId) external;

    // ─── Views ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// The assignment and answer of a call; all zero if there is none.
    function assignment(uint64 serviceId, uint64 callId) external view returns (Assignment memory);

    /// A sandbox slot; state Unknown if there is none.
    function sandbox(uint64 serviceId, uint64 callId, uint8 slot) external view returns (SandboxView memory);

    /// An operator's profile and load.
    function operatorView(address operator) external view returns (OperatorView memory);

    /// The operators of a service, as the core lists them now: in the order of the request while nobody has left.
    function serviceOperators(uint64 serviceId) external view returns (address[] memory);

    /// The `count` distinct operators that `seed` draws from those eligible now. Enforcement uses the same code, so a
    /// request built from this passes unless the eligible set changes in between.
    function previewOperatorSelection(uint32 count, bytes32 seed) external view returns (address[] memory);

    /// How many operators selections are drawn from.
    function eligibleCount() external view returns (uint256);

    /// The block in which this contract was created: nothing of it is to be found before.
    function deployedBlock() external view returns (uint64);
}
