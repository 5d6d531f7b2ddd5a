// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "forge-std/Test.sol";

import {CanonicalAbi} from "../src/CanonicalAbi.sol";
import {
    ExecRequest,
    JobReceipt,
    OperatorProfile,
    SandboxCreateRequest,
    SandboxIdRequest,
    SelectionRequest
} from "../src/JobTypes.sol";

contract CanonicalAbiTest is Test {
    bytes32 private constant CREATE = "888sssbs88s";
    bytes32 private constant SANDBOX_ID = "s";
    bytes32 private constant EXEC = "sssss8";
    bytes32 private constant PROFILE = "4wws";
    bytes32 private constant SELECTION = "4wb";
    bytes32 private constant RECEIPT = "1ww";

    function matches(bytes calldata data, bytes32 shape) external pure returns (bool) {
        return CanonicalAbi.matches(data, shape);
    }

    function reencodeCreate(bytes calldata data) external pure returns (bytes memory) {
        return abi.encode(abi.decode(data, (SandboxCreateRequest)));
    }

    function reencodeExec(bytes calldata data) external pure returns (bytes memory) {
        return abi.encode(abi.decode(data, (ExecRequest)));
    }

    function reencodeProfile(bytes calldata data) external pure returns (bytes memory) {
        return abi.encode(abi.decode(data, (OperatorProfile)));
    }

    // ─── Encodings match ────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_everyEncodedCreateMatches(SandboxCreateRequest memory request) public view {
        assertTrue(this.matches(abi.encode(request), CREATE));
    }

    function testFuzz_everyEncodedExecMatches(ExecRequest memory request) public view {
        assertTrue(this.matches(abi.encode(request), EXEC));
    }

    function testFuzz_everyOtherEncodedStructMatches(
        SandboxIdRequest memory id,
        OperatorProfile memory profile,
        SelectionRequest memory selection,
        JobReceipt memory receipt
    ) public view {
        assertTrue(this.matches(abi.encode(id), SANDBOX_ID));
        assertTrue(this.matches(abi.encode(profile), PROFILE));
        assertTrue(this.matches(abi.encode(selection), SELECTION));
        assertTrue(this.matches(abi.encode(receipt), RECEIPT));
    }

    // ─── Nothing else does: the oracle is decoding and encoding again ───────────────────────────────────────────────

    function testFuzz_aChangedCreateMatchesIfItIsStillCanonical(
        SandboxCreateRequest memory request,
        uint256 index,
        bytes32 word
    ) public view {
        bytes memory data = abi.encode(request);
        setWord(data, index, word);
        assertEq(this.matches(data, CREATE), isCanonical(data, this.reencodeCreate.selector));
    }

    function testFuzz_aChangedByteOfAnExecMatchesIfItIsStillCanonical(
        ExecRequest memory request,
        uint256 index,
        bytes1 byte_
    ) public view {
        bytes memory data = abi.encode(request);
        data[index % data.length] = byte_;
        assertEq(this.matches(data, EXEC), isCanonical(data, this.reencodeExec.selector));
    }

    function testFuzz_aProfileWithSmallWordsChangedMatchesIfItIsStillCanonical(
        OperatorProfile memory profile,
        uint256 index,
        uint8 word
    ) public view {
        bytes memory data = abi.encode(profile);
        setWord(data, index, bytes32(uint256(word)));
        assertEq(this.matches(data, PROFILE), isCanonical(data, this.reencodeProfile.selector));
    }

    function testFuzz_randomBytesNeverMatchUnlessCanonical(bytes memory data) public view {
        assertEq(this.matches(data, EXEC), isCanonical(data, this.reencodeExec.selector));
    }

    function testFuzz_nothingMayTrail(SandboxIdRequest memory request, bytes memory tail) public view {
        vm.assume(tail.length != 0);
        assertFalse(this.matches(bytes.concat(abi.encode(request), tail), SANDBOX_ID));
    }

    function testFuzz_nothingMayBeMissing(ExecRequest memory request, uint256 length) public view {
        bytes memory data = abi.encode(request);
        length = bound(length, 0, data.length - 1);
        assembly ("memory-safe") {
            mstore(data, length)
        }
        assertFalse(this.matches(data, EXEC));
    }

    function test_pinnedForgeries() public view {
        assertFalse(this.matches("", SANDBOX_ID));
        assertFalse(this.matches(new bytes(32), SANDBOX_ID));
        assertFalse(this.matches(abi.encode(uint256(0x20)), SANDBOX_ID));
        assertFalse(this.matches(abi.encode("bare string"), SANDBOX_ID));
        // An offset beyond the data, a length beyond it, and both as large as they get.
        assertFalse(this.matches(abi.encode(0x20, 0x40, 0), SANDBOX_ID));
        assertFalse(this.matches(abi.encode(0x20, 0x20, 1), SANDBOX_ID));
        assertFalse(this.matches(abi.encode(0x20, 0x20, type(uint256).max), SANDBOX_ID));
        assertFalse(this.matches(abi.encode(0x20, type(uint256).max, 0), SANDBOX_ID));
        // Dirty padding, a bool of two, a count of 2^32, an outcome of 256.
        assertFalse(this.matches(abi.encode(0x20, 0x20, 1, bytes32("ab")), SANDBOX_ID));
        assertFalse(this.matches(abi.encode(1, bytes32(0), 2), SELECTION));
        assertFalse(this.matches(abi.encode(uint256(1) << 32, bytes32(0), 1), SELECTION));
        assertFalse(this.matches(abi.encode(256, bytes32(0), 1), RECEIPT));
        assertTrue(this.matches(abi.encode(0x20, 0x20, 1, bytes32("a")), SANDBOX_ID));
        assertTrue(this.matches(abi.encode(0x20, 0x20, 0), SANDBOX_ID));
    }

    function isCanonical(bytes memory data, bytes4 reencode) private view returns (bool) {
        (bool ok, bytes memory answer) = address(this).staticcall(abi.encodeWithSelector(reencode, data));
        return ok && keccak256(abi.decode(answer, (bytes))) == keccak256(data);
    }

    function setWord(bytes memory data, uint256 index, bytes32 word) private pure {
        uint256 offset = 32 * (index % (data.length / 32) + 1);
        assembly ("memory-safe") {
            mstore(add(data, offset), word)
        }
    }
}
