// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {PRICING_PAY_ONCE} from "../src/ITangleCore.sol";
import {
    JOB_BATCH_CREATE,
    JOB_BATCH_EXEC,
    JOB_BATCH_TASK,
    JOB_EXEC,
    JOB_SANDBOX_CREATE,
    JOB_SANDBOX_DELETE,
    JOB_WORKFLOW_CANCEL,
    JOB_WORKFLOW_CREATE,
    JOB_WORKFLOW_TRIGGER,
    OUTCOME_CALLER,
    OUTCOME_DONE,
    OUTCOME_OPERATOR,
    OperatorProfile,
    SandboxCreateRequest,
    WorkflowCreateRequest
} from "../src/JobTypes.sol";
import {FakeCore} from "./FakeCore.sol";
import {Fixture} from "./Fixture.sol";
import {Inputs} from "./Inputs.sol";

/// A core that remembers what each hook last cost.
contract MeteringCore is FakeCore {
    mapping(bytes4 hook => uint256) public costOf;

    function _hook(bytes memory payload) internal override returns (bool ok, bytes memory reason) {
        // From here on the account is warm: its first access is not the hook's.
        require(address(manager).code.length != 0);
        uint256 before = gasleft();
        (ok, reason) = super._hook(payload);
        costOf[bytes4(payload)] = before - gasleft();
    }
}

/// Each hook at its dearest. Every call is a transaction of its own, so that storage is cold and has been written before.
/// forge-config: default.isolate = true
contract GasTest is Fixture {
    // What questions cost more at the real core, whose storage lies behind a router. Weighed there in tests/it/contract/gas.rs.
    uint256 private constant CALL_GAS = 1500;
    uint256 private constant QUOTES_GAS = 5000;
    uint256 private constant SERVICE_GAS = 3000;
    uint256 private constant MEMBERS_GAS = 1500;

    uint256 private constant HOOK_GAS_MAX = 250_000; // in a service of sixteen operators
    // Several extremes at once: fifteen of sixteen operators unusable and the longest text or inputs; all named one by one, with prices in
    // exactly the wrong order, each with just enough room.
    uint256 private constant EXTREME_GAS_MAX = 350_000;
    uint256 private constant LARGE_HOOK_GAS_MAX = 500_000; // in one of the most: what the core gives
    uint256 private constant RESULT_GAS_MAX = 100_000;
    uint256 private constant REQUEST_OF_5_GAS_MAX = 70_000;
    uint256 private constant REQUEST_OF_20_GAS_MAX = 140_000;
    uint256 private constant WORKFLOW_GAS_MAX = 200_000;
    uint256 private constant TRIGGER_GAS_MAX = 45_000;
    uint256 private constant CANCEL_GAS_MAX = 40_000;

    uint64 private constant TTL_SECONDS = 30 days;
    uint64 private constant TTL_BLOCKS = 1000;
    uint32 private constant ROOM = 200;
    bytes32 private constant SEED = keccak256("seed");

    function newCore() internal override returns (FakeCore) {
        return new MeteringCore();
    }

    // ─── Requests of services ───────────────────────────────────────────────────────────────────────────────────────

    function test_anEnforcedRequestOfFiveOperators() public {
        uint16[3] memory sizes = [10, 100, 1000];
        registerUpTo(sizes[0]);
        requests(5, "onRequest, 5 drawn of 10", REQUEST_OF_5_GAS_MAX);
        registerUpTo(sizes[1]);
        requests(5, "onRequest, 5 drawn of 100", REQUEST_OF_5_GAS_MAX);
        registerUpTo(sizes[2]);
        requests(5, "onRequest, 5 drawn of 1000", REQUEST_OF_5_GAS_MAX);
    }

    function test_anEnforcedRequestOfTwentyOperators() public {
        registerUpTo(100);
        requests(20, "onRequest, 20 drawn of 100", REQUEST_OF_20_GAS_MAX);
        registerUpTo(1000);
        requests(20, "onRequest, 20 drawn of 1000", REQUEST_OF_20_GAS_MAX);
    }

    function test_anEnforcedRequestOfManyOperatorsAboveAFloor() public {
        core.setPricing(PRICING_PAY_ONCE, address(0));
        vm.prank(creator);
        blueprint.setServiceFloor(stranger, 1);
        registerUpTo(200);
        requests(16, "onRequest, 16 drawn of 200, floor", HOOK_GAS_MAX);
        requests(uint32(OPERATORS_MAX), "onRequest, 32 drawn of 200, floor", LARGE_HOOK_GAS_MAX);
    }

    function test_aRequestThatListsItsOperators() public {
        registerUpTo(OPERATORS_MAX);
        seededService(blueprint.previewOperatorSelection(16, 0), SEED);
        within("onRequest, 16 listed", blueprint.onRequest.selector, 0, HOOK_GAS_MAX);
        seededService(blueprint.previewOperatorSelection(uint32(OPERATORS_MAX), 0), SEED);
        within("onRequest, 32 listed", blueprint.onRequest.selector, 0, LARGE_HOOK_GAS_MAX);
        within("onServiceInitialized", blueprint.onServiceInitialized.selector, 0, HOOK_GAS_MAX);
    }

    /// forge-config: default.fuzz.runs = 16
    function testFuzz_anEnforcedRequestCostsTheSameHoweverManyAreEligible(uint8 pool, bytes32 seed) public {
        registerUpTo(bound(pool, 5, 120));
        openDrawn(5, seed);
        assertLt(costOf(blueprint.onRequest.selector), REQUEST_OF_5_GAS_MAX);
    }

    function requests(uint32 count, string memory name, uint256 most) private {
        openDrawn(count, SEED);
        within(name, blueprint.onRequest.selector, 0, most);
    }

    function openDrawn(uint32 count, bytes32 seed) private {
        address[] memory drawn = blueprint.previewOperatorSelection(count, seed);
        core.openPaidService(customer, drawn, selection(count, seed, true), TTL_SECONDS, stranger, type(uint128).max);
    }

    // ─── Operators ──────────────────────────────────────────────────────────────────────────────────────────────────

    function test_registration() public {
        registerUpTo(3);
        bytes memory url = new bytes(256);
        for (uint256 i; i < url.length; ++i) {
            url[i] = "x";
        }
        register(operatorAt(3), 1);
        within("onRegister, everyday url", blueprint.onRegister.selector, 0, HOOK_GAS_MAX);
        core.register(operatorAt(4), abi.encode(OperatorProfile(1, 1, bytes32(uint256(1)), string(url))));
        within("onRegister, longest url", blueprint.onRegister.selector, 0, LARGE_HOOK_GAS_MAX);
        core.unregister(operatorAt(1));
        within("onUnregister", blueprint.onUnregister.selector, 0, HOOK_GAS_MAX);
    }

    function test_anOperatorThatIsMadeToLeave() public {
        isMadeToLeave(16, "onOperatorLeft, full, holding, of 16", HOOK_GAS_MAX);
        isMadeToLeave(OPERATORS_MAX, "onOperatorLeft, full, holding, of 32", LARGE_HOOK_GAS_MAX);
    }

    function isMadeToLeave(uint256 size, string memory name, uint256 most) private {
        uint64 service = crowded(size);
        for (uint256 i; i < size; ++i) {
            setCapacity(operatorAt(i), usedBy(operatorAt(i)));
            core.scheduleExit(service, operatorAt(i));
        }
        core.forceOut(service, operatorAt(size - 2));
        within(name, blueprint.onOperatorLeft.selector, 0, most);
    }

    function test_comingAndGoing() public {
        comeAndGo(16, "of 16", HOOK_GAS_MAX);
        comeAndGo(OPERATORS_MAX, "of 32", LARGE_HOOK_GAS_MAX);
    }

    function comeAndGo(uint256 size, string memory suffix, uint256 most) private {
        uint64 service = crowded(size);
        for (uint256 i; i < size; ++i) {
            core.scheduleExit(service, operatorAt(i));
        }
        within(string.concat("onExitScheduled, the last ", suffix), blueprint.onExitScheduled.selector, 0, most);
        core.cancelExit(service, operatorAt(size - 2));
        within(string.concat("onExitCanceled, all leaving ", suffix), blueprint.onExitCanceled.selector, 0, most);
        core.forceOut(service, operatorAt(size - 1));
        register(operatorAt(60), 1);
        core.join(service, operatorAt(60));
        within(string.concat("onOperatorJoined, all leaving ", suffix), blueprint.onOperatorJoined.selector, 0, most);
    }

    // ─── The end of a service ───────────────────────────────────────────────────────────────────────────────────────

    function test_terminationWithAllOperatorsFull() public {
        isTerminated(16, "onServiceTermination, 16 full", HOOK_GAS_MAX);
        isTerminated(OPERATORS_MAX, "onServiceTermination, 32 full", LARGE_HOOK_GAS_MAX);
    }

    function isTerminated(uint256 size, string memory name, uint256 most) private {
        uint64 service = crowded(size);
        fill(size);
        core.terminate(service);
        within(name, blueprint.onServiceTermination.selector, 0, most);
        assertEq(blueprint.serviceView(service).sandboxes, 0);
        assertGt(blueprint.eligibleCount(), 0);
    }

    // ─── Calls that take any operator ───────────────────────────────────────────────────────────────────────────────

    function test_aCreateWithOneOperatorLeft() public {
        createsWithOneLeft(16, false, "onJobCall, create, 15 of 16 full", HOOK_GAS_MAX);
        createsWithOneLeft(16, true, "onJobCall, create, 15 of 16 leaving", EXTREME_GAS_MAX);
        createsWithOneLeft(OPERATORS_MAX, false, "onJobCall, create, 31 of 32 full", LARGE_HOOK_GAS_MAX);
        createsWithOneLeft(OPERATORS_MAX, true, "onJobCall, create, 31 of 32 leaving", LARGE_HOOK_GAS_MAX);
    }

    function createsWithOneLeft(uint256 size, bool isLeaving, string memory name, uint256 most) private {
        uint64 service = crowded(size);
        leaveOne(service, size, uint64(size), 0, isLeaving);
        SandboxCreateRequest memory request = Inputs.template(TTL_BLOCKS);
        request.env_json = string(new bytes(blueprint.INPUT_BYTES_MAX() - abi.encode(request).length));
        submitAs(customer, service, JOB_SANDBOX_CREATE, abi.encode(request));
        within(name, blueprint.onJobCall.selector, CALL_GAS + SERVICE_GAS + MEMBERS_GAS, most);
    }

    function test_aCreateOnAnOrdinaryDay() public {
        uint64 service = crowded(3);
        submitCreate(service, TTL_BLOCKS);
        within(
            "onJobCall, create, everyday",
            blueprint.onJobCall.selector,
            CALL_GAS + SERVICE_GAS + MEMBERS_GAS,
            HOOK_GAS_MAX
        );
        submitQuoted(service, JOB_SANDBOX_CREATE, Inputs.create(TTL_BLOCKS), only(operatorAt(1)));
        within(
            "onJobCall, create, quoted", blueprint.onJobCall.selector, CALL_GAS + QUOTES_GAS + SERVICE_GAS, HOOK_GAS_MAX
        );
    }

    function test_aWorkflowWithABodyOfFourKilobytes() public {
        uint64 service = crowded(3);
        submitBody(service, 4096, 11);
        workflowWithin("4 KB of 3", WORKFLOW_GAS_MAX);
        service = crowded(16);
        submitBody(service, 4096, 11);
        workflowWithin("4 KB of 16", HOOK_GAS_MAX);
    }

    function test_aWorkflowAtItsDearest() public {
        uint256 whole = blueprint.WORKFLOW_STORED_BYTES_MAX() - 8 - 192;
        uint64 service = crowded(16);
        leaveOne(service, 16, 16, 0, false);
        submitBody(service, whole, 192);
        workflowWithin("stored whole, 15 of 16 full", EXTREME_GAS_MAX);
        submitBody(service, 64_000, 192);
        workflowWithin("64 KB, 15 of 16 full", EXTREME_GAS_MAX);
        service = crowded(16);
        leaveOne(service, 16, 16, 0, true);
        submitBody(service, whole, 192);
        workflowWithin("stored whole, 15 of 16 leaving", EXTREME_GAS_MAX);
        service = crowded(OPERATORS_MAX);
        leaveOne(service, OPERATORS_MAX, uint64(OPERATORS_MAX), 0, true);
        submitBody(service, whole, 192);
        workflowWithin("stored whole, 31 of 32 leaving", LARGE_HOOK_GAS_MAX);
    }

    function workflowWithin(string memory name, uint256 most) private {
        name = string.concat("onJobCall, workflow create, ", name);
        within(name, blueprint.onJobCall.selector, CALL_GAS + MEMBERS_GAS, most);
    }

    function submitBody(uint64 service, uint256 bodyBytes, uint256 configBytes) private {
        WorkflowCreateRequest memory request;
        request.trigger_type = "event";
        request.workflow_json = string(letters(bodyBytes));
        request.trigger_config = string(letters(configBytes));
        submitAs(customer, service, JOB_WORKFLOW_CREATE, abi.encode(request));
    }

    // ─── Batches ────────────────────────────────────────────────────────────────────────────────────────────────────

    function test_aBatchCreateAmongSixteen() public {
        batchCreates(16, "16", EXTREME_GAS_MAX);
    }

    function test_aBatchCreateAmongTheMost() public {
        batchCreates(OPERATORS_MAX, "32", LARGE_HOOK_GAS_MAX);
    }

    /// Prices fall along the list, so that sorting moves everything; each has room for its part only, so that all of them have one.
    function batchCreates(uint256 size, string memory of_, uint256 most) private {
        uint64 service = crowded(size);
        address[] memory members = core.getServiceOperators(service);
        uint32 count = 192;
        for (uint256 i; i < size; ++i) {
            vm.prank(members[i]);
            blueprint.setOperatorProfile(uint32(1 + count / size), size - i, 0, "");
        }
        string[3] memory words = ["round_robin", "cheapest", "random"];
        for (uint256 i; i < 3; ++i) {
            string memory name = string.concat("onJobCall, batch create of 192 among ", of_, ", ", words[i]);
            submitAs(
                customer, service, JOB_BATCH_CREATE, Inputs.batchCreate(count, TTL_BLOCKS, new address[](0), words[i])
            );
            within(name, blueprint.onJobCall.selector, CALL_GAS + SERVICE_GAS + MEMBERS_GAS, most);
            bytes memory named = Inputs.batchCreate(count, TTL_BLOCKS, members, words[i]);
            submitAs(customer, service, JOB_BATCH_CREATE, named);
            within(
                string.concat(name, ", named"), blueprint.onJobCall.selector, CALL_GAS + SERVICE_GAS + MEMBERS_GAS, most
            );
            submitQuoted(service, JOB_BATCH_CREATE, named, members);
            within(
                string.concat(name, ", quoted"),
                blueprint.onJobCall.selector,
                CALL_GAS + SERVICE_GAS + MEMBERS_GAS,
                most
            );
        }
        for (uint256 i; i < size / 2; ++i) {
            core.scheduleExit(service, members[2 * i]);
        }
        submitAs(
            customer, service, JOB_BATCH_CREATE, Inputs.batchCreate(count / 2, TTL_BLOCKS, new address[](0), "random")
        );
        within(
            string.concat("onJobCall, batch create, half leaving of ", of_),
            blueprint.onJobCall.selector,
            CALL_GAS + SERVICE_GAS + MEMBERS_GAS,
            most
        );
    }

    function test_aPlainBatchWithTheMostEndpoints() public {
        uint64 service = crowded(16);
        submitPlain(service, JOB_BATCH_TASK, "onJobCall, batch task of the most endpoints among 16", HOOK_GAS_MAX);
        submitPlain(service, JOB_BATCH_EXEC, "onJobCall, batch exec of the most endpoints among 16", HOOK_GAS_MAX);
        service = crowded(OPERATORS_MAX);
        submitPlain(service, JOB_BATCH_EXEC, "onJobCall, batch exec of the most endpoints among 32", LARGE_HOOK_GAS_MAX);
    }

    function submitPlain(uint64 service, uint8 job, string memory name, uint256 most) private {
        submitAs(customer, service, job, Inputs.plainBatch(job, 128, "majority"));
        within(name, blueprint.onJobCall.selector, CALL_GAS + MEMBERS_GAS, most);
    }

    // ─── Calls that are bound ───────────────────────────────────────────────────────────────────────────────────────

    function test_aJobInTheLastSandboxOfABatch() public {
        (uint64 service, uint64 batch) = madeBatch(16);
        inLastSandbox(service, batch, "16", HOOK_GAS_MAX);
        (service, batch) = madeBatch(OPERATORS_MAX);
        inLastSandbox(service, batch, "32", LARGE_HOOK_GAS_MAX);
    }

    function inLastSandbox(uint64 service, uint64 batch, string memory of_, uint256 most) private {
        string memory id = idOf(service, batch, 199);
        string memory text = string(new bytes(60_000));
        submitAs(customer, service, JOB_EXEC, Inputs.onSandbox(JOB_EXEC, id, text));
        within(
            string.concat("onJobCall, exec in the last slot among ", of_), blueprint.onJobCall.selector, CALL_GAS, most
        );
        submitDelete(service, batch, 199);
        within(
            string.concat("onJobCall, delete of the last slot among ", of_),
            blueprint.onJobCall.selector,
            CALL_GAS,
            most
        );
    }

    function test_aJobInASandbox() public {
        uint64 service = crowded(3);
        submitExec(service, 0);
        within("onJobCall, exec", blueprint.onJobCall.selector, CALL_GAS, HOOK_GAS_MAX);
        submitDelete(service, 0);
        within("onJobCall, delete", blueprint.onJobCall.selector, CALL_GAS, HOOK_GAS_MAX);
    }

    function test_triggerAndCancel() public {
        uint64 service = crowded(3);
        uint64 workflow = activeWorkflow(service);
        submitAs(customer, service, JOB_WORKFLOW_TRIGGER, Inputs.control(workflow));
        within("onJobCall, workflow trigger", blueprint.onJobCall.selector, CALL_GAS, TRIGGER_GAS_MAX);
        submitAs(customer, service, JOB_WORKFLOW_CANCEL, Inputs.control(workflow));
        within("onJobCall, workflow cancel", blueprint.onJobCall.selector, CALL_GAS, CANCEL_GAS_MAX);
    }

    // ─── Results ────────────────────────────────────────────────────────────────────────────────────────────────────

    function test_theResultOfACreate() public {
        uint64 service = crowded(16);
        setCapacity(operatorAt(3), 2);
        uint64 call = submitQuoted(service, JOB_SANDBOX_CREATE, Inputs.create(TTL_BLOCKS), only(operatorAt(3)));
        answer(service, call, OUTCOME_DONE, 1);
        within("onJobResult, create done", blueprint.onJobResult.selector, 0, RESULT_GAS_MAX);
        setCapacity(operatorAt(15), 2);
        call = submitQuoted(service, JOB_SANDBOX_CREATE, Inputs.create(TTL_BLOCKS), only(operatorAt(15)));
        answer(service, call, OUTCOME_CALLER, 0);
        within("onJobResult, create failed by a full operator", blueprint.onJobResult.selector, 0, RESULT_GAS_MAX);
    }

    function test_theResultOfADeleteByAFullOperator() public {
        isDeletedAmong(16, "onJobResult, delete by a full operator among 16", RESULT_GAS_MAX);
        isDeletedAmong(OPERATORS_MAX, "onJobResult, delete by a full operator among 32", LARGE_HOOK_GAS_MAX);
    }

    /// Of one in the middle of the list: the last one takes its place.
    function isDeletedAmong(uint256 size, string memory name, uint256 most) private {
        uint64 service = crowded(size);
        fill(size);
        answer(service, submitDelete(service, uint64(size - 6)), OUTCOME_DONE, 0);
        within(name, blueprint.onJobResult.selector, 0, most);
    }

    function test_theResultsOfABatch() public {
        answersBatches(16, "16", RESULT_GAS_MAX);
        answersBatches(OPERATORS_MAX, "32", LARGE_HOOK_GAS_MAX);
    }

    function answersBatches(uint256 size, string memory of_, uint256 most) private {
        uint64 service = crowded(size);
        bytes memory inputs = Inputs.batchCreate(200, TTL_BLOCKS, new address[](0), "round_robin");
        uint64 call = submitAs(customer, service, JOB_BATCH_CREATE, inputs);
        answerParts(service, call, string.concat("onJobResult, batch create among ", of_), most);
        call = submitAs(customer, service, JOB_BATCH_EXEC, Inputs.plainBatch(JOB_BATCH_EXEC, 128, "all"));
        answerParts(service, call, string.concat("onJobResult, batch exec among ", of_), most);
    }

    /// All of a batch at one operator: the most slots of a receipt.
    function test_theResultOfTwoHundredSandboxes() public {
        uint64 service = crowded(16);
        setCapacity(operatorAt(15), 201);
        bytes memory inputs = Inputs.batchCreate(200, TTL_BLOCKS, only(operatorAt(15)), "cheapest");
        uint64 call = submitAs(customer, service, JOB_BATCH_CREATE, inputs);
        answerAs(operatorAt(15), service, call, receipt(OUTCOME_DONE, type(uint256).max >> 56));
        within("onJobResult, 200 sandboxes of one operator", blueprint.onJobResult.selector, 0, RESULT_GAS_MAX);
    }

    /// The last one makes its operator full and completes the batch.
    function answerParts(uint64 service, uint64 call, string memory name, uint256 most) private {
        uint8 count = blueprint.assignment(service, call).parts;
        for (uint256 i; i < count; ++i) {
            (address operator, uint256 share) = partAt(service, call, i);
            if (share != 0 && i + 1 == count) setCapacity(operator, usedBy(operator) + bits(share));
            answerAs(operator, service, call, receipt(OUTCOME_DONE, share));
            if (i == 0) within(string.concat(name, ", first"), blueprint.onJobResult.selector, 0, most);
        }
        within(string.concat(name, ", last"), blueprint.onJobResult.selector, 0, most);
    }

    function test_theResultsOfAnExecAndAWorkflow() public {
        uint64 service = crowded(16);
        answer(service, submitExec(service, 0), OUTCOME_DONE, 0);
        within("onJobResult, exec", blueprint.onJobResult.selector, 0, RESULT_GAS_MAX);
        activeWorkflow(service);
        within("onJobResult, workflow active", blueprint.onJobResult.selector, 0, RESULT_GAS_MAX);
    }

    function test_aResultThatIsIgnored() public {
        uint64 service = crowded(3);
        uint64 call = submitQuoted(service, JOB_SANDBOX_CREATE, Inputs.create(0), only(operatorAt(0)));
        answerAs(operatorAt(0), service, call, "no receipt");
        within("onJobResult, no receipt", blueprint.onJobResult.selector, 0, 20_000);
        call = submitWorkflow(service);
        address other = assignedTo(service, call) == operatorAt(1) ? operatorAt(2) : operatorAt(1);
        answerAs(other, service, call, receipt(OUTCOME_DONE, 0));
        within("onJobResult, of a stranger", blueprint.onJobResult.selector, 0, 20_000);
    }

    // ─── Moving ─────────────────────────────────────────────────────────────────────────────────────────────────────

    function test_aFailureThatMovesACreateToTheOneLeft() public {
        movesToTheOneLeft(16, false, "onJobResult, create moves, 14 of 16 full", HOOK_GAS_MAX);
        movesToTheOneLeft(16, true, "onJobResult, create moves, 14 of 16 leaving", HOOK_GAS_MAX);
        movesToTheOneLeft(OPERATORS_MAX, false, "onJobResult, create moves, 30 of 32 full", LARGE_HOOK_GAS_MAX);
        movesToTheOneLeft(OPERATORS_MAX, true, "onJobResult, create moves, 30 of 32 leaving", LARGE_HOOK_GAS_MAX);
    }

    function movesToTheOneLeft(uint256 size, bool isLeaving, string memory name, uint256 most) private {
        uint64 service = crowded(size);
        uint64 call = submitCreate(service, TTL_BLOCKS);
        address from = assignedTo(service, call);
        leaveOne(service, size, call, 1, isLeaving);
        setCapacity(from, usedBy(from));
        answerAs(from, service, call, receipt(OUTCOME_OPERATOR, 0));
        assertEq(blueprint.assignment(service, call).epoch, 1);
        within(name, blueprint.onJobResult.selector, CALL_GAS + MEMBERS_GAS, most);
    }

    /// Everyone has room, and all but one have had it.
    function test_aFailureThatMovesACreateForTheLastTime() public {
        movesForTheLastTime(16, "onJobResult, create moves for the 15th time", HOOK_GAS_MAX);
        movesForTheLastTime(OPERATORS_MAX, "onJobResult, create moves for the 31st time", LARGE_HOOK_GAS_MAX);
    }

    function movesForTheLastTime(uint256 size, string memory name, uint256 most) private {
        uint64 service = crowded(size);
        uint64 call = submitCreate(service, TTL_BLOCKS);
        uint256 dearest;
        for (uint256 i = 1; i < size; ++i) {
            address from = assignedTo(service, call);
            setCapacity(from, usedBy(from));
            answerAs(from, service, call, receipt(OUTCOME_OPERATOR, 0));
            uint256 cost = costOf(blueprint.onJobResult.selector);
            if (cost > dearest) dearest = cost;
            setCapacity(from, ROOM);
        }
        assertEq(blueprint.assignment(service, call).epoch, size - 1);
        within(name, dearest, CALL_GAS + MEMBERS_GAS, most);
        answer(service, call, OUTCOME_OPERATOR, 0);
        assertTrue(core.isCompleted(service, call));
        within(string.concat(name, " and then fails"), blueprint.onJobResult.selector, CALL_GAS + MEMBERS_GAS, most);
    }

    // ─── Words ──────────────────────────────────────────────────────────────────────────────────────────────────────

    /// A service in which everyone holds a sandbox and is registered with all that is stored.
    function crowded(uint256 size) private returns (uint64 service) {
        registerUpTo(size);
        address[] memory members = new address[](size);
        for (uint256 i; i < size; ++i) {
            members[i] = operatorAt(i);
            setCapacity(members[i], ROOM);
        }
        service = core.openService(customer, members, selection(uint32(size), SEED, false), TTL_SECONDS);
        for (uint256 i; i < size; ++i) {
            uint64 call = submitQuoted(service, JOB_SANDBOX_CREATE, Inputs.create(0), only(members[i]));
            answer(service, call, OUTCOME_DONE, 1);
        }
    }

    function registerUpTo(uint256 count) private {
        (, uint256 registered) = blueprint.operators(0, 0);
        for (uint256 i = registered; i < count; ++i) {
            if (!blueprint.operatorView(operatorAt(i)).registered) register(operatorAt(i), ROOM);
        }
    }

    function fill(uint256 size) private {
        for (uint256 i; i < size; ++i) {
            setCapacity(operatorAt(i), usedBy(operatorAt(i)));
        }
    }

    /// Only who is drawn last may take the call, which makes it full; the others are full or leaving.
    function leaveOne(uint64 service, uint256 size, uint64 call, uint16 epoch, bool isLeaving) private {
        address[] memory order = drawOrder(service, call, epoch);
        address from = epoch == 0 ? address(0) : assignedTo(service, call);
        address last = order[size - 1] == from ? order[size - 2] : order[size - 1];
        for (uint256 i; i < size; ++i) {
            if (order[i] == last) setCapacity(last, usedBy(last) + 1);
            else if (isLeaving) core.scheduleExit(service, order[i]);
            else setCapacity(order[i], usedBy(order[i]));
        }
    }

    /// Of the most sandboxes, all of them made.
    function madeBatch(uint256 size) private returns (uint64 service, uint64 call) {
        service = crowded(size);
        bytes memory inputs = Inputs.batchCreate(200, TTL_BLOCKS, new address[](0), "random");
        call = submitAs(customer, service, JOB_BATCH_CREATE, inputs);
        for (uint256 i; i < size; ++i) {
            (address operator, uint256 share) = partAt(service, call, i);
            answerAs(operator, service, call, receipt(OUTCOME_DONE, share));
        }
    }

    function partAt(uint64 service, uint64 call, uint256 index) private view returns (address, uint256) {
        return (
            blueprint.parts(service, call)[index].operator,
            ((1 << uint256(blueprint.parts(service, call)[index].slots)) - 1)
                << blueprint.parts(service, call)[index].firstSlot
        );
    }

    function bits(uint256 word) private pure returns (uint32 count) {
        for (; word != 0; word &= word - 1) {
            ++count;
        }
    }

    function letters(uint256 size) private pure returns (bytes memory text) {
        text = new bytes(size);
        for (uint256 i; i < size; ++i) {
            text[i] = "x";
        }
    }

    function costOf(bytes4 hook) private view returns (uint256) {
        return MeteringCore(address(core)).costOf(hook);
    }

    function within(string memory name, bytes4 hook, uint256 more, uint256 most) private {
        within(name, costOf(hook), more, most);
    }

    /// Recorded as it is here, and judged as it is at the real core.
    function within(string memory name, uint256 cost, uint256 more, uint256 most) private {
        vm.snapshotValue("hooks", name, cost);
        emit log_named_uint(name, cost + more);
        assertLt(cost + more, most + 1, name);
    }
}
