// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "forge-std/Test.sol";

import {SandboxIds} from "../src/SandboxIds.sol";

contract SandboxIdsTest is Test {
    function parse(bytes calldata text) external pure returns (bool, uint64, uint64, uint8) {
        return SandboxIds.parse(text);
    }

    function assertId(string memory text, uint64 service, uint64 call, uint8 slot) private view {
        (bool ok, uint64 gotService, uint64 gotCall, uint8 gotSlot) = this.parse(bytes(text));
        assertTrue(ok, text);
        assertEq(gotService, service, text);
        assertEq(gotCall, call, text);
        assertEq(gotSlot, slot, text);
    }

    function assertNoId(string memory text) private view {
        (bool ok, uint64 service, uint64 call, uint8 slot) = this.parse(bytes(text));
        assertFalse(ok, text);
        assertTrue(service == 0 && call == 0 && slot == 0, text);
    }

    function idOf(uint64 service, uint64 call, uint8 slot) private pure returns (string memory) {
        return string.concat(
            "sbx-", vm.toString(uint256(service)), "-", vm.toString(uint256(call)), "-", vm.toString(uint256(slot))
        );
    }

    // ─── What is an id ──────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_anIdIsReadBack(uint64 service, uint64 call, uint8 slot) public view {
        assertId(idOf(service, call, slot), service, call, slot);
    }

    function test_anIdIsReadBack() public view {
        assertId("sbx-0-0-0", 0, 0, 0);
        assertId("sbx-12-345-67", 12, 345, 67);
        assertId("sbx-18446744073709551615-18446744073709551615-255", type(uint64).max, type(uint64).max, 255);
    }

    function testFuzz_theLastPathSegmentOfAnEndpointCounts(string memory host, uint64 service, uint64 call, uint8 slot)
        public
        view
    {
        assertId(string.concat("https://", host, "/sandboxes/", idOf(service, call, slot)), service, call, slot);
    }

    function test_theLastPathSegmentOfAnEndpointCounts() public view {
        assertId("https://op.example:8443/sandboxes/sbx-1-2-3", 1, 2, 3);
        assertId("/sbx-1-2-3", 1, 2, 3);
        assertId("sbx-9-9-9/sbx-1-2-3", 1, 2, 3);
    }

    // ─── What is none ───────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_textIsNoIdUnlessItIsTheCanonicalOne(string memory text) public view {
        (bool ok, uint64 service, uint64 call, uint8 slot) = this.parse(bytes(text));
        if (ok) assertEq(lastSegment(text), idOf(service, call, slot));
    }

    function testFuzz_noByteOfAnIdCanBeReplaced(uint64 service, uint64 call, uint8 slot, uint256 index, bytes1 byte_)
        public
        view
    {
        bytes memory text = bytes(idOf(service, call, slot));
        text[index % text.length] = byte_;
        testFuzz_textIsNoIdUnlessItIsTheCanonicalOne(string(text));
    }

    function testFuzz_noZeroLeads(uint64 service, uint64 call, uint8 slot) public view {
        string memory rest = string.concat("-", vm.toString(uint256(call)), "-", vm.toString(uint256(slot)));
        assertNoId(string.concat("sbx-0", vm.toString(uint256(service)), rest));
        assertNoId(string.concat("sbx-1-0", vm.toString(uint256(call)), "-1"));
        assertNoId(string.concat("sbx-1-1-0", vm.toString(uint256(slot))));
    }

    function testFuzz_noNumberOverflows(uint256 service, uint256 call, uint256 slot) public view {
        service = bound(service, uint256(type(uint64).max) + 1, type(uint256).max);
        call = bound(call, uint256(type(uint64).max) + 1, type(uint256).max);
        slot = bound(slot, 256, type(uint256).max);
        assertNoId(string.concat("sbx-", vm.toString(service), "-1-1"));
        assertNoId(string.concat("sbx-1-", vm.toString(call), "-1"));
        assertNoId(string.concat("sbx-1-1-", vm.toString(slot)));
    }

    function test_hostileTextIsNoId() public view {
        string[29] memory hostile = [
            "",
            "/",
            "sbx",
            "sbx-",
            "sbx--",
            "sbx---",
            "sbx-1",
            "sbx-1-2",
            "sbx-1-2-",
            "sbx-1--3",
            "sbx--2-3",
            "sbx-1-2-3-",
            "sbx-1-2-3-4",
            "sbx-1-2-3/",
            "sbx-1-2-3?x=1",
            "sbx-1-2-3#top",
            "sbx-1-2-256",
            "sbx-1-2-1000",
            "sbx-18446744073709551616-0-0",
            "sbx-0-18446744073709551616-0",
            "sbx-00-1-1",
            "sbx-+1-2-3",
            "sbx- 1-2-3",
            " sbx-1-2-3",
            "sbx-1-2-3 ",
            "SBX-1-2-3",
            "sbx-1-2-0x3",
            "sbx_1_2_3",
            "https://op.example/sbx-1-2-3/files"
        ];
        for (uint256 i; i < hostile.length; ++i) {
            assertNoId(hostile[i]);
        }
        assertNoId(unicode"sbx-1-2-３");
        assertNoId(string(abi.encodePacked("sbx-1-2-3", bytes1(0))));
        assertNoId("xsbx-18446744073709551615-18446744073709551615-255");
    }

    /// No text makes reading expensive: only its end is looked at.
    function testFuzz_readingIsCheapHoweverLongTheText(uint16 bytesLong) public view {
        bytes memory text = bytes(string.concat(string(new bytes(bytesLong)), idOf(1, 2, 3)));
        uint256 before = gasleft();
        SandboxIdsTest(address(this)).parse(text);
        // The call itself copies the text.
        assertLt(before - gasleft(), 40_000 + 2 * uint256(bytesLong));
    }

    function lastSegment(string memory text) private pure returns (string memory) {
        string[] memory parts = vm.split(text, "/");
        return parts[parts.length - 1];
    }
}
