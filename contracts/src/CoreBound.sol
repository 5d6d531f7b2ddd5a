// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {ITangleCore} from "./ITangleCore.sol";

/// What is bound for good to one core and one creator, and to the first blueprint that the two make of it.
abstract contract CoreBound {
    /// Only the core may call a hook.
    error OnlyCore(address sender);
    /// The core is not a contract, or the creator is the zero address.
    error InvalidDeployment();

    /// The Tangle core, the only admitted caller of hooks.
    ITangleCore public immutable CORE;
    /// Who must create the blueprint. Anyone may name this manager in a blueprint of theirs; were the first to do so bound, a
    /// stranger could claim a fresh deployment before its owner does.
    address public immutable CREATOR;

    /// The one blueprint this manager serves, meaningful once `isBound`.
    uint64 public blueprintId;
    bool public isBound;

    modifier onlyCore() {
        _requireCore();
        _;
    }

    constructor(address core, address creator) {
        if (core.code.length == 0 || creator == address(0)) revert InvalidDeployment();
        CORE = ITangleCore(core);
        CREATOR = creator;
    }

    /// A function and not the modifier's body, which is copied into each hook.
    function _requireCore() internal view {
        if (msg.sender != address(CORE)) revert OnlyCore(msg.sender);
    }
}
