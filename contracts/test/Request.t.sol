// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {IAgentSandboxBlueprint as I} from "../src/IAgentSandboxBlueprint.sol";
import {Fixture} from "./Fixture.sol";

contract RequestTest is Fixture {
    function testFuzz_whatThePreviewShowsPassesEnforcement(uint8 pool, uint8 count, bytes32 seed) public {
        uint256 size = bound(pool, 1, 30);
        uint32 asked = uint32(bound(count, 0, size < OPERATORS_MAX ? size : OPERATORS_MAX));
        registerMany(size);
        address[] memory drawn = blueprint.previewOperatorSelection(asked, seed);
        uint64 service = core.openService(customer, drawn, selection(asked, seed, true), 0);
        assertEq(blueprint.serviceOperators(service), drawn);
    }

    function test_whatThePreviewShowsPassesEnforcement() public {
        testFuzz_whatThePreviewShowsPassesEnforcement(12, 3, keccak256("seed"));
    }

    function testFuzz_anyOtherListIsRefusedAtTheFirstDifference(uint8 at, uint8 other, bytes32 seed) public {
        registerMany(12);
        address[] memory given = blueprint.previewOperatorSelection(5, seed);
        uint256 index = bound(at, 0, 4);
        address expected = given[index];
        given[index] = operatorAt(bound(other, 0, 11));
        vm.assume(given[index] != expected);
        vm.expectRevert(abi.encodeWithSelector(I.SelectionMismatch.selector, index, expected, given[index]));
        core.openService(customer, given, selection(5, seed, true), 0);
    }

    function test_theOrderOfTheDrawIsPartOfIt() public {
        registerMany(12);
        address[] memory given = blueprint.previewOperatorSelection(2, 0);
        (given[0], given[1]) = (given[1], given[0]);
        vm.expectRevert(abi.encodeWithSelector(I.SelectionMismatch.selector, 0, given[1], given[0]));
        core.openService(customer, given, selection(2, 0, true), 0);
    }

    function testFuzz_withoutEnforcementAnyEligibleOperatorsMayBeListed(bytes32 seed, uint8 first) public {
        registerMany(8);
        address[] memory given = new address[](2);
        given[0] = operatorAt(first % 8);
        given[1] = operatorAt((uint256(first) + 1) % 8);
        core.openService(customer, given, selection(2, seed, false), 0);
        core.openService(customer, given, "", 0);
    }

    function testFuzz_theCountMustBeThatOfTheList(uint32 asked, uint8 listed, bool enforced) public {
        address[] memory operators = registerMany(bound(listed, 0, OPERATORS_MAX));
        vm.assume(asked != operators.length);
        vm.expectRevert(abi.encodeWithSelector(I.OperatorCountMismatch.selector, asked, operators.length));
        core.openService(customer, operators, selection(asked, 0, enforced), 0);
    }

    function testFuzz_anOperatorThatIsNotEligibleIsRefused(address outsider, uint8 at) public {
        address[] memory operators = registerMany(4);
        vm.assume(!blueprint.operatorView(outsider).eligible);
        operators[at % 4] = outsider;
        vm.expectRevert(abi.encodeWithSelector(I.OperatorNotEligible.selector, outsider));
        core.openService(customer, operators, "", 0);
    }

    function testFuzz_moreOperatorsThanTheMostAreRefused(uint8 count) public {
        uint256 given = bound(count, OPERATORS_MAX + 1, 256);
        address[] memory operators = new address[](given);
        bytes memory refusal = abi.encodeWithSelector(I.TooManyOperators.selector, given, OPERATORS_MAX);
        vm.expectRevert(refusal);
        core.openService(customer, operators, "", 0);
        vm.expectRevert(refusal);
        blueprint.previewOperatorSelection(uint32(given), 0);
    }

    function test_asManyOperatorsAsTheMostAreTaken() public {
        assertEq(blueprint.SERVICE_OPERATORS_MAX(), OPERATORS_MAX);
        registerMany(OPERATORS_MAX + 1);
        address[] memory drawn = blueprint.previewOperatorSelection(uint32(OPERATORS_MAX), 0);
        core.openService(customer, drawn, selection(uint32(OPERATORS_MAX), 0, true), 0);
        testFuzz_moreOperatorsThanTheMostAreRefused(0);
    }

    function testFuzz_moreThanAreEligibleCannotBeDrawn(uint8 pool, uint8 count, bytes32 seed) public {
        uint256 size = bound(pool, 0, OPERATORS_MAX - 1);
        uint256 asked = bound(count, size + 1, OPERATORS_MAX);
        registerMany(size);
        vm.expectRevert(abi.encodeWithSelector(I.NotEnoughOperators.selector, asked, size));
        blueprint.previewOperatorSelection(uint32(asked), seed);
    }

    function testFuzz_inputsThatAreNoSelectionAreRefused(bytes memory inputs) public {
        vm.assume(inputs.length != 0 && inputs.length != 96);
        address[] memory operators = registerMany(1);
        vm.expectRevert(I.MalformedSelection.selector);
        core.openService(customer, operators, inputs, 0);
    }

    function testFuzz_aSelectionOutOfRangeIsRefused(uint256 count, uint256 enforced) public {
        address[] memory operators = registerMany(1);
        count = bound(count, uint256(type(uint32).max) + 1, type(uint256).max);
        vm.expectRevert(I.MalformedSelection.selector);
        core.openService(customer, operators, abi.encode(count, bytes32(0), 0), 0);
        enforced = bound(enforced, 2, type(uint256).max);
        vm.expectRevert(I.MalformedSelection.selector);
        core.openService(customer, operators, abi.encode(1, bytes32(0), enforced), 0);
    }
}
