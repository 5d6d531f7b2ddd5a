// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// The four questions this blueprint asks the Tangle core, in the published ABI's layout (tnt-core-bindings 0.20.0).
///
/// Asked within hooks, when the core has already written the answer: a call is stored, quotes included, before `onJobCall`.
/// `JobCall` and `Service` stop after the last field of interest: the core's structs are static and go on, and what follows in
/// the returned words is not read.
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
    }

    /// All zero if there is no such call.
    function getJobCall(uint64 serviceId, uint64 callId) external view returns (JobCall memory);

    /// The operators that signed the quotes of an RFQ call; empty for any other.
    function getJobQuotedOperators(uint64 serviceId, uint64 callId) external view returns (address[] memory);

    /// Reverts if there is no such service.
    function getService(uint64 serviceId) external view returns (Service memory);

    /// The operators that serve now: joins and leaves are included.
    function getServiceOperators(uint64 serviceId) external view returns (address[] memory);
}
