// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "forge-std/Test.sol";

import {Selection} from "../src/Selection.sol";

contract SelectionTest is Test {
    uint256 private constant COUNT_MAX = 10;
    uint256 private constant SIZE_MAX = type(uint32).max;

    address[] private set;

    function indexes(uint256 size, uint256 count, bytes32 seed) external pure returns (uint256[] memory) {
        return Selection.indexes(size, count, seed);
    }

    // ─── What a draw is ─────────────────────────────────────────────────────────────────────────────────────────────

    function testFuzz_theDrawnAreDistinctMembersInTheNumberAsked(uint256 size, uint256 count, bytes32 seed)
        public
        pure
    {
        size = bound(size, 0, SIZE_MAX);
        count = bound(count, 0, size < COUNT_MAX ? size : COUNT_MAX);
        uint256[] memory drawn = Selection.indexes(size, count, seed);
        assertEq(drawn.length, count);
        for (uint256 i; i < count; ++i) {
            assertLt(drawn[i], size);
            for (uint256 j; j < i; ++j) {
                assertNotEq(drawn[i], drawn[j]);
            }
        }
    }

    function testFuzz_itIsTheShuffleWrittenOut(uint256 size, uint256 count, bytes32 seed) public pure {
        size = bound(size, 1, 40);
        count = bound(count, 0, size);
        uint256[] memory cards = new uint256[](size);
        for (uint256 i; i < size; ++i) {
            cards[i] = i;
        }
        uint256[] memory drawn = Selection.indexes(size, count, seed);
        for (uint256 i; i < count; ++i) {
            uint256 j = i + uint256(keccak256(abi.encode(seed, i))) % (size - i);
            (cards[i], cards[j]) = (cards[j], cards[i]);
            assertEq(drawn[i], cards[i]);
        }
    }

    function testFuzz_aShuffleIsTheDrawOfAll(uint256 size, bytes32 seed) public pure {
        size = bound(size, 0, 64);
        assertEq(Selection.shuffle(size, seed), Selection.indexes(size, size, seed));
    }

    function testFuzz_aSmallerDrawIsThePrefixOfALargerOne(uint256 size, uint256 count, bytes32 seed) public pure {
        size = bound(size, 1, SIZE_MAX);
        count = bound(count, 1, size < COUNT_MAX ? size : COUNT_MAX);
        uint256[] memory more = Selection.indexes(size, count, seed);
        uint256[] memory fewer = Selection.indexes(size, count - 1, seed);
        for (uint256 i; i < fewer.length; ++i) {
            assertEq(fewer[i], more[i]);
        }
    }

    /// The vectors that the Rust twin is held to.
    function test_pinnedDraws() public pure {
        bytes32 seed = keccak256("agent-sandbox");
        assertEq(Selection.indexes(0, 0, seed).length, 0);
        assertEq(Selection.indexes(1, 1, seed)[0], 0);
        assertEq(Selection.indexes(5, 5, seed), array(0, 1, 4, 2, 3));
        assertEq(Selection.shuffle(5, seed), array(0, 1, 4, 2, 3));
        assertEq(Selection.indexes(1000, 5, seed), array(200, 918, 600, 270, 574));
        assertEq(
            Selection.indexes(type(uint32).max, 5, 0),
            array(1_545_232_957, 912_765_696, 3_370_318_142, 3_714_126_330, 3_352_948_290)
        );
    }

    function testFuzz_moreThanThereAreIsRefused(uint256 size, uint256 count, bytes32 seed) public {
        size = bound(size, 0, SIZE_MAX);
        count = bound(count, size + 1, type(uint256).max);
        vm.expectRevert(abi.encodeWithSelector(Selection.DrawTooLarge.selector, count, size));
        this.indexes(size, count, seed);
    }

    // ─── Uniformity ─────────────────────────────────────────────────────────────────────────────────────────────────
    // Seeds are fixed, so these are facts and not chances; the bounds are the 99.9 % quantiles of the chi-squared distribution.

    function test_everyMemberIsAsLikelyAtEveryPosition() public pure {
        uint256 size = 7;
        uint256 rounds = 2100;
        uint256[] memory seen = new uint256[](size * size);
        for (uint256 round; round < rounds; ++round) {
            uint256[] memory drawn = Selection.indexes(size, size, bytes32(round));
            for (uint256 i; i < size; ++i) {
                ++seen[i * size + drawn[i]];
            }
        }
        for (uint256 i; i < size; ++i) {
            uint256[] memory row = new uint256[](size);
            for (uint256 j; j < size; ++j) {
                row[j] = seen[i * size + j];
            }
            assertLt(chiSquaredMilli(row, rounds / size), 22_458); // 6 degrees of freedom
        }
    }

    function test_everyOrderedPairIsAsLikely() public pure {
        uint256 size = 4;
        uint256 rounds = 2400;
        uint256[] memory seen = new uint256[](size * size);
        for (uint256 round; round < rounds; ++round) {
            uint256[] memory drawn = Selection.indexes(size, 2, keccak256(abi.encode(round)));
            ++seen[drawn[0] * size + drawn[1]];
        }
        uint256[] memory pairs = new uint256[](12);
        uint256 at;
        for (uint256 i; i < seen.length; ++i) {
            if (i / size == i % size) assertEq(seen[i], 0);
            else pairs[at++] = seen[i];
        }
        assertLt(chiSquaredMilli(pairs, rounds / 12), 31_264); // 11 degrees of freedom
    }

    /// In thousandths.
    function chiSquaredMilli(uint256[] memory seen, uint256 expected) private pure returns (uint256 sum) {
        for (uint256 i; i < seen.length; ++i) {
            uint256 off = seen[i] > expected ? seen[i] - expected : expected - seen[i];
            sum += off * off * 1000 / expected;
        }
    }

    function array(uint256 a, uint256 b, uint256 c, uint256 d, uint256 e) private pure returns (uint256[] memory out) {
        out = new uint256[](5);
        (out[0], out[1], out[2], out[3], out[4]) = (a, b, c, d, e);
    }
}
