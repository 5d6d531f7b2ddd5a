//! What customers, operators and sandboxes say to each other about language-model work.
//!
//! Everything a sandbox does for a model is a *run*: a prompt, a task, one move of a negotiation. A run has an id, which makes
//! a repeat harmless, a numbered stream of [events](event), and ends in exactly one reply.
//!
//! The routes, at a sidecar and, below `/sandboxes/<id>`, at an operator:
//!
//! | Route | Body | Answer |
//! |---|---|---|
//! | `POST /prompt` | [`PromptBody`] | [`RunReply`], or its events where `Accept` names `text/event-stream` |
//! | `POST /task` | [`TaskBody`] | the same |
//! | `POST /negotiate` | [`NegotiateBody`](negotiation::NegotiateBody) | [`MoveReport`](negotiation::MoveReport), or its events |
//! | `GET /runs` | | [`RunsBody`] |
//! | `GET /runs/{id}` | | [`RunSummary`] |
//! | `GET /runs/{id}/events` | `?after=` or `Last-Event-ID` | server-sent events |
//! | `POST /runs/{id}/cancel` | | [`RunSummary`] |
//! | `POST /runs/{id}/approvals/{call}` | [`ApprovalBody`] | nothing |
//! | `GET /sessions` | | [`SessionsBody`] |
//! | `DELETE /sessions/{id}` | | nothing |

mod context;
pub mod event;
pub mod negotiation;
pub mod report;
mod secret;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::context::{BadContext, Provider, ProviderKind, TaskContext};
pub use self::secret::Secret;
use crate::FailureCode;
use crate::limits::RUN_ID_BYTES_MAX;

/// Path of one turn.
pub const PROMPT: &str = "/prompt";
/// Path of a task of many turns.
pub const TASK: &str = "/task";
/// Path of a move of a negotiation.
pub const NEGOTIATE: &str = "/negotiate";
/// Path of the runs; one, its events, its end and its approvals are below it.
pub const RUNS: &str = "/runs";
/// Path of the sessions.
pub const SESSIONS: &str = "/sessions";
/// The backend that is ours, and meant where none is named.
pub const NATIVE: &str = "native";
/// The profile that is meant where none is named.
pub const DEFAULT_PROFILE: &str = "default";

/// Settings of agents and models, by which an operator tells a sandbox's sidecar, and that the process that does the work.
pub const SETTINGS: [&str; 17] = [
    "AGENT_BACKEND",
    "AGENT_IDENTIFIER",
    "AGENT_PROFILES_DIR",
    "AGENT_PROFILES_JSON",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_BASE_URL",
    "MODEL",
    "MODEL_API_KEY",
    "MODEL_BASE_URL",
    "MODEL_CONTEXT_TOKENS",
    "MODEL_EMBEDDING",
    "MODEL_PRICES",
    "MODEL_PROVIDER",
    "OLLAMA_HOST",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENCODE_MODEL_API_KEY",
];

/// Whether it can name a run or a session, and so a directory: letters, digits, `-`, `_` and, not in front, `.`.
pub fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=RUN_ID_BYTES_MAX).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(is_plain)
}

/// Body of `POST /task`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskBody {
    /// Id of the run, chosen by the caller; `None` lets the sandbox choose. One that is known is attached to and not run again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What to do.
    pub prompt: String,
    /// The session it continues; empty begins one.
    #[serde(default)]
    pub session_id: String,
    /// Most calls of the model; 0 is the most there is.
    #[serde(default)]
    pub max_turns: u64,
    /// Time for all of it, in milliseconds; 0 is the default of 600,000.
    #[serde(default)]
    pub timeout_ms: u64,
    /// As the field of the same name of job 12: a JSON object, or empty.
    #[serde(default)]
    pub context_json: String,
    /// Model of the provider; the profile's or the sandbox's where empty.
    #[serde(default)]
    pub model: String,
    /// `native`, `opencode` or `claude-agent`; the context's, else the sandbox's where empty.
    #[serde(default)]
    pub agent_backend: String,
    /// Name of a profile; the context's, else the sandbox's where empty.
    #[serde(default)]
    pub agent_identifier: String,
    /// Added to the environment of what tools run, and read for a provider's settings.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Refuse an id that is not known instead of starting it.
    #[serde(default)]
    pub attach_only: bool,
}

/// Body of `POST /prompt`: a task of one turn of the agent.
pub type PromptBody = TaskBody;

/// Why a run did not end as its customer wished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunFailure {
    /// Its time was over.
    Timeout,
    /// Somebody ended it.
    Cancelled,
    /// As many turns were taken as it may have.
    TurnLimit,
    /// It has cost as much as it may.
    CostLimit,
    /// It made the same call with the same outcome again and again.
    Loop,
    /// The provider does not accept the customer's key.
    ProviderRefused,
    /// The provider does not accept the operator's key.
    OperatorKeyRefused,
    /// The provider did not answer, or not as providers do, however often it was asked.
    ProviderFailed,
    /// The conversation is longer than the model takes.
    ContextOverflow,
    /// The backend is none of those that the sandbox has.
    UnknownBackend,
    /// The profile is none of those that the sandbox has.
    UnknownProfile,
    /// A field is not what its description demands.
    BadRequest,
    /// It ran when its process ended, and could not be taken up again without repeating what it did.
    Interrupted,
    /// A defect; the log holds the cause.
    Internal,
}

impl RunFailure {
    /// What a job is answered for a run that ended so; `None` where the job is done though the task is not.
    pub const fn code(self) -> Option<FailureCode> {
        Some(match self {
            Self::TurnLimit | Self::CostLimit | Self::Loop | Self::Cancelled => return None,
            Self::ProviderFailed | Self::ContextOverflow => return None,
            Self::Timeout => FailureCode::Timeout,
            Self::ProviderRefused => FailureCode::ProviderRefused,
            Self::OperatorKeyRefused => FailureCode::ModelUnavailable,
            Self::UnknownBackend => FailureCode::UnknownBackend,
            Self::UnknownProfile => FailureCode::UnknownProfile,
            Self::BadRequest => FailureCode::BadRequest,
            Self::Interrupted => FailureCode::Interrupted,
            Self::Internal => FailureCode::Internal,
        })
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunReply {
    /// Id of the run.
    pub id: String,
    /// Whether the agent came to its own end.
    pub success: bool,
    /// The agent's last words.
    pub result: String,
    /// Why it was no success; empty where it was.
    pub error: String,
    /// The same, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RunFailure>,
    /// By which logs and events name it.
    pub trace_id: String,
    /// Calls of the model whose answer was used.
    pub turns_used: u32,
    /// Wall-clock time in milliseconds.
    pub duration_ms: u64,
    /// Tokens that the provider counted of what it was sent.
    pub input_tokens: u32,
    /// Tokens that it counted of what it answered.
    pub output_tokens: u32,
    /// Millionths of a US dollar, where prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micro_usd: Option<u64>,
    /// The session that it is part of.
    pub session_id: String,
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It waits for a place.
    Queued,
    /// It runs.
    Running,
    /// It has ended.
    Ended,
}

/// What kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// One turn.
    Prompt,
    /// Many turns.
    Task,
    /// A move of a negotiation.
    Negotiation,
}

/// A run that a sandbox knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Its id.
    pub id: String,
    /// Of which kind.
    pub kind: RunKind,
    /// Where it stands.
    pub state: RunState,
    /// Its session; empty for a negotiation.
    pub session_id: String,
    /// How it ended; of a prompt or task that has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<RunReply>,
    /// How it ended; of a move that has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<negotiation::MoveReport>,
    /// Number of the last event that it told.
    pub last_seq: u64,
}

/// Answer to `GET /runs`, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunsBody {
    /// All that are remembered.
    pub runs: Vec<RunSummary>,
}

/// A conversation that a sandbox keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSummary {
    /// Its id.
    pub id: String,
    /// Its backend.
    pub backend: String,
    /// Messages of it, where the backend tells.
    pub messages: u64,
}

/// Answer to `GET /sessions`, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionsBody {
    /// All of them.
    pub sessions: Vec<SessionSummary>,
}

/// What is said to a tool call that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It is carried out.
    Allow,
    /// It is not, and the model is told so.
    Deny,
}

/// Body of `POST /runs/{id}/approvals/{call}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalBody {
    /// What is said.
    pub decision: Decision,
}
