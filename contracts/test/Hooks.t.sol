// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {CoreBound} from "../src/CoreBound.sol";
import {BlueprintManagerBase} from "../src/BlueprintManagerBase.sol";
import {FakeCore} from "./FakeCore.sol";
import {Fixture, IBlueprint} from "./Fixture.sol";

contract HooksTest is Fixture {
    string private constant PUBLISHED = "contracts/test/data/manager-hooks.txt";
    uint256 private constant PUBLISHED_COUNT = 37;
    uint256 private constant DEPLOYED_BYTES_MAX = 24_576;

    function test_everyPublishedHookIsImplemented_andWritesForTheCoreAlone() public {
        uint256 count;
        for (string memory line = vm.readLine(PUBLISHED); bytes(line).length != 0; line = vm.readLine(PUBLISHED)) {
            string[] memory parts = vm.split(line, " ");
            bytes4 selector = bytes4(vm.parseBytes(parts[0]));
            assertEq(selector, bytes4(keccak256(bytes(parts[1]))), parts[1]);
            // A call of zeros decodes for every hook, so a stranger gets an answer or the guard; a missing hook has no reason.
            vm.prank(stranger);
            (bool ok, bytes memory reason) = address(blueprint).call(abi.encodePacked(selector, new bytes(640)));
            assertTrue(ok || bytes4(reason) == CoreBound.OnlyCore.selector, parts[1]);
            ++count;
        }
        assertEq(count, PUBLISHED_COUNT);
    }

    /// Without this the test above would prove nothing.
    function testFuzz_aHookThatIsMissingIsRefusedByName(bool asCore) public {
        vm.prank(asCore ? address(core) : stranger);
        (bool ok, bytes memory reason) = address(blueprint).call(abi.encodePacked(bytes4("none"), new bytes(640)));
        assertFalse(ok);
        assertEq(reason, abi.encodeWithSelector(BlueprintManagerBase.UnknownFunction.selector, bytes4("none")));
    }

    function testFuzz_onlyTheCoreMayCallAHook(address sender, uint64 service, uint8 job, uint64 call, bytes memory data)
        public
    {
        vm.assume(sender != address(core));
        vm.startPrank(sender);
        bytes memory refusal = abi.encodeWithSelector(CoreBound.OnlyCore.selector, sender);
        vm.expectRevert(refusal);
        blueprint.onJobCall(service, job, call, data);
        vm.expectRevert(refusal);
        blueprint.onJobResult(service, job, call, sender, keccak256(data), data);
        vm.expectRevert(refusal);
        blueprint.onRegister(sender, data);
        vm.expectRevert(refusal);
        blueprint.onServiceTermination(service, sender);
    }

    /// The core sends none, and what came would never leave.
    function testFuzz_coinIsRefused(uint96 value, bool isHook) public {
        vm.assume(value != 0);
        vm.deal(address(core), value);
        bytes memory payload = isHook ? abi.encodeCall(blueprint.onUpdatePreferences, (creator, "")) : bytes("");
        vm.prank(address(core));
        (bool ok,) = address(blueprint).call{value: value}(payload);
        assertFalse(ok);
        vm.prank(address(core));
        (ok,) = address(blueprint).call(abi.encodeCall(blueprint.onUpdatePreferences, (creator, "")));
        assertTrue(ok);
    }

    // ─── Binding ────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aStrangerCannotClaimAFreshDeployment(address claimant, uint64 id) public {
        vm.assume(claimant != creator);
        IBlueprint fresh = deploy();
        vm.expectRevert(abi.encodeWithSelector(BlueprintManagerBase.ForeignBlueprint.selector, claimant, address(core)));
        core.createBlueprint(fresh, id, claimant);

        core.createBlueprint(fresh, id, creator);
        assertEq(fresh.blueprintId(), id);
    }

    function testFuzz_aCoreOfSomebodyElseIsRefused(uint64 id) public {
        IBlueprint fresh = deploy();
        FakeCore forged = new FakeCore();
        vm.expectRevert(abi.encodeWithSelector(CoreBound.OnlyCore.selector, address(forged)));
        forged.createBlueprint(fresh, id, creator);

        vm.prank(address(core));
        vm.expectRevert(
            abi.encodeWithSelector(BlueprintManagerBase.ForeignBlueprint.selector, creator, address(forged))
        );
        fresh.onBlueprintCreated(id, creator, address(forged));
    }

    function testFuzz_itServesOneBlueprintOnly(uint64 id) public {
        vm.expectRevert(abi.encodeWithSelector(BlueprintManagerBase.AlreadyBound.selector, 1));
        core.createBlueprint(blueprint, id, creator);
    }

    function test_aDeploymentWithoutCoreCreatorOrBlockTimeIsRefused() public {
        vm.expectRevert(CoreBound.InvalidDeployment.selector);
        deploy(stranger, creator, BLOCK_TIME_MS);
        vm.expectRevert(CoreBound.InvalidDeployment.selector);
        deploy(address(core), address(0), BLOCK_TIME_MS);
        vm.expectRevert(CoreBound.InvalidDeployment.selector);
        deploy(address(core), creator, 0);
    }

    // ─── Answers ────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aResultIsNeverEnoughOutsideItsHook(uint64 service, uint8 job) public view {
        assertEq(blueprint.getRequiredResultCount(service, job), type(uint32).max);
        assertFalse(blueprint.requiresAggregation(service, job));
    }

    function testFuzz_everyAssetIsAllowedAndTheOwnerIsTheDeveloper(uint64 service, address asset) public view {
        assertTrue(blueprint.queryIsPaymentAssetAllowed(service, asset));
        assertEq(blueprint.queryDeveloperPaymentAddress(service), address(0));
        assertEq(blueprint.computeBillAdjustmentBps(service, 0, 1), 10_000);
    }

    function test_itFitsTheDeploymentLimit() public view {
        assertLt(address(blueprint).code.length, DEPLOYED_BYTES_MAX);
        assertLt(blueprint.ANNEX().code.length, DEPLOYED_BYTES_MAX);
        assertEq(blueprint.deployedBlock(), 1000);
    }
}
