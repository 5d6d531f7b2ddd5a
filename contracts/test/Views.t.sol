// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {BlueprintManagerBase} from "../src/BlueprintManagerBase.sol";
import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {PRICING_EVENT_DRIVEN, PRICING_PAY_ONCE} from "../src/ITangleCore.sol";
import {OUTCOME_CALLER, OUTCOME_DONE} from "../src/JobTypes.sol";
import {FakeCore} from "./FakeCore.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// What can be asked, and what is said of what does not exist.
contract ViewsTest is Fixture {
    string private constant ARTIFACT = "contracts/out/IAgentSandboxBlueprint.sol/IAgentSandboxBlueprint.json";

    // ─── The whole interface ────────────────────────────────────────────────────────────────────────────────────────

    /// A call of zeros is answered, or refused for a reason of the function's own.
    function test_everyFunctionOfTheInterfaceIsAnswered() public {
        string memory artifact = vm.readFile(ARTIFACT);
        string[] memory functions = vm.parseJsonKeys(artifact, ".methodIdentifiers");
        assertGe(functions.length, 30);
        for (uint256 i; i < functions.length; ++i) {
            bytes4 selector = bytes4(keccak256(bytes(functions[i])));
            (bool ok, bytes memory answer_) = address(blueprint).call(abi.encodePacked(selector, new bytes(320)));
            assertTrue(ok || answer_.length != 0, functions[i]);
            assertTrue(bytes4(answer_) != BlueprintManagerBase.UnknownFunction.selector, functions[i]);
        }
    }

    /// The same code at its own address has no memory: nothing is to be found there.
    function test_theAnnexAloneKnowsNothing() public {
        uint64 service = serviceOf(2, 0);
        liveSandbox(service, 0);
        I annex = I(blueprint.ANNEX());
        assertEq(annex.eligibleCount(), 0);
        assertEq(annex.assignment(service, 0).operator, address(0));
        assertFalse(annex.operatorView(operatorAt(0)).registered);
        assertEq(annex.deployedBlock(), blueprint.deployedBlock());
    }

    // ─── Jobs and prices ────────────────────────────────────────────────────────────────────────────────────────────

    function test_theSeventeenJobsWithTheirNamesAndRates() public view {
        string[17] memory names = [
            "sandbox_create",
            "sandbox_stop",
            "sandbox_resume",
            "sandbox_delete",
            "sandbox_snapshot",
            "exec",
            "prompt",
            "task",
            "batch_create",
            "batch_task",
            "batch_exec",
            "batch_collect",
            "workflow_create",
            "workflow_trigger",
            "workflow_cancel",
            "ssh_provision",
            "ssh_revoke"
        ];
        I.JobView[] memory jobs = blueprint.jobs();
        assertEq(jobs.length, 17);
        for (uint256 i; i < 17; ++i) {
            assertEq(jobs[i].id, Inputs.allJobs()[i]);
            assertEq(jobs[i].name, names[i]);
            assertEq(jobs[i].rate, core.getJobEventRate(1, jobs[i].id));
        }
    }

    function testFuzz_aCallCostsItsRateInTheServicesAsset(uint8 job, address asset) public {
        core.setPricing(PRICING_EVENT_DRIVEN, asset);
        uint64 service = serviceOf(1, 0);
        if (!Inputs.isOffered(job)) vm.expectRevert(abi.encodeWithSelector(I.UnknownJob.selector, job));
        (address paidIn, uint256 amount) = blueprint.callCost(service, job);
        if (!Inputs.isOffered(job)) return;
        assertEq(paidIn, asset);
        assertEq(amount, core.getJobEventRate(1, job));
    }

    function test_aCallCostsItsRateInTheServicesAsset() public {
        for (uint8 i; i < 17; ++i) {
            uint256 snapshot = vm.snapshotState();
            testFuzz_aCallCostsItsRateInTheServicesAsset(Inputs.allJobs()[i], stranger);
            vm.revertToState(snapshot);
        }
    }

    function testFuzz_inAServiceThatIsPaidAsAWholeACallIsFree(uint8 which, address asset) public {
        core.setPricing(PRICING_PAY_ONCE, asset);
        uint64 service = serviceOf(1, 3600);
        (address paidIn, uint256 amount) = blueprint.callCost(service, Inputs.allJobs()[which % 17]);
        assertEq(paidIn, address(0));
        assertEq(amount, 0);
    }

    // ─── Operators ──────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_pagesOfOperatorsAreAllOfThemInOrder(uint8 count, uint8 limit, uint16 gone) public {
        uint256 size = bound(count, 0, 40);
        registerMany(size);
        for (uint256 i; i < size && i < 16; ++i) {
            if (gone >> i & 1 == 1) core.unregister(operatorAt(i));
        }
        uint256 each = bound(limit, 1, 100);
        uint256 met;
        uint256 cursor;
        do {
            I.OperatorView[] memory page;
            (page, cursor) = blueprint.operators(cursor, each);
            for (uint256 i; i < page.length; ++i) {
                assertEq(page[i].account, operatorAt(met++));
                assertEq(abi.encode(page[i]), abi.encode(blueprint.operatorView(page[i].account)));
            }
            assertTrue(cursor == 0 || cursor == met);
        } while (cursor != 0);
        assertEq(met, size);
    }

    function test_pagesOfOperatorsAreAllOfThemInOrder() public {
        testFuzz_pagesOfOperatorsAreAllOfThemInOrder(40, 40, 0);
        I.OperatorView[] memory page;
        uint256 next;
        (page, next) = blueprint.operators(0, 39);
        assertEq(next, 39);
        (page, next) = blueprint.operators(39, 1);
        assertEq(page[0].account, operatorAt(39));
        assertEq(next, 0);
        (page, next) = blueprint.operators(40, 100);
        assertEq(page.length, 0);
        assertEq(next, 0);
    }

    function testFuzz_aPageOfOperatorsHoldsUpToTheMostEntries(uint256 cursor, uint256 limit) public {
        uint256 most = blueprint.PAGE_MAX();
        if (limit > most) vm.expectRevert(abi.encodeWithSelector(I.PageTooLarge.selector, limit, most));
        blueprint.operators(cursor, limit);
    }

    function test_aPageOfOperatorsHoldsUpToTheMostEntries() public {
        registerMany(101);
        (I.OperatorView[] memory page, uint256 next) = blueprint.operators(0, 100);
        assertEq(page.length, 100);
        assertEq(next, 100);
        testFuzz_aPageOfOperatorsHoldsUpToTheMostEntries(0, 101);
    }

    function testFuzz_whoNeverRegisteredIsNobody(address operator) public view {
        I.OperatorView memory nobody;
        nobody.account = operator;
        assertEq(abi.encode(blueprint.operatorView(operator)), abi.encode(nobody));
    }

    // ─── Services ───────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aServiceIsShownWithWhatItsOperatorsHold(
        uint8 count,
        uint64 ttl,
        bytes32 seed,
        uint8 singles,
        uint8 batch
    ) public {
        uint256 size = bound(count, 1, 6);
        ttl = uint64(bound(ttl, 3600, type(uint40).max));
        address[] memory members = registerMany(size);
        uint64 service = core.openService(customer, members, selection(uint32(size), seed, false), ttl);
        for (uint256 i; i < bound(singles, 0, size); ++i) {
            liveSandbox(service, 0);
        }
        uint64 call = submitBatch(service, uint32(bound(batch, 1, size)), "random");
        I.Part[] memory parts = blueprint.parts(service, call);
        for (uint256 i; i < parts.length; ++i) {
            answerAs(parts[i].operator, service, call, receipt(OUTCOME_DONE, 1 << parts[i].firstSlot));
        }
        I.ServiceView memory seen = blueprint.serviceView(service);
        assertEq(seen.owner, customer);
        assertEq(seen.createdAt, block.timestamp);
        assertEq(seen.ttl, ttl);
        assertTrue(seen.active);
        assertEq(seen.seed, seed);
        assertEq(seen.operators, members);
        assertEq(seen.sandboxes, bound(singles, 0, size) + parts.length);
        for (uint256 i; i < size; ++i) {
            assertEq(seen.held[i], usedBy(members[i]));
        }
    }

    function testFuzz_aServiceIsActiveUntilItsEnd(uint32 ttl, uint32 age, bool isTerminated) public {
        ttl = uint32(bound(ttl, 3600, 365 days));
        uint64 service = serviceOf(2, ttl);
        liveSandbox(service, 0);
        skip(age);
        if (isTerminated) core.terminate(service);
        I.ServiceView memory seen = blueprint.serviceView(service);
        assertEq(seen.active, !isTerminated && age <= ttl);
        assertEq(seen.sandboxes, isTerminated ? 0 : 1);
        assertEq(seen.held.length, 2);
    }

    function test_aServiceIsActiveUntilItsEnd() public {
        testFuzz_aServiceIsActiveUntilItsEnd(3600, 3600, false);
        testFuzz_aServiceIsActiveUntilItsEnd(3600, 3601, false);
        uint64 perpetual = serviceOf(1, 0);
        skip(100 * 365 days);
        assertTrue(blueprint.serviceView(perpetual).active);
    }

    function testFuzz_aServiceThatDoesNotExistIsTheCoresRefusal(uint64 service) public {
        vm.expectRevert(FakeCore.ServiceNotFound.selector);
        blueprint.serviceView(service);
    }

    /// Services from quotes have no request of their own, and come with request 0.
    function testFuzz_theSeedIsThatOfTheServicesOwnRequest(bytes32 first, bytes32 second) public {
        address[] memory members = registerMany(1);
        uint64 one = seededService(members, first);
        uint64 two = seededService(members, second);
        uint64 three = core.openService(customer, members, "", 0);
        assertEq(blueprint.serviceView(one).seed, first);
        assertEq(blueprint.serviceView(two).seed, second);
        assertEq(blueprint.serviceView(three).seed, 0);
    }

    // ─── Calls and sandboxes ────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_ofACallThatDoesNotExistNothingIsSaid(uint64 service, uint64 call, uint8 slot) public {
        uint64 existing = serviceOf(2, 0);
        liveSandbox(existing, 0);
        vm.assume(service != existing || call != 0);
        I.Assignment memory none;
        I.SandboxView memory nothing;
        assertEq(abi.encode(blueprint.assignment(service, call)), abi.encode(none));
        assertEq(blueprint.parts(service, call).length, 0);
        assertEq(abi.encode(blueprint.sandbox(service, call, slot)), abi.encode(nothing));
    }

    function testFuzz_aRefusedCallLeavesNoTrace(uint64 ttlBlocks) public {
        uint64 service = serviceOf(1, 3600);
        ttlBlocks = uint64(bound(ttlBlocks, 1801, type(uint64).max));
        vm.expectRevert();
        submitCreate(service, ttlBlocks);
        I.Assignment memory none;
        assertEq(abi.encode(blueprint.assignment(service, 0)), abi.encode(none));
        assertEq(usedBy(operatorAt(0)), 0);
    }

    function testFuzz_onlyBatchesHaveParts(uint8 which) public {
        uint64 service = serviceOf(2, 0);
        uint64 target = liveSandbox(service, 0);
        uint64 workflow = activeWorkflow(service);
        uint8 job = Inputs.allJobs()[which % 17];
        uint64 call = submitAs(customer, service, job, Inputs.canonical(job, idOf(service, target, 0), workflow));
        I.Assignment memory seen = blueprint.assignment(service, call);
        assertEq(blueprint.parts(service, call).length, seen.parts);
        assertEq(seen.parts != 0, Inputs.isBatch(job));
        assertEq(seen.operator == address(0), Inputs.isBatch(job));
    }

    function testFuzz_aSandboxIsShownWithItsOwnerOperatorAndExpiry(uint32 ttlBlocks, bool isDone) public {
        uint64 service = serviceOf(2, 0);
        uint64 call = submitCreate(service, ttlBlocks);
        I.SandboxView memory seen = blueprint.sandbox(service, call, 0);
        assertEq(seen.owner, customer);
        assertEq(seen.operator, assignedTo(service, call));
        assertEq(seen.expiryBlock, ttlBlocks == 0 ? type(uint64).max : block.number + ttlBlocks);
        assertEq(uint8(seen.state), uint8(I.SandboxState.Requested));
        answer(service, call, isDone ? OUTCOME_DONE : OUTCOME_CALLER, isDone ? 1 : 0);
        assertState(service, call, isDone ? I.SandboxState.Live : I.SandboxState.Failed);
    }
}
