//! Lines of `claude --output-format stream-json`, as far as they are read here.

use serde::Deserialize;
use serde_json::Value;

/// A line.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Event {
    System(System),
    /// A piece of an answer.
    #[serde(rename = "stream_event")]
    Stream {
        event: Piece,
    },
    /// A part of an answer that is whole.
    Assistant {
        message: Message,
    },
    /// What came of calls.
    User {
        message: Message,
    },
    /// A question.
    ControlRequest {
        request_id: String,
        request: Question,
    },
    /// The end.
    Result(Closing),
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct System {
    #[serde(default)]
    pub(super) subtype: String,
    #[serde(default)]
    pub(super) session_id: String,
    /// Of an attempt that failed.
    #[serde(default)]
    pub(super) error_status: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Piece {
    MessageStart {
        message: Begun,
    },
    ContentBlockDelta {
        delta: Delta,
    },
    MessageDelta {
        #[serde(default)]
        usage: Tokens,
    },
    MessageStop,
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct Begun {
    #[serde(default)]
    pub(super) usage: Tokens,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(other)]
    Other,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tokens {
    pub(super) input_tokens: u64,
    pub(super) cache_creation_input_tokens: u64,
    pub(super) cache_read_input_tokens: u64,
    pub(super) output_tokens: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub(super) content: Content,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Blocks(Vec<Block>),
    Text(serde::de::IgnoredAny),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    ToolUse {
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(default)]
        content: Value,
        #[serde(default)]
        is_error: bool,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub(super) enum Question {
    CanUseTool {
        tool_name: String,
        tool_use_id: String,
        #[serde(default)]
        input: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct Closing {
    #[serde(default)]
    pub(super) subtype: String,
    #[serde(default)]
    pub(super) is_error: bool,
    #[serde(default)]
    pub(super) result: String,
    #[serde(default)]
    pub(super) api_error_status: Option<u16>,
    #[serde(default)]
    pub(super) terminal_reason: String,
    #[serde(default)]
    pub(super) usage: Tokens,
    #[serde(default)]
    pub(super) total_cost_usd: f64,
    #[serde(default, rename = "modelUsage")]
    pub(super) models: std::collections::BTreeMap<String, Priced>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Priced {
    /// How the price is known, or `unknown`.
    #[serde(default)]
    pub(super) cost_basis: String,
}
