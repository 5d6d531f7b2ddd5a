// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {OUTCOME_CALLER, OUTCOME_DONE, OperatorProfile} from "../src/JobTypes.sol";
import {Fixture} from "./Fixture.sol";

contract RegistrationTest is Fixture {
    uint256 private constant API_URL_BYTES_MAX = 256;
    uint256 private constant NUMBERS_MAX = (1 << 22) - 1;

    // ─── Profiles ───────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aRegisteredOperatorIsShownAsItRegistered(address operator, OperatorProfile memory profile)
        public
    {
        fit(profile);
        vm.expectEmit(address(blueprint));
        emit I.OperatorProfileSet(operator, profile.capacity, profile.pricePerHour, profile.sealKey, profile.apiUrl);
        core.register(operator, abi.encode(profile));

        assertProfile(operator, profile);
        assertEq(blueprint.operatorView(operator).eligible, profile.capacity != 0);
    }

    function test_aRegisteredOperatorIsShownAsItRegistered() public {
        testFuzz_aRegisteredOperatorIsShownAsItRegistered(
            operatorAt(0), OperatorProfile(5, 1 ether, bytes32(uint256(9)), "https://operator.example")
        );
    }

    function testFuzz_bytesThatAreNoProfileAreRefused(address operator, bytes memory inputs) public {
        vm.expectRevert(I.MalformedProfile.selector);
        core.register(operator, inputs);
    }

    /// What the core hands on when an operator registers without inputs.
    function testFuzz_theCoresOwnPreferencesAreNoProfile(bytes memory key, string memory rpcAddress) public {
        vm.expectRevert(I.MalformedProfile.selector);
        core.register(operatorAt(0), abi.encode(Preferences(key, rpcAddress)));
    }

    struct Preferences {
        bytes ecdsaPublicKey;
        string rpcAddress;
    }

    function test_anApiUrlThatIsTooLongIsRefused() public {
        OperatorProfile memory profile = OperatorProfile(1, 0, 0, string(new bytes(API_URL_BYTES_MAX)));
        core.register(operatorAt(0), abi.encode(profile));
        profile.apiUrl = string(new bytes(API_URL_BYTES_MAX + 1));
        vm.expectRevert(I.MalformedProfile.selector);
        core.register(operatorAt(1), abi.encode(profile));
    }

    function testFuzz_aPriceBeyondNinetySixBitsIsRefused(uint256 price) public {
        price = bound(price, uint256(type(uint96).max) + 1, type(uint256).max);
        OperatorProfile memory profile = OperatorProfile(1, price, 0, "");
        vm.expectRevert(I.MalformedProfile.selector);
        core.register(operatorAt(0), abi.encode(profile));

        profile.pricePerHour = type(uint96).max;
        core.register(operatorAt(0), abi.encode(profile));
        assertEq(blueprint.operatorView(operatorAt(0)).pricePerHour, type(uint96).max);
        vm.prank(operatorAt(0));
        vm.expectRevert(I.MalformedProfile.selector);
        blueprint.setOperatorProfile(1, price, 0, "");
    }

    function test_aPriceBeyondNinetySixBitsIsRefused() public {
        testFuzz_aPriceBeyondNinetySixBitsIsRefused(uint256(type(uint96).max) + 1);
    }

    function testFuzz_anOperatorReplacesItsProfile(OperatorProfile memory profile) public {
        fit(profile);
        register(operatorAt(0), CAPACITY);
        vm.prank(operatorAt(0));
        blueprint.setOperatorProfile(profile.capacity, profile.pricePerHour, profile.sealKey, profile.apiUrl);

        assertProfile(operatorAt(0), profile);
        assertEq(blueprint.eligibleCount(), profile.capacity == 0 ? 0 : 1);
    }

    function testFuzz_nobodyElseHasAProfile(address sender, uint32 capacity) public {
        vm.prank(sender);
        vm.expectRevert(abi.encodeWithSelector(I.NotRegistered.selector, sender));
        blueprint.setOperatorProfile(capacity, 0, 0, "");
    }

    /// Core's preference updates carry a key and an RPC address: nothing of ours.
    function testFuzz_aPreferenceUpdateOfTheCoreChangesNothing(bytes memory preferences) public {
        register(operatorAt(0), CAPACITY);
        vm.prank(address(core));
        blueprint.onUpdatePreferences(operatorAt(0), preferences);
        assertEq(blueprint.operatorView(operatorAt(0)).capacity, CAPACITY);
    }

    /// Four million registrations are more than a test makes: the word that counts them, and the eligible, is found and set.
    function testFuzz_noMoreRegisterThanThereAreNumbers(address last, address one) public {
        vm.assume(last != one && last != operatorAt(0) && one != operatorAt(0));
        vm.record();
        register(operatorAt(0), 1);
        (, bytes32[] memory writes) = vm.accesses(address(blueprint));
        for (uint256 i; i < writes.length; ++i) {
            if (uint256(vm.load(address(blueprint), writes[i])) != (1 << 128 | 1)) continue;
            vm.store(address(blueprint), writes[i], bytes32(uint256(1 << 128 | NUMBERS_MAX - 1)));
        }
        register(last, 1);
        assertTrue(blueprint.operatorView(last).eligible);
        vm.expectRevert(I.RegistryFull.selector);
        register(one, 1);
        core.unregister(last);
        register(last, 2); // it keeps its number
        assertEq(blueprint.previewOperatorSelection(2, 0).length, 2);
    }

    function test_noMoreRegisterThanThereAreNumbers() public {
        testFuzz_noMoreRegisterThanThereAreNumbers(operatorAt(1), operatorAt(2));
    }

    // ─── The eligible set ───────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_theEligibleSetIsTheRegisteredWithRoom(uint8[12] memory capacities, uint16 unregistered) public {
        uint256 expected;
        for (uint256 i; i < capacities.length; ++i) {
            register(operatorAt(i), capacities[i]);
        }
        for (uint256 i; i < capacities.length; ++i) {
            bool leaves = unregistered >> i & 1 == 1;
            if (leaves) core.unregister(operatorAt(i));
            bool belongs = !leaves && capacities[i] != 0;
            if (belongs) ++expected;
            assertEq(blueprint.operatorView(operatorAt(i)).eligible, belongs);
            assertEq(blueprint.operatorView(operatorAt(i)).registered, !leaves);
        }
        assertEq(blueprint.eligibleCount(), expected);
        uint32 count = uint32(expected < OPERATORS_MAX ? expected : OPERATORS_MAX);
        address[] memory drawn = blueprint.previewOperatorSelection(count, bytes32(uint256(unregistered)));
        for (uint256 i; i < drawn.length; ++i) {
            assertTrue(blueprint.operatorView(drawn[i]).eligible);
        }
    }

    function testFuzz_aFullOperatorLeavesTheSetAndAFreedOneRejoins(uint8 capacity) public {
        uint32 slots = uint32(bound(capacity, 1, 8));
        register(operatorAt(0), slots);
        address[] memory one = new address[](1);
        one[0] = operatorAt(0);
        uint64 service = core.openService(customer, one, "", 0);

        uint64 last;
        for (uint256 i; i < slots; ++i) {
            assertEq(blueprint.eligibleCount(), 1);
            last = submitCreate(service, 0);
        }
        assertEq(blueprint.eligibleCount(), 0);
        assertEq(usedBy(one[0]), slots);

        answer(service, last, OUTCOME_CALLER, 0);
        assertEq(blueprint.eligibleCount(), 1);
    }

    function test_loweringTheCapacityBelowWhatIsUsedOnlyStopsNewOnes() public {
        uint64 service = serviceOf(1, 0);
        uint64 call = liveSandbox(service, 0);
        vm.prank(operatorAt(0));
        blueprint.setOperatorProfile(0, 0, 0, "");
        assertEq(blueprint.eligibleCount(), 0);
        answer(service, submitDelete(service, call), OUTCOME_DONE, 0);
        assertEq(usedBy(operatorAt(0)), 0);
        assertEq(blueprint.eligibleCount(), 0);
    }

    function test_anOperatorThatRegistersAgainStillHoldsItsSlots() public {
        uint64 service = serviceOf(1, 0);
        liveSandbox(service, 0);
        core.unregister(operatorAt(0));
        assertEq(blueprint.eligibleCount(), 0);
        register(operatorAt(0), 1);
        assertEq(usedBy(operatorAt(0)), 1);
        assertEq(blueprint.eligibleCount(), 0);
    }

    function assertProfile(address operator, OperatorProfile memory profile) private view {
        I.OperatorView memory seen = blueprint.operatorView(operator);
        assertTrue(seen.registered);
        assertEq(seen.capacity, profile.capacity);
        assertEq(seen.pricePerHour, profile.pricePerHour);
        assertEq(seen.sealKey, profile.sealKey);
        assertEq(seen.apiUrl, profile.apiUrl);
        assertEq(seen.used, 0);
    }

    /// Within the limits.
    function fit(OperatorProfile memory profile) private pure {
        profile.pricePerHour = bound(profile.pricePerHour, 0, type(uint96).max);
        string memory url = profile.apiUrl;
        if (bytes(url).length > API_URL_BYTES_MAX) {
            assembly ("memory-safe") {
                mstore(url, API_URL_BYTES_MAX)
            }
        }
    }
}
