// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {JOB_EXEC, JOB_SANDBOX_CREATE, JOB_SANDBOX_DELETE, OUTCOME_DONE, OperatorProfile} from "../src/JobTypes.sol";
import {ExecRequest, SandboxCreateRequest} from "../src/JobTypes.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// Each hook at its most expensive, on cold storage. The core gives a hook 500,000 gas, and its own answers cost some thousands more
/// there than on the fake.
contract GasTest is Fixture {
    uint256 private constant CALL_GAS_MAX = 325_000;
    uint256 private constant RESULT_GAS_MAX = 100_000;
    uint256 private constant TERMINATION_GAS_MAX = 375_000;
    uint256 private constant REGISTRATION_GAS_MAX = 400_000;

    // ─── Job calls and results ──────────────────────────────────────────────────────────────────────────────────────

    function test_createAmongTheMostOperatorsWithTheMostInputs() public {
        address[] memory operators = registerMany(OPERATORS_MAX);
        uint64 service =
            core.openService(customer, operators, selection(uint32(OPERATORS_MAX), keccak256("s"), false), 30 days);
        // The last slot of an operator is the dearest: it leaves the eligible set.
        for (uint256 i; i < OPERATORS_MAX; ++i) {
            setCapacity(operators[i], 1);
        }
        SandboxCreateRequest memory request;
        request.ttl_blocks = 100;
        bytes memory inputs = abi.encode(request);
        request.env_json = string(new bytes(blueprint.INPUT_BYTES_MAX() - inputs.length));
        inputs = abi.encode(request);
        assertEq(inputs.length, blueprint.INPUT_BYTES_MAX());
        assertLt(gasOfCall(service, JOB_SANDBOX_CREATE, inputs), CALL_GAS_MAX);
    }

    function test_execWithTheMostInputs() public {
        (uint64 service, uint64 target) = sandboxOfAFullOperator();
        string memory id = idOf(service, target, 0);
        ExecRequest memory request = ExecRequest(id, "", "", "", "", 0);
        request.command = string(new bytes(blueprint.INPUT_BYTES_MAX() - abi.encode(request).length));
        assertLt(gasOfCall(service, JOB_EXEC, abi.encode(request)), CALL_GAS_MAX);
    }

    function test_execAndDeleteOfAnEverydaySize() public {
        (uint64 service, uint64 target) = sandboxOfAFullOperator();
        assertLt(gasOfCall(service, JOB_EXEC, Inputs.onSandbox(JOB_EXEC, idOf(service, target, 0))), 120_000);
        assertLt(gasOfCall(service, JOB_SANDBOX_DELETE, Inputs.onSandbox(JOB_SANDBOX_DELETE, idOf(service, target, 0))), 120_000);
    }

    function test_theReceiptOfACreate() public {
        (uint64 service,) = sandboxOfAFullOperator();
        setCapacity(operatorAt(0), 2);
        uint64 call = submitCreate(service, 100);
        assertLt(gasOfResult(service, call, JOB_SANDBOX_CREATE, Inputs.create(100), 1), RESULT_GAS_MAX);
    }

    function test_theReceiptOfADeleteByAFullOperator() public {
        (uint64 service, uint64 target) = sandboxOfAFullOperator();
        uint64 call = submitDelete(service, target);
        bytes memory inputs = Inputs.onSandbox(JOB_SANDBOX_DELETE, idOf(service, target, 0));
        assertLt(gasOfResult(service, call, JOB_SANDBOX_DELETE, inputs, 0), RESULT_GAS_MAX);
    }

    function testFuzz_aResultThatIsIgnoredIsCheap(address operator, bytes memory output) public {
        uint64 service = serviceOf(1, 0);
        uint64 call = submitCreate(service, 0);
        vm.assume(operator != operatorAt(0));
        bytes32 inputsHash = keccak256(Inputs.create(0));
        uint256 used = gasOf(
            abi.encodeCall(blueprint.onJobResult, (service, JOB_SANDBOX_CREATE, call, operator, inputsHash, output))
        );
        assertLt(used, 20_000);
    }

    // ─── Loops over operators ───────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_anEnforcedRequestCostsTheSameHoweverManyAreEligible(uint8 pool, bytes32 seed) public {
        registerMany(bound(pool, OPERATORS_MAX, 200));
        address[] memory drawn = blueprint.previewOperatorSelection(uint32(OPERATORS_MAX), seed);
        bytes memory inputs = selection(uint32(OPERATORS_MAX), seed, true);
        uint256 used =
            gasOf(abi.encodeCall(blueprint.onRequest, (1, customer, drawn, inputs, uint64(0), address(0), 0)));
        assertLt(used, 120_000);
    }

    function test_terminationWithTheMostOperatorsAllOfThemFull() public {
        address[] memory operators = registerMany(OPERATORS_MAX);
        uint64 service = core.openService(customer, operators, "", 0);
        for (uint256 i; i < OPERATORS_MAX; ++i) {
            setCapacity(operators[i], 1);
        }
        for (uint256 i; i < OPERATORS_MAX; ++i) {
            submitCreate(service, 0);
        }
        assertEq(blueprint.eligibleCount(), 0);
        assertLt(gasOf(abi.encodeCall(blueprint.onServiceTermination, (service, customer))), TERMINATION_GAS_MAX);
        assertEq(blueprint.eligibleCount(), OPERATORS_MAX);
    }

    function test_registrationWithTheLongestUrl() public {
        bytes memory inputs = abi.encode(OperatorProfile(1, 1, bytes32(uint256(1)), string(new bytes(256))));
        for (uint256 i; i < 256; ++i) {
            inputs[inputs.length - 1 - i] = "x";
        }
        assertLt(gasOf(abi.encodeCall(blueprint.onRegister, (operatorAt(0), inputs))), REGISTRATION_GAS_MAX);
    }

    // ─── Measuring ──────────────────────────────────────────────────────────────────────────────────────────────────

    function sandboxOfAFullOperator() private returns (uint64 service, uint64 target) {
        service = serviceOf(1, 30 days);
        setCapacity(operatorAt(0), 1);
        target = liveSandbox(service, 1000);
    }

    /// Of `onJobCall` alone, in a call that the core has stored.
    function gasOfCall(uint64 service, uint8 job, bytes memory inputs) private returns (uint256 used) {
        uint256 snapshot = vm.snapshotState();
        uint64 call = submitAs(customer, service, job, inputs);
        vm.revertToState(snapshot);
        vm.mockCall(
            address(core),
            abi.encodeWithSelector(core.getJobCall.selector, service, call),
            abi.encode(job, customer, block.timestamp, 0, false, false, 0)
        );
        used = gasOf(abi.encodeCall(blueprint.onJobCall, (service, job, call, inputs)));
        vm.clearMockedCalls();
    }

    function gasOfResult(uint64 service, uint64 call, uint8 job, bytes memory inputs, uint256 detail)
        private
        returns (uint256 used)
    {
        address operator = assignedTo(service, call);
        bytes memory output = receipt(OUTCOME_DONE, detail);
        used = gasOf(abi.encodeCall(blueprint.onJobResult, (service, job, call, operator, keccak256(inputs), output)));
    }

    function gasOf(bytes memory hook) private returns (uint256 used) {
        vm.cool(address(blueprint));
        vm.cool(address(core));
        vm.prank(address(core));
        (bool ok,) = address(blueprint).call(hook);
        used = vm.lastCallGas().gasTotalUsed;
        assertTrue(ok);
        emit log_named_uint("gas", used);
    }
}
