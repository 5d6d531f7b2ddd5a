// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Script, console} from "forge-std/Script.sol";

import {AgentSandboxBlueprint} from "../src/AgentSandboxBlueprint.sol";

/// Creates the contract, for those who sign with forge. The blueprint's definition and prices belong to `sandbox deploy`, which
/// goes on from here: with the same key it finds the contract by itself, since both use the same factory and salt.
contract Deploy is Script {
    /// `sandbox deploy --name` takes another name.
    bytes32 private constant SALT = keccak256("agent-sandbox");

    /// `core` is the Tangle core, `blockTimeMs` the chain's mean time between blocks. The account that broadcasts must create the
    /// blueprint later.
    function run(address core, uint64 blockTimeMs) external returns (AgentSandboxBlueprint blueprint) {
        address creator = msg.sender;
        vm.startBroadcast();
        blueprint = new AgentSandboxBlueprint{salt: SALT}(core, creator, blockTimeMs);
        vm.stopBroadcast();
        console.log("contract", address(blueprint));
        console.log("creator ", creator);
    }
}
