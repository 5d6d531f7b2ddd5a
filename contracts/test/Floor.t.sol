// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {PRICING_EVENT_DRIVEN, PRICING_PAY_ONCE, PRICING_SUBSCRIPTION} from "../src/ITangleCore.sol";
import {Fixture, IBlueprint} from "./Fixture.sol";

/// The least that services cost which are paid for as a whole, and what calls cost in those that are not.
contract FloorTest is Fixture {
    uint256 private constant RATE_MAX = 1e30;

    address private coin = address(0);
    address private token = makeAddr("token");

    function setUp() public override {
        super.setUp();
        core.setPricing(PRICING_PAY_ONCE, coin);
    }

    // ─── Who sets it ────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_theBlueprintsOwnerSetsTheFloor(address asset, uint256 rate, bool isSubscription) public {
        core.setPricing(isSubscription ? PRICING_SUBSCRIPTION : PRICING_PAY_ONCE, coin);
        rate = bound(rate, 0, RATE_MAX);
        vm.expectEmit(address(blueprint));
        emit I.ServiceFloorSet(asset, rate);
        setFloor(asset, rate);
        (address quoted, uint256 amount) = blueprint.quoteService(1, 1 hours);
        assertEq(quoted, asset);
        assertEq(amount, rate);
    }

    function testFuzz_nobodyElseSetsTheFloor(address sender, address asset, uint256 rate) public {
        vm.assume(sender != creator);
        vm.prank(sender);
        vm.expectRevert(abi.encodeWithSelector(I.NotBlueprintOwner.selector, sender));
        blueprint.setServiceFloor(asset, rate);
    }

    function testFuzz_afterAHandOverTheFloorIsTheNewOwners(address heir, uint256 rate) public {
        vm.assume(heir != creator);
        core.handOver(heir);
        vm.prank(creator);
        vm.expectRevert(abi.encodeWithSelector(I.NotBlueprintOwner.selector, creator));
        blueprint.setServiceFloor(coin, rate);
        vm.prank(heir);
        blueprint.setServiceFloor(coin, rate);
    }

    function test_ofADeploymentWithoutABlueprintNobodySetsIt() public {
        IBlueprint fresh = deploy();
        vm.prank(creator);
        vm.expectRevert(abi.encodeWithSelector(I.NotBlueprintOwner.selector, creator));
        fresh.setServiceFloor(coin, 1);
    }

    function testFuzz_callsThatArePaidOneByOneHaveNoFloor(address asset, uint256 rate) public {
        core.setPricing(PRICING_EVENT_DRIVEN, coin);
        vm.prank(creator);
        vm.expectRevert(I.FloorNotApplicable.selector);
        blueprint.setServiceFloor(asset, rate);
    }

    // ─── What it comes to ───────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_begunHoursCountWhole(uint256 rate, uint32 count, uint64 ttl) public {
        rate = bound(rate, 1, RATE_MAX);
        ttl = uint64(bound(ttl, 1, type(uint64).max));
        setFloor(token, rate);
        (address asset, uint256 amount) = blueprint.quoteService(count, ttl);
        assertEq(asset, token);
        uint256 hours_ = uint256(ttl) / 3600 + (ttl % 3600 == 0 ? 0 : 1);
        assertEq(amount, rate * count * hours_);
    }

    function test_begunHoursCountWhole() public {
        setFloor(token, 100);
        uint64[6] memory ttls = [uint64(1), 3599, 3600, 3601, 7200, 7201];
        uint8[6] memory hours_ = [1, 1, 1, 2, 2, 3];
        for (uint256 i; i < 6; ++i) {
            (, uint256 amount) = blueprint.quoteService(3, ttls[i]);
            assertEq(amount, 300 * uint256(hours_[i]));
        }
    }

    function testFuzz_aServiceWithoutEndHasNoPrice(uint256 rate, uint32 count) public {
        rate = bound(rate, 1, RATE_MAX);
        setFloor(coin, rate);
        vm.expectRevert(I.NoPriceWithoutEnd.selector);
        blueprint.quoteService(count, 0);
        address[] memory operators = registerMany(1);
        vm.expectRevert(I.NoPriceWithoutEnd.selector);
        core.openPaidService(customer, operators, "", 0, coin, type(uint256).max);
    }

    // ─── Enforcement ────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aServicePaysTheFloorOrMore(uint256 rate, uint8 count, uint32 ttl, uint256 given) public {
        rate = bound(rate, 1, RATE_MAX);
        ttl = uint32(bound(ttl, 3600, 365 days));
        address[] memory operators = registerMany(bound(count, 1, 8));
        setFloor(token, rate);
        (, uint256 floor) = blueprint.quoteService(uint32(operators.length), ttl);
        given = bound(given, 0, 2 * floor);
        if (given < floor) refuses(operators, ttl, token, given, floor);
        else core.openPaidService(customer, operators, "", ttl, token, given);
    }

    function test_aServicePaysTheFloorOrMore() public {
        address[] memory operators = registerMany(2);
        setFloor(token, 100);
        refuses(operators, 3601, token, 399, 400);
        core.openPaidService(customer, operators, "", 3601, token, 400);
    }

    function testFuzz_anotherAssetIsNoPayment(address asset, uint256 rate, uint256 given) public {
        vm.assume(asset != token);
        rate = bound(rate, 1, RATE_MAX);
        address[] memory operators = registerMany(1);
        setFloor(token, rate);
        refuses(operators, 3600, asset, given, rate);
    }

    function testFuzz_zeroLiftsTheFloor(uint256 rate, uint64 ttl, address asset, uint256 given) public {
        setFloor(token, bound(rate, 1, RATE_MAX));
        setFloor(token, 0);
        (, uint256 amount) = blueprint.quoteService(3, ttl);
        assertEq(amount, 0);
        core.openPaidService(customer, registerMany(2), "", ttl, asset, given);
    }

    function testFuzz_withoutAFloorAnyPaymentWillDo(uint64 ttl, address asset, uint256 given) public {
        (address quoted, uint256 amount) = blueprint.quoteService(3, ttl);
        assertEq(quoted, address(0));
        assertEq(amount, 0);
        core.openPaidService(customer, registerMany(1), "", ttl, asset, given);
    }

    /// A floor that is changed is that of the services to come.
    function testFuzz_theLastFloorCounts(uint256 first, uint256 second) public {
        setFloor(token, bound(first, 1, RATE_MAX));
        second = bound(second, 1, RATE_MAX);
        setFloor(coin, second);
        address[] memory operators = registerMany(1);
        core.openPaidService(customer, operators, "", 3600, coin, second);
        refuses(operators, 3600, coin, second - 1, second);
    }

    function refuses(address[] memory operators, uint64 ttl, address asset, uint256 given, uint256 floor) private {
        (address floorAsset,) = blueprint.quoteService(0, 1);
        vm.expectRevert(abi.encodeWithSelector(I.BelowFloor.selector, asset, given, floorAsset, floor));
        core.openPaidService(customer, operators, "", ttl, asset, given);
    }

    function setFloor(address asset, uint256 rate) private {
        vm.prank(creator);
        blueprint.setServiceFloor(asset, rate);
    }
}
