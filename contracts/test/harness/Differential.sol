// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {BatchPlan} from "../../src/BatchPlan.sol";
import {SandboxIds} from "../../src/SandboxIds.sol";
import {Selection} from "../../src/Selection.sol";

/// Lends the libraries that have a twin in Rust to a test that runs both, in `fleet/tests/differential`. Many cases a call, since a
/// call costs more than a case. Never deployed.
contract Differential {
    struct Draw {
        uint256 size;
        uint256 count;
        bytes32 seed;
    }

    struct Batch {
        uint256[] offers;
        uint256 count;
        BatchPlan.Distribution distribution;
        bytes32 seed;
    }

    struct Plan {
        uint256[] order;
        uint256[] shares;
    }

    struct Parsed {
        bool ok;
        uint64 serviceId;
        uint64 callId;
        uint8 slot;
    }

    /// Reverts as the library does if any of them is too large.
    function indexes(Draw[] calldata draws) external pure returns (uint256[][] memory drawn) {
        drawn = new uint256[][](draws.length);
        for (uint256 i; i < draws.length; ++i) {
            drawn[i] = Selection.indexes(draws[i].size, draws[i].count, draws[i].seed);
        }
    }

    function plans(Batch[] calldata batches) external pure returns (Plan[] memory made) {
        made = new Plan[](batches.length);
        for (uint256 i; i < batches.length; ++i) {
            Batch calldata batch = batches[i];
            (made[i].order, made[i].shares) = BatchPlan.plan(batch.offers, batch.count, batch.distribution, batch.seed);
        }
    }

    function parse(bytes[] calldata texts) external pure returns (Parsed[] memory parsed) {
        parsed = new Parsed[](texts.length);
        for (uint256 i; i < texts.length; ++i) {
            Parsed memory one = parsed[i];
            (one.ok, one.serviceId, one.callId, one.slot) = SandboxIds.parse(texts[i]);
        }
    }
}
