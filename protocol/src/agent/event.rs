//! What is told of a run while it runs. The same words for every backend.
//!
//! On the wire these are server-sent events: the id is [`RunEvent::seq`], the name [`Told::name`], the data the whole event as
//! JSON. A reader that comes back with the last id it has misses nothing, for as long as the run is remembered.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Decision, RunReply};
use crate::batch::ItemState;

/// One event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEvent {
    /// From 1 on, without gaps.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// What is told.
    #[serde(flatten)]
    pub told: Told,
}

/// What is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Told {
    /// It runs from now on.
    Started {
        /// Id of the run.
        run: String,
        /// By which logs name it.
        trace_id: String,
        /// Its session.
        session_id: String,
        /// Which backend.
        backend: String,
        /// Which model, where it is known before the first answer.
        model: String,
    },
    /// Words of the agent's: a piece, in order.
    Message {
        /// The piece.
        text: String,
    },
    /// Thoughts of the model's, where its provider tells them: a piece.
    Reasoning {
        /// The piece.
        text: String,
    },
    /// A tool is to be used.
    ToolCall {
        /// Of the call.
        id: String,
        /// Of the tool.
        name: String,
        /// As the model gave them.
        arguments: Value,
    },
    /// A call waits for its customer's word: `POST /runs/{id}/approvals/{call}`.
    ApprovalRequired {
        /// Of the call.
        id: String,
        /// Of the tool.
        name: String,
        /// What it would be called with.
        arguments: Value,
        /// What holds if nobody answers.
        default: Decision,
        /// In which time.
        timeout_ms: u64,
    },
    /// The word was given, or nobody gave one in time.
    ApprovalDecided {
        /// Of the call.
        id: String,
        /// What holds.
        decision: Decision,
        /// Whether a customer said so.
        answered: bool,
    },
    /// What came of a call.
    ToolResult {
        /// Of the call.
        id: String,
        /// Of the tool.
        name: String,
        /// What the model is told.
        content: String,
        /// Whether it failed.
        is_error: bool,
        /// Wall-clock time in milliseconds.
        duration_ms: u64,
    },
    /// The use of the model so far, all calls of the run together.
    Usage {
        /// Tokens sent.
        input_tokens: u64,
        /// Tokens answered.
        output_tokens: u64,
        /// Millionths of a US dollar, where prices are known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_micro_usd: Option<u64>,
    },
    /// Something to know that changes nothing.
    Warning {
        /// What.
        message: String,
    },
    /// A round of a move is half done: the critic, or the decision makers, have spoken.
    SandboxRound {
        /// Of the move.
        #[serde(rename = "move")]
        move_id: String,
        /// From 1 on.
        round: u32,
        /// `critic_responded` or `dm_responded`.
        status: String,
    },
    /// A move is scored.
    SandboxScored {
        /// Of the move.
        #[serde(rename = "move")]
        move_id: String,
        /// Out of 120.
        score: u32,
        /// As `scores_by_agent`.
        breakdown: Value,
    },
    /// A move was not scored in full, and why.
    SandboxFailed {
        /// Of the move.
        #[serde(rename = "move")]
        move_id: String,
        /// Why.
        message: String,
    },
    /// All moves are through.
    LayerComplete {
        /// `sandbox`.
        layer: String,
        /// `done`.
        status: String,
        /// How many moves have a score.
        total_policies_scored: u32,
    },
    /// An item of a batch is further than before.
    BatchItem {
        /// Its place in the call's list of endpoints; of a batch create its slot.
        index: u32,
        /// Where it is now.
        state: ItemState,
        /// Why it was not done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// It has ended; nothing follows.
    Done {
        /// How.
        reply: RunReply,
    },
    /// A move has ended; nothing follows. Its report is asked for.
    MoveDone {
        /// Of the move.
        #[serde(rename = "move")]
        move_id: String,
    },
}

impl Told {
    /// The event's name in the stream, and `type` in its data.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::Message { .. } => "message",
            Self::Reasoning { .. } => "reasoning",
            Self::ToolCall { .. } => "tool_call",
            Self::ApprovalRequired { .. } => "approval_required",
            Self::ApprovalDecided { .. } => "approval_decided",
            Self::ToolResult { .. } => "tool_result",
            Self::Usage { .. } => "usage",
            Self::Warning { .. } => "warning",
            Self::SandboxRound { .. } => "sandbox_round",
            Self::SandboxScored { .. } => "sandbox_scored",
            Self::SandboxFailed { .. } => "sandbox_failed",
            Self::LayerComplete { .. } => "layer_complete",
            Self::BatchItem { .. } => "batch_item",
            Self::Done { .. } => "done",
            Self::MoveDone { .. } => "move_done",
        }
    }

    /// Whether nothing follows.
    pub const fn is_last(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::MoveDone { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_flat_json_with_the_words_of_its_type() {
        let told = Told::SandboxRound { move_id: "m1".into(), round: 2, status: "dm_responded".into() };
        let event = RunEvent { seq: 3, time_ms: 4, told };
        let json = serde_json::json!({
            "seq": 3, "time_ms": 4, "type": "sandbox_round", "move": "m1", "round": 2, "status": "dm_responded"
        });
        assert_eq!(serde_json::to_value(&event).unwrap(), json);
        assert_eq!(serde_json::from_value::<RunEvent>(json).unwrap(), event);
    }
}
