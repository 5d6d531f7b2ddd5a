// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Holdings} from "./Holdings.sol";
import {IAgentSandboxBlueprint} from "./IAgentSandboxBlueprint.sol";
import {OperatorProfile} from "./JobTypes.sol";

// Most operators of a service: the dearest loops over them, a batch and the end of the service, stay below a hook's gas.
uint256 constant OPERATORS_MAX = 32;

/// What decisions about an operator need, in one storage word, which is read and written whole. From the lowest bit:
/// capacity 32, used 32, place 32, number 32, registered 8, paused 8, price per hour 96.
///
/// `used` are the slots it holds over all services; they may exceed a capacity that was lowered, or that a batch was planned on. `place` is its
/// index in the eligible set plus one, zero outside of it; `number` counts registrations from one on, zero: it never registered.
type Load is uint256;

using Loads for Load global;

library Loads {
    uint256 private constant USED = 32;
    uint256 private constant PLACE = 64;
    uint256 private constant NUMBER = 96;
    uint256 private constant REGISTERED = 128;
    uint256 private constant PAUSED = 136;
    uint256 private constant PRICE = 144;
    uint256 private constant MASK = type(uint32).max;
    uint256 private constant PRICE_MASK = type(uint96).max;

    function capacity(Load self) internal pure returns (uint256) {
        return Load.unwrap(self) & MASK;
    }

    function used(Load self) internal pure returns (uint256) {
        return Load.unwrap(self) >> USED & MASK;
    }

    function place(Load self) internal pure returns (uint256) {
        return Load.unwrap(self) >> PLACE & MASK;
    }

    function number(Load self) internal pure returns (uint256) {
        return Load.unwrap(self) >> NUMBER & MASK;
    }

    function registered(Load self) internal pure returns (bool) {
        return Load.unwrap(self) >> REGISTERED & 1 == 1;
    }

    function paused(Load self) internal pure returns (bool) {
        return Load.unwrap(self) >> PAUSED & 1 == 1;
    }

    function pricePerHour(Load self) internal pure returns (uint256) {
        return Load.unwrap(self) >> PRICE & PRICE_MASK;
    }

    function withCapacity(Load self, uint256 value) internal pure returns (Load) {
        return _with(self, 0, MASK, value);
    }

    function withUsed(Load self, uint256 value) internal pure returns (Load) {
        return _with(self, USED, MASK, value);
    }

    function withPlace(Load self, uint256 value) internal pure returns (Load) {
        return _with(self, PLACE, MASK, value);
    }

    function withNumber(Load self, uint256 value) internal pure returns (Load) {
        return _with(self, NUMBER, MASK, value);
    }

    function withRegistered(Load self, bool value) internal pure returns (Load) {
        return _with(self, REGISTERED, 1, value ? 1 : 0);
    }

    function withPaused(Load self, bool value) internal pure returns (Load) {
        return _with(self, PAUSED, 1, value ? 1 : 0);
    }

    function withPricePerHour(Load self, uint256 value) internal pure returns (Load) {
        return _with(self, PRICE, PRICE_MASK, value);
    }

    /// The callers pass no more than the mask holds.
    function _with(Load self, uint256 shift, uint256 mask, uint256 value) private pure returns (Load) {
        return Load.wrap(Load.unwrap(self) & ~(mask << shift) | value << shift);
    }
}

/// Operators, the slots they hold, and the set of those that can take more. Code over storage that the blueprint owns.
///
/// Invariants: an operator is in `eligible` exactly if it is registered, not paused, and has a free slot; its `used` is the sum of
/// its holdings over all services that have not ended.
///
/// An operator's number is given at its first registration and never to another. Lists hold numbers instead of addresses: eight
/// to a storage word, where addresses take one each. That is what lets a service of many full operators end within a hook's gas.
library Operators {
    using Holdings for Holdings.List;

    uint256 internal constant API_URL_BYTES_MAX = 256;
    /// Bits of an operator's number: how many may ever register.
    uint256 internal constant NUMBER_BITS = 22;
    uint256 private constant PER_WORD = 8;

    struct Operator {
        Load load;
        bytes32 sealKey;
        string apiUrl;
    }

    /// Both counts are one word, which is therefore never zero again after the first registration; and what falls out of the set is not
    /// erased. So putting somebody back never writes a word that is zero, which would cost four times as much.
    struct Registry {
        uint128 count; // of accounts
        uint128 eligibleCount;
        mapping(uint256 number => address) accounts;
        mapping(uint256 index => uint256) eligible; // numbers by place, eight to a word
        mapping(address account => Operator) operators;
    }

    /// One service's part: who holds how much of it, and who is about to leave it.
    struct Tenancy {
        Holdings.List holdings;
        uint32[] leaving; // numbers
    }

    // ─── Changes: operators ─────────────────────────────────────────────────────────────────────────────────────────

    function register(Registry storage self, address account, OperatorProfile memory profile) internal {
        Load own = load(self, account);
        if (own.number() == 0) {
            uint256 number = uint256(self.count) + 1;
            if (number >> NUMBER_BITS != 0) revert IAgentSandboxBlueprint.RegistryFull();
            self.count = uint128(number);
            self.accounts[number] = account;
            own = own.withNumber(number);
        }
        _setProfile(self, account, own.withRegistered(true), profile);
    }

    /// Slots still held stay counted, also if the operator registers again before they are freed.
    function unregister(Registry storage self, address account) internal {
        _store(self, account, load(self, account).withRegistered(false));
    }

    function setProfile(Registry storage self, address account, OperatorProfile memory profile) internal {
        _setProfile(self, account, load(self, account), profile);
    }

    function _setProfile(Registry storage self, address account, Load own, OperatorProfile memory profile) private {
        if (bytes(profile.apiUrl).length > API_URL_BYTES_MAX || profile.pricePerHour > type(uint96).max) {
            revert IAgentSandboxBlueprint.MalformedProfile();
        }
        _store(self, account, own.withCapacity(profile.capacity).withPricePerHour(profile.pricePerHour));
        self.operators[account].sealKey = profile.sealKey;
        self.operators[account].apiUrl = profile.apiUrl;
        emit IAgentSandboxBlueprint.OperatorProfileSet(
            account, profile.capacity, profile.pricePerHour, profile.sealKey, profile.apiUrl
        );
    }

    function setPaused(Registry storage self, address account, bool paused) internal {
        _store(self, account, load(self, account).withPaused(paused));
        emit IAgentSandboxBlueprint.OperatorPaused(account, paused);
    }

    /// Stores the operator's load, and puts it into the set or takes it out, as the load says. Swap and pop: the order is no promise, and
    /// no change walks it.
    function _store(Registry storage self, address account, Load own) private {
        uint256 place = own.place();
        bool belongs = own.registered() && !own.paused() && own.used() < own.capacity();
        if (belongs && place == 0) {
            uint256 size = self.eligibleCount;
            _setEligible(self, size, own.number());
            self.eligibleCount = uint128(size + 1);
            own = own.withPlace(size + 1);
        } else if (!belongs && place != 0) {
            uint256 size = self.eligibleCount;
            if (place != size) {
                uint256 last = eligibleAt(self, size - 1);
                _setEligible(self, place - 1, last);
                Operator storage moved = self.operators[self.accounts[last]];
                moved.load = moved.load.withPlace(place);
            }
            self.eligibleCount = uint128(size - 1);
            own = own.withPlace(0);
        }
        self.operators[account].load = own;
    }

    function _setEligible(Registry storage self, uint256 index, uint256 number) private {
        uint256 shift = index % PER_WORD * 32;
        uint256 others = self.eligible[index / PER_WORD] & ~(uint256(type(uint32).max) << shift);
        self.eligible[index / PER_WORD] = others | number << shift;
    }

    // ─── Changes: services ──────────────────────────────────────────────────────────────────────────────────────────

    function setLeaving(Registry storage self, Tenancy storage tenancy, address account, bool leaving) internal {
        // forge-lint: disable-next-line(unsafe-typecast)
        uint32 number = uint32(load(self, account).number());
        uint256 count = tenancy.leaving.length;
        uint256 index;
        while (index < count && tenancy.leaving[index] != number) ++index;
        if ((index != count) == leaving) return;
        if (leaving) {
            tenancy.leaving.push(number);
        } else {
            tenancy.leaving[index] = tenancy.leaving[count - 1];
            tenancy.leaving.pop();
        }
    }

    function hold(Registry storage self, Tenancy storage tenancy, address account, uint256 slots) internal {
        Load own = load(self, account);
        if (!tenancy.holdings.add(own.number(), slots)) return;
        _store(self, account, own.withUsed(own.used() + slots));
    }

    /// Returns how many were freed: never more than are held, so that nothing that calls this can fail by it.
    function release(Registry storage self, Tenancy storage tenancy, address account, uint256 slots)
        internal
        returns (uint256 freed)
    {
        Load own = load(self, account);
        freed = tenancy.holdings.take(own.number(), slots);
        if (freed != 0) _store(self, account, own.withUsed(own.used() - freed));
    }

    /// Frees what every operator holds of a service that has ended. Its holdings are left as they are: nobody reads them again.
    function releaseAll(Registry storage self, Tenancy storage tenancy) internal {
        uint256 count = tenancy.holdings.count();
        for (uint256 i; i < count && i < OPERATORS_MAX; ++i) {
            (uint256 number, uint256 slots) = tenancy.holdings.at(i);
            address account = self.accounts[number];
            Load own = load(self, account);
            _store(self, account, own.withUsed(own.used() - slots));
        }
    }

    // ─── Questions ──────────────────────────────────────────────────────────────────────────────────────────────────

    function load(Registry storage self, address account) internal view returns (Load) {
        return self.operators[account].load;
    }

    /// What a batch is planned with: number << 128, price per hour << 32, free slots.
    function offer(Registry storage self, address account, uint32[] memory leaving) internal view returns (uint256) {
        Load own = load(self, account);
        return own.number() << 128 | own.pricePerHour() << 32 | freeSlots(own, leaving);
    }

    /// Slots that the operator may still be given; none unless it is eligible and not `leaving` the service.
    function freeSlots(Load own, uint32[] memory leaving) internal pure returns (uint256) {
        if (own.place() == 0 || _contains(leaving, own.number())) return 0;
        return own.capacity() - own.used();
    }

    function _contains(uint32[] memory numbers, uint256 number) private pure returns (bool) {
        for (uint256 i; i < numbers.length; ++i) {
            if (numbers[i] == number) return true;
        }
        return false;
    }

    function heldBy(Registry storage self, Tenancy storage tenancy, address account) internal view returns (uint256) {
        return tenancy.holdings.slotsOf(load(self, account).number());
    }

    /// The number of the operator at this place of the set, which must be within it.
    function eligibleAt(Registry storage self, uint256 index) internal view returns (uint256) {
        return self.eligible[index / PER_WORD] >> (index % PER_WORD * 32) & type(uint32).max;
    }

    function view_(Registry storage self, address account)
        internal
        view
        returns (IAgentSandboxBlueprint.OperatorView memory)
    {
        Operator storage operator = self.operators[account];
        Load own = operator.load;
        return IAgentSandboxBlueprint.OperatorView({
            account: account,
            // forge-lint: disable-next-line(unsafe-typecast)
            capacity: uint32(own.capacity()),
            // forge-lint: disable-next-line(unsafe-typecast)
            used: uint32(own.used()),
            pricePerHour: own.pricePerHour(),
            sealKey: operator.sealKey,
            apiUrl: operator.apiUrl,
            registered: own.registered(),
            paused: own.paused(),
            eligible: own.place() != 0
        });
    }
}
