// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity ^0.8.28;

import {SSTORE2} from "solady/utils/SSTORE2.sol";

import {IAgentSandboxBlueprint} from "./IAgentSandboxBlueprint.sol";
import {JOB_WORKFLOW_CREATE, WorkflowCreateRequest} from "./JobTypes.sol";

/// Rows of workflows, and the text that stands with them.
///
/// The text is the trigger's configuration, and of a small workflow all the rest too. It is kept as the code of a contract, which costs a
/// third of storage words: fields in the order below, each behind its length in two bytes.
library Workflows {
    /// A schedule is rebuilt from rows alone, so the configuration always stands in the row.
    uint256 internal constant TRIGGER_CONFIG_BYTES_MAX = 192;
    /// All strings and their lengths. What the hook's gas allows at sixteen operators.
    uint256 internal constant STORED_BYTES_MAX = 224;

    uint256 private constant LENGTH_BYTES = 2;

    struct Workflow {
        address owner;
        uint40 bodyBlock;
        uint40 lastTriggered; // seconds since 1970
        IAgentSandboxBlueprint.WorkflowTrigger trigger;
        IAgentSandboxBlueprint.WorkflowStatus status;
        bytes32 bodyHash;
        address text; // zero: empty
        bool isWhole; // the text holds the body as well
    }

    // ─── Writing ────────────────────────────────────────────────────────────────────────────────────────────────────

    function create(Workflow storage self, address owner, bytes calldata inputs, WorkflowCreateRequest calldata request)
        internal
    {
        uint256 configBytes = bytes(request.trigger_config).length;
        if (configBytes > TRIGGER_CONFIG_BYTES_MAX) {
            revert IAgentSandboxBlueprint.TriggerConfigTooLong(configBytes, TRIGGER_CONFIG_BYTES_MAX);
        }
        self.owner = owner;
        self.bodyBlock = uint40(block.number);
        self.trigger = _trigger(request.trigger_type);
        self.status = IAgentSandboxBlueprint.WorkflowStatus.Pending;
        self.bodyHash = keccak256(inputs);

        bool isWhole =
            4 * LENGTH_BYTES + configBytes + bytes(request.name).length + bytes(request.workflow_json).length
                    + bytes(request.sandbox_config_json).length <= STORED_BYTES_MAX;
        if (configBytes == 0 && !isWhole) return;
        self.isWhole = isWhole;
        bytes memory text = _field(request.trigger_config);
        if (isWhole) {
            text = bytes.concat(
                text, _field(request.name), _field(request.workflow_json), _field(request.sandbox_config_json)
            );
        }
        self.text = SSTORE2.write(text);
    }

    function _field(string calldata value) private pure returns (bytes memory) {
        // The callers have bounded it.
        // forge-lint: disable-next-line(unsafe-typecast)
        return abi.encodePacked(uint16(bytes(value).length), value);
    }

    function _trigger(string calldata word) private pure returns (IAgentSandboxBlueprint.WorkflowTrigger) {
        bytes32 hash = keccak256(bytes(word));
        if (hash == keccak256("manual")) return IAgentSandboxBlueprint.WorkflowTrigger.Manual;
        if (hash == keccak256("cron")) return IAgentSandboxBlueprint.WorkflowTrigger.Cron;
        if (hash == keccak256("webhook")) return IAgentSandboxBlueprint.WorkflowTrigger.Webhook;
        if (hash == keccak256("event")) return IAgentSandboxBlueprint.WorkflowTrigger.Event;
        revert IAgentSandboxBlueprint.UnknownOption(JOB_WORKFLOW_CREATE, word);
    }

    // ─── Reading ────────────────────────────────────────────────────────────────────────────────────────────────────

    function triggerConfig(Workflow storage self) internal view returns (string memory) {
        return _fieldAt(_read(self), 0);
    }

    /// With `stored` false where the body is only in the log.
    function body(Workflow storage self) internal view returns (IAgentSandboxBlueprint.WorkflowBody memory whole) {
        if (!self.isWhole) return whole;
        bytes memory all = _read(self);
        whole.stored = true;
        whole.name = _fieldAt(all, 1);
        whole.workflowJson = _fieldAt(all, 2);
        whole.sandboxConfigJson = _fieldAt(all, 3);
    }

    function _read(Workflow storage self) private view returns (bytes memory) {
        return self.text == address(0) ? bytes("") : SSTORE2.read(self.text);
    }

    /// The field after so many others; empty where there is no text.
    function _fieldAt(bytes memory all, uint256 before) private pure returns (string memory) {
        if (all.length == 0) return "";
        uint256 start = 0;
        for (uint256 i = 0; i < before; ++i) {
            start += LENGTH_BYTES + _lengthAt(all, start);
        }
        bytes memory value = new bytes(_lengthAt(all, start));
        for (uint256 i = 0; i < value.length; ++i) {
            value[i] = all[start + LENGTH_BYTES + i];
        }
        return string(value);
    }

    function _lengthAt(bytes memory all, uint256 start) private pure returns (uint256) {
        return uint256(uint8(all[start])) << 8 | uint8(all[start + 1]);
    }
}
