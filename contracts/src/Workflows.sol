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
    uint256 internal constant STORED_BYTES_MAX = 256;

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

        bool isWhole = 4 * LENGTH_BYTES + configBytes + bytes(request.name).length + bytes(request.workflow_json).length
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

    /// The trigger's configuration, and the body with `stored` false if it is only in the log.
    function texts(Workflow storage self)
        internal
        view
        returns (string memory triggerConfig, IAgentSandboxBlueprint.WorkflowBody memory body)
    {
        if (self.text == address(0)) return ("", body);
        bytes memory all = SSTORE2.read(self.text);
        uint256 next;
        (triggerConfig, next) = _fieldAt(all, 0);
        if (!self.isWhole) return (triggerConfig, body);
        body.stored = true;
        (body.name, next) = _fieldAt(all, next);
        (body.workflowJson, next) = _fieldAt(all, next);
        (body.sandboxConfigJson,) = _fieldAt(all, next);
    }

    function _fieldAt(bytes memory all, uint256 start) private pure returns (string memory, uint256 next) {
        uint256 length = uint256(uint8(all[start])) << 8 | uint8(all[start + 1]);
        bytes memory value = new bytes(length);
        for (uint256 i; i < length; ++i) {
            value[i] = all[start + LENGTH_BYTES + i];
        }
        return (string(value), start + LENGTH_BYTES + length);
    }
}
