// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint} from "./IAgentSandboxBlueprint.sol";
import {OperatorProfile} from "./JobTypes.sol";

/// Operators, the slots they hold, and the set of those that can take more. Code over storage that the blueprint owns.
///
/// Invariants: an operator is in `eligible` exactly if it is registered and has a free slot; its `used` is the sum of its `held` over
/// all services.
library Operators {
    uint256 internal constant API_URL_BYTES_MAX = 256;

    struct Operator {
        uint32 capacity;
        uint32 used; // slots held, over all services
        uint32 place; // index in `eligible` plus one; zero: not in it
        bool registered;
        uint256 pricePerHour;
        bytes32 sealKey;
        string apiUrl;
    }

    /// An operator's place in one service.
    struct Seat {
        uint32 held; // slots
        bool leaving; // has scheduled its exit: takes no new sandboxes
    }

    struct Registry {
        address[] eligible;
        mapping(address account => Operator) operators;
        mapping(uint64 serviceId => mapping(address account => Seat)) seats;
    }

    // ─── Changes ────────────────────────────────────────────────────────────────────────────────────────────────────

    function register(Registry storage self, address account, OperatorProfile memory profile) internal {
        self.operators[account].registered = true;
        setProfile(self, account, profile);
    }

    /// Slots still held stay counted, also if the operator registers again before they are freed.
    function unregister(Registry storage self, address account) internal {
        self.operators[account].registered = false;
        _updateEligible(self, account);
    }

    function setProfile(Registry storage self, address account, OperatorProfile memory profile) internal {
        if (bytes(profile.apiUrl).length > API_URL_BYTES_MAX) revert IAgentSandboxBlueprint.MalformedProfile();
        Operator storage operator = self.operators[account];
        operator.capacity = profile.capacity;
        operator.pricePerHour = profile.pricePerHour;
        operator.sealKey = profile.sealKey;
        operator.apiUrl = profile.apiUrl;
        _updateEligible(self, account);
        emit IAgentSandboxBlueprint.OperatorProfileSet(
            account, profile.capacity, profile.pricePerHour, profile.sealKey, profile.apiUrl
        );
    }

    function setLeaving(Registry storage self, uint64 serviceId, address account, bool leaving) internal {
        self.seats[serviceId][account].leaving = leaving;
    }

    function hold(Registry storage self, uint64 serviceId, address account, uint32 slots) internal {
        self.seats[serviceId][account].held += slots;
        self.operators[account].used += slots;
        _updateEligible(self, account);
    }

    function release(Registry storage self, uint64 serviceId, address account, uint32 slots) internal {
        if (slots == 0) return;
        self.seats[serviceId][account].held -= slots;
        self.operators[account].used -= slots;
        _updateEligible(self, account);
    }

    function releaseAll(Registry storage self, uint64 serviceId, address account) internal {
        release(self, serviceId, account, self.seats[serviceId][account].held);
    }

    /// Swap and pop: the set's order is no promise, and no change walks it.
    function _updateEligible(Registry storage self, address account) private {
        Operator storage operator = self.operators[account];
        uint32 place = operator.place;
        bool belongs = operator.registered && operator.used < operator.capacity;
        if (belongs == (place != 0)) return;
        if (belongs) {
            self.eligible.push(account);
            operator.place = uint32(self.eligible.length);
        } else {
            address last = self.eligible[self.eligible.length - 1];
            self.eligible[place - 1] = last;
            self.operators[last].place = place;
            self.eligible.pop();
            operator.place = 0;
        }
    }

    // ─── Questions ──────────────────────────────────────────────────────────────────────────────────────────────────

    function isEligible(Registry storage self, address account) internal view returns (bool) {
        return self.operators[account].place != 0;
    }

    /// Whether the operator may be given a sandbox of the service.
    function isFree(Registry storage self, uint64 serviceId, address account) internal view returns (bool) {
        return isEligible(self, account) && !self.seats[serviceId][account].leaving;
    }

    function isHolding(Registry storage self, uint64 serviceId, address account) internal view returns (bool) {
        return self.seats[serviceId][account].held != 0;
    }

    function view_(Registry storage self, address account)
        internal
        view
        returns (IAgentSandboxBlueprint.OperatorView memory)
    {
        Operator storage operator = self.operators[account];
        return IAgentSandboxBlueprint.OperatorView({
            capacity: operator.capacity,
            used: operator.used,
            pricePerHour: operator.pricePerHour,
            sealKey: operator.sealKey,
            apiUrl: operator.apiUrl,
            registered: operator.registered,
            eligible: operator.place != 0
        });
    }
}
