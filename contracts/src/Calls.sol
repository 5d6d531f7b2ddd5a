// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

/// A call's record: one storage word, read and written whole. A call that needs no more than to be assigned costs no more.
library Calls {
    struct Slot {
        uint256 word;
    }

    struct Call {
        address operator; // zero: a batch, or no call
        uint40 deadlineBlock;
        uint8 job;
        bool answered;
        uint8 outcome; // of a batch the worst so far
        uint16 epoch; // how often it was assigned anew
        uint8 parts; // batches: how many must answer
        uint8 answers; // and how many have
    }

    /// A call that nobody has answered.
    function open(Slot storage self, address operator, uint40 deadlineBlock, uint8 job) internal {
        self.word = uint256(uint160(operator)) | uint256(deadlineBlock) << 160 | uint256(job) << 200;
    }

    function openBatch(Slot storage self, uint40 deadlineBlock, uint8 job, uint8 parts) internal {
        self.word = uint256(deadlineBlock) << 160 | uint256(job) << 200 | uint256(parts) << 240;
    }

    function operatorOf(Slot storage self) internal view returns (address) {
        return address(uint160(self.word));
    }

    function load(Slot storage self) internal view returns (Call memory call) {
        uint256 word = self.word;
        // Each cast cuts off what belongs to the fields above it.
        // forge-lint: disable-start(unsafe-typecast)
        call.operator = address(uint160(word));
        call.deadlineBlock = uint40(word >> 160);
        call.job = uint8(word >> 200);
        call.answered = word >> 208 & 1 == 1;
        call.outcome = uint8(word >> 216);
        call.epoch = uint16(word >> 224);
        call.parts = uint8(word >> 240);
        call.answers = uint8(word >> 248);
        // forge-lint: disable-end(unsafe-typecast)
    }

    function store(Slot storage self, Call memory call) internal {
        self.word = uint256(uint160(call.operator)) | uint256(call.deadlineBlock) << 160 | uint256(call.job) << 200
            | (call.answered ? 1 << 208 : 0) | uint256(call.outcome) << 216 | uint256(call.epoch) << 224
            | uint256(call.parts) << 240 | uint256(call.answers) << 248;
    }
}
