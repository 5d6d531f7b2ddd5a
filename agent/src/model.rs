//! What everything here asks of a language model, and what comes back: the port whose adapter is [`crate::provider`].

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// A language model.
#[async_trait]
pub trait Model: Send + Sync {
    /// Has the model answer; pieces of the answer go to `hear` as they come. A call that is made again after a failure may
    /// have been heard in part: `hear` is told to forget what came before.
    ///
    /// # Errors
    /// Why there is no whole answer, after all attempts.
    // A lifetime left out would be made one of the call's by `async_trait`, and no piece lives that long.
    async fn answer(&self, ask: &Ask, hear: &mut (dyn for<'h> FnMut(Heard<'h>) + Send)) -> Result<Answer, ModelError>;
}

/// What makes vectors of texts.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// A vector for each text, in their order.
    ///
    /// # Errors
    /// Why there are none.
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError>;
}

/// A call of the model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ask {
    /// The conversation.
    pub messages: Vec<Message>,
    /// What the model may have done.
    pub tools: Vec<ToolSpec>,
    /// Most tokens of the answer; the provider's own bound where `None`.
    pub output_tokens_max: Option<u32>,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Whoever runs the agent.
    System,
    /// The customer.
    User,
    /// The model.
    Assistant,
    /// A tool, with what came of a call.
    Tool,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The words.
    pub content: String,
    /// Of an assistant: what it wants done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool: the call that this came of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// Words of this role and nothing else.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), tool_calls: Vec::new(), tool_call_id: None }
    }

    /// What came of a call.
    pub fn of_tool(call: impl Into<String>, content: impl Into<String>) -> Self {
        Self { tool_call_id: Some(call.into()), ..Self::new(Role::Tool, content) }
    }
}

/// What the model wants done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Given by the provider, unique in its answer; a provider that gives none has it made.
    pub id: String,
    /// Of the tool.
    pub name: String,
    /// An object, if the model is well behaved; the text that it wrote instead, if that is no JSON.
    pub arguments: Value,
}

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does, in words for the model.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    pub parameters: Value,
}

/// A piece of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard<'a> {
    /// The answer begins anew: what was heard before does not count.
    Again,
    /// Words.
    Text(&'a str),
    /// Thoughts.
    Reasoning(&'a str),
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// The words.
    pub text: String,
    /// What the model wants done.
    pub tool_calls: Vec<ToolCall>,
    /// What the provider counted.
    pub usage: Usage,
    /// Attempts that failed before this one.
    pub retries: u32,
}

/// Tokens of a call, as the provider counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Sent.
    pub input_tokens: u64,
    /// Answered.
    pub output_tokens: u64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The provider does not accept the key, or there is none: 401, 403.
    #[error("the provider does not accept the key")]
    Refused,
    /// The request is not one that the provider takes: another 4xx. Its words are bounded and without secrets.
    #[error("the provider refuses the request: {0}")]
    Rejected(String),
    /// The conversation is longer than the model takes.
    #[error("the conversation is longer than the model takes")]
    ContextOverflow,
    /// The provider wants to be asked less often: 429.
    #[error("the provider wants to be asked less often")]
    RateLimited {
        /// When it said to come back.
        retry_after: Option<Duration>,
    },
    /// The provider failed: a 5xx.
    #[error("the provider failed with status {status}")]
    Failed {
        /// The status.
        status: u16,
    },
    /// The provider cannot be reached, or the connection broke, also in the middle of an answer.
    #[error("the provider cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The operator's rules do not let the sandbox connect to the provider.
    #[error("the sandbox may not connect to the provider")]
    Forbidden,
    /// The answer is not what providers of this kind say.
    #[error("the provider's answer is malformed")]
    Malformed(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer did not come, or did not go on, in time.
    #[error("the provider did not answer within {after_ms} ms")]
    TimedOut {
        /// How long was waited.
        after_ms: u64,
    },
    /// What was said of the provider is wrong: no URL, no model.
    #[error("the provider's settings are wrong: {0}")]
    Settings(&'static str),
}

impl ModelError {
    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::RateLimited { .. }
            | Self::Failed { .. }
            | Self::Unreachable(_)
            | Self::Malformed(_)
            | Self::TimedOut { .. } => true,
            Self::Refused | Self::Rejected(_) | Self::ContextOverflow | Self::Forbidden | Self::Settings(_) => false,
        }
    }
}
