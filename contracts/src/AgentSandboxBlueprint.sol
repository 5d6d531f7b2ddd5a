// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Address} from "@openzeppelin/contracts/utils/Address.sol";

import {AgentSandboxAnnex} from "./AgentSandboxAnnex.sol";
import {CoreBound} from "./CoreBound.sol";
import {Gate} from "./Gate.sol";
import {Operators} from "./Operators.sol";
import {Routing} from "./Routing.sol";
import {State} from "./State.sol";

/// Chooses operators, assigns each call to one of them, and lets only that one's receipt complete it.
///
/// The prose is in `IAgentSandboxBlueprint`. Here is a call's road, from its assignment to its receipt. Every other hook, and all that is not
/// the core's, is code of `AgentSandboxAnnex`, run here: one contract would exceed the size that a chain takes.
contract AgentSandboxBlueprint is Routing, Gate {
    using Operators for Operators.Registry;

    /// The code that answers what this one does not.
    address public immutable ANNEX;

    constructor(address core, address creator, uint64 blockTimeMs) CoreBound(core, creator) State(blockTimeMs) {
        ANNEX = address(new AgentSandboxAnnex(core, creator, blockTimeMs));
    }

    fallback(bytes calldata input) external returns (bytes memory) {
        return Address.functionDelegateCall(ANNEX, input);
    }

    /// Frees the slots of the service by its operators: of its calls there is no bound.
    function onServiceTermination(uint64 serviceId, address) external onlyCore {
        Service storage service = _services[serviceId];
        if (service.ended) return;
        service.ended = true;
        _operators.releaseAll(service.tenancy);
    }
}
