// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// The questions this blueprint asks the Tangle core, in the published ABI's layout (tnt-core-bindings 0.20.0).
///
/// Asked within hooks, when the core has already written the answer: a call is stored, quotes included, before `onJobCall`.
/// Structs stop after the last field of interest: the core's are static and go on, and what follows in the returned words is
/// not read.
interface ITangleCore {
    struct JobCall {
        uint8 jobIndex;
        address caller;
        uint64 createdAt;
        uint32 resultCount;
        bool completed;
        bool isRFQ;
    }

    struct Service {
        uint64 blueprintId;
        address owner;
        uint64 createdAt; // seconds since 1970
        uint64 ttl; // seconds; zero: perpetual
        uint64 terminatedAt; // zero: not terminated
        uint64 lastPaymentAt;
        uint32 operatorCount;
        uint32 minOperators;
        uint32 maxOperators;
        uint8 membership;
        uint8 pricing; // one of the constants below
    }

    struct Blueprint {
        address owner; // also after it was handed over
        address manager;
        uint64 createdAt;
        uint8 membership;
        uint8 pricing;
    }

    /// All zero if there is no such call.
    function getJobCall(uint64 serviceId, uint64 callId) external view returns (JobCall memory);

    /// The operators that signed the quotes of an RFQ call; empty for any other.
    function getJobQuotedOperators(uint64 serviceId, uint64 callId) external view returns (address[] memory);

    /// Reverts if there is no such service.
    function getService(uint64 serviceId) external view returns (Service memory);

    /// The operators that serve now: joins and leaves are included.
    function getServiceOperators(uint64 serviceId) external view returns (address[] memory);

    /// Whether the operator is one of them.
    function isServiceOperator(uint64 serviceId, address operator) external view returns (bool);

    /// Reverts if there is no such blueprint.
    function getBlueprint(uint64 blueprintId) external view returns (Blueprint memory);

    /// What a plain call of the job costs in an event-driven service.
    function getJobEventRate(uint64 blueprintId, uint8 job) external view returns (uint256);

    /// In what it is paid; zero: the chain's coin.
    function getServicePaymentAsset(uint64 serviceId) external view returns (address);
}

// Values of `pricing`: services are paid for as a whole at once, or by the interval, or their calls one by one.
uint8 constant PRICING_PAY_ONCE = 0;
uint8 constant PRICING_SUBSCRIPTION = 1;
uint8 constant PRICING_EVENT_DRIVEN = 2;
