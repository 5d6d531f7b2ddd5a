// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {JOB_SANDBOX_CREATE, OUTCOME_DONE} from "../src/JobTypes.sol";
import {FakeCore} from "./FakeCore.sol";
import {Fixture} from "./Fixture.sol";

/// The gate: only the assigned operator's well-formed receipt completes a call.
contract ResultTest is Fixture {
    uint64 private constant TTL_SECONDS = 3600;

    uint64 private service;
    uint64 private call;
    address private assigned;

    function setUp() public override {
        super.setUp();
        service = serviceOf(4, TTL_SECONDS);
        call = submitCreate(service, 0);
        assigned = assignedTo(service, call);
    }

    // ─── Who ────────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_aWrongOperatorNeitherCompletesNorChangesAnything(uint8 which, uint8 outcome, bool wellFormed)
        public
    {
        address operator = operatorAt(which % 4);
        vm.assume(operator != assigned);
        bytes memory output = wellFormed ? receipt(outcome % 3, outcome % 3 == 0 ? 1 : 0) : bytes("no receipt");
        ignores(operator, output);

        answer(service, call, OUTCOME_DONE, 1);
        assertTrue(core.isCompleted(service, call));
    }

    function test_aWrongOperatorNeitherCompletesNorChangesAnything() public {
        testFuzz_aWrongOperatorNeitherCompletesNorChangesAnything(assigned == operatorAt(0) ? 1 : 0, 0, true);
    }

    function testFuzz_whoDoesNotServeHereIsNotEvenHeard(address outsider) public {
        vm.assume(!isIn(outsider, core.getServiceOperators(service)));
        vm.expectRevert(FakeCore.NotMember.selector);
        answerAs(outsider, service, call, receipt(OUTCOME_DONE, 1));
    }

    function testFuzz_theAssignedOperatorsReceiptCompletes(uint8 outcome, bytes32 responseHash) public {
        outcome = uint8(bound(outcome, 0, 1)); // with the third it is another's
        uint256 detail = outcome == OUTCOME_DONE ? 1 : 0;
        vm.expectEmit(address(blueprint));
        emit I.ReceiptRecorded(service, call, assigned, outcome, responseHash, detail);
        answerAs(assigned, service, call, abi.encode(outcome, responseHash, detail));

        I.Assignment memory seen = blueprint.assignment(service, call);
        assertTrue(core.isCompleted(service, call) && seen.answered);
        assertEq(seen.outcome, outcome);
        assertEq(seen.responseHash, responseHash);
        assertEq(seen.detail, detail);
    }

    function testFuzz_aResultOfACallThatDoesNotExistIsIgnored(
        uint64 otherService,
        uint64 otherCall,
        uint8 job,
        address operator
    ) public {
        vm.assume(otherService != service || otherCall != call);
        vm.prank(address(core));
        blueprint.onJobResult(otherService, job, otherCall, operator, 0, receipt(0, 1));
        assertEq(blueprint.getRequiredResultCount(otherService, job), type(uint32).max);
    }

    // ─── What ───────────────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_bytesThatAreNoReceiptAreIgnored(bytes memory output) public {
        vm.assume(output.length != 96);
        ignores(assigned, output);
    }

    function testFuzz_anOutcomeThatIsNoneIsIgnored(uint256 outcome) public {
        outcome = bound(outcome, 3, type(uint256).max);
        ignores(assigned, abi.encode(outcome, RESPONSE, 0));
    }

    function testFuzz_aDetailBeyondTheSlotsAskedForIsIgnored(uint256 detail) public {
        vm.assume(detail != 1);
        ignores(assigned, receipt(OUTCOME_DONE, detail));
    }

    function testFuzz_aFailureWithADetailIsIgnored(uint8 outcome, uint256 detail) public {
        vm.assume(detail != 0);
        ignores(assigned, receipt(uint8(bound(outcome, 1, 2)), detail));
    }

    function testFuzz_anExecWithADetailIsIgnored(uint8 outcome, uint256 detail) public {
        vm.assume(detail != 0);
        answer(service, call, OUTCOME_DONE, 1);
        uint64 exec = submitExec(service, call);
        answerAs(assigned, service, exec, receipt(outcome % 3, detail));
        assertFalse(core.isCompleted(service, exec));
    }

    function testFuzz_aForeignJobIsIgnored(uint8 job) public {
        vm.assume(job != JOB_SANDBOX_CREATE);
        vm.prank(address(core));
        blueprint.onJobResult(service, job, call, assigned, 0, receipt(0, 0));
        isUnanswered(call);
    }

    /// The core would not even ask.
    function testFuzz_aRepeatedAnswerIsIgnored(uint8 first, uint8 second) public {
        first = uint8(bound(first, 0, 1));
        answer(service, call, first, first == 0 ? 1 : 0);
        uint32 used = usedBy(assigned);
        vm.expectEmit(address(blueprint));
        emit I.ResultIgnored(service, call, assigned);
        vm.startPrank(address(core));
        blueprint.onJobResult(service, JOB_SANDBOX_CREATE, call, assigned, 0, receipt(second % 3, second % 2));
        assertEq(blueprint.getRequiredResultCount(service, JOB_SANDBOX_CREATE), type(uint32).max);
        assertEq(blueprint.assignment(service, call).outcome, first);
        assertEq(usedBy(assigned), used);
    }

    // ─── Several results in one transaction ─────────────────────────────────────────────────────────────────────────

    function testFuzz_inABatchEachResultCompletesItsOwnCallOrNone(uint8 calls, uint256 malformed) public {
        uint256 count = bound(calls, 1, 8);
        uint64[] memory callIds = new uint64[](count);
        bytes[] memory outputs = new bytes[](count);
        bool[] memory due = new bool[](count);
        for (uint256 i; i < count; ++i) {
            callIds[i] = submitCreate(service, 0);
            bool isReceipt = malformed >> i & 1 == 0;
            due[i] = isReceipt && assignedTo(service, callIds[i]) == assigned;
            outputs[i] = isReceipt ? receipt(OUTCOME_DONE, 1) : bytes("no receipt");
        }
        vm.prank(assigned);
        core.submitResults(service, callIds, outputs);
        for (uint256 i; i < count; ++i) {
            assertEq(core.isCompleted(service, callIds[i]), due[i]);
            assertEq(blueprint.assignment(service, callIds[i]).answered, due[i]);
        }
    }

    function test_anAcceptedResultDoesNotCarryTheNextOne() public {
        (uint64[] memory callIds, bytes[] memory outputs) = mineThenTheirs();
        vm.prank(assigned);
        core.submitResults(service, callIds, outputs);
        assertTrue(core.isCompleted(service, callIds[0]));
        assertFalse(core.isCompleted(service, callIds[1]));
    }

    /// The flag of the first result must not let the second pass, whatever gas its hook is left with.
    function testFuzz_noGasLimitLetsAStaleFlagPass(uint32 gasLimit) public {
        (uint64[] memory callIds, bytes[] memory outputs) = mineThenTheirs();
        vm.prank(assigned);
        try core.submitResults{gas: bound(gasLimit, 20_000, 300_000)}(service, callIds, outputs) {} catch {}
        assertFalse(core.isCompleted(service, callIds[1]));
        isUnanswered(callIds[1]);
    }

    function test_noGasLimitLetsAStaleFlagPass() public {
        (uint64[] memory callIds, bytes[] memory outputs) = mineThenTheirs();
        uint256 snapshot = vm.snapshotState();
        for (uint256 gasLimit = 20_000; gasLimit < 220_000; gasLimit += 97) {
            vm.prank(assigned);
            try core.submitResults{gas: gasLimit}(service, callIds, outputs) {} catch {}
            assertFalse(core.isCompleted(service, callIds[1]));
            vm.revertToState(snapshot);
        }
    }

    /// A right answer counts whole or not at all: no gas limit completes the call without a receipt or records one in vain.
    function testFuzz_noGasLimitSplitsAnAnswer(uint32 gasLimit) public {
        vm.prank(assigned);
        try core.submitResult{gas: bound(gasLimit, 20_000, 200_000)}(service, call, receipt(OUTCOME_DONE, 1)) {}
            catch {}
        assertEq(core.isCompleted(service, call), blueprint.assignment(service, call).answered);
    }

    // ─── After the end ──────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_afterTheEndOfTheServiceNoResultIsTaken(uint8 outcome, bool isTerminated) public {
        if (isTerminated) core.terminate(service);
        else skip(TTL_SECONDS + 1);
        vm.expectRevert(FakeCore.ServiceNotActive.selector);
        answerAs(assigned, service, call, receipt(outcome % 3, outcome % 3 == 0 ? 1 : 0));
        isUnanswered(call);
    }

    function testFuzz_aLateReceiptStillCounts(uint64 blocks) public {
        vm.roll(bound(blocks, block.number, type(uint64).max));
        answer(service, call, OUTCOME_DONE, 1);
        assertTrue(core.isCompleted(service, call));
    }

    function ignores(address operator, bytes memory output) private {
        I.SandboxState before = stateOf(service, call);
        vm.expectEmit(address(blueprint));
        emit I.ResultIgnored(service, call, operator);
        answerAs(operator, service, call, output);
        isUnanswered(call);
        assertFalse(core.isCompleted(service, call));
        assertState(service, call, before);
    }

    function isUnanswered(uint64 callId) private view {
        assertFalse(blueprint.assignment(service, callId).answered);
        assertEq(blueprint.assignment(service, callId).responseHash, 0);
        assertEq(blueprint.assignment(service, callId).detail, 0);
    }

    /// A call of the assigned operator and one of somebody else's, with receipts for both.
    function mineThenTheirs() private returns (uint64[] memory callIds, bytes[] memory outputs) {
        callIds = new uint64[](2);
        outputs = new bytes[](2);
        callIds[0] = call;
        do {
            callIds[1] = submitCreate(service, 0);
        } while (assignedTo(service, callIds[1]) == assigned);
        outputs[0] = receipt(OUTCOME_DONE, 1);
        outputs[1] = outputs[0];
    }
}
