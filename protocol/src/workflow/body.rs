//! What a workflow does: the `workflow_json` of a create, as it is written.
//!
//! It is a [`SingleTask`], or the [`Steps`] of a graph. Here its shape is read and every field named that is not what it must
//! be; what the fields mean together — bounds, order, expressions — is for `fleet::workflow` to say. With the feature `schema`
//! its JSON Schema is [`schema`].

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::limits::WORKFLOW_BACKOFF_MS_DEFAULT;
#[cfg(feature = "schema")]
use crate::limits::{
    WORKFLOW_ARTIFACTS_MAX, WORKFLOW_ATTEMPTS_MAX, WORKFLOW_BACKOFF_MS_MAX, WORKFLOW_CONCURRENCY_MAX,
    WORKFLOW_EXPRESSION_BYTES_MAX, WORKFLOW_RUN_TIMEOUT_MS_MAX, WORKFLOW_STEPS_MAX,
};
use crate::sandbox_id::SandboxId;

mod read;

pub use self::read::BadBody;

/// The body of a workflow.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(untagged, title = "workflow_json"))]
pub enum Body {
    /// One task for the agent in a sandbox.
    Single(SingleTask),
    /// Steps that need one another.
    Steps(Steps),
}

/// One task for the agent in a sandbox. It runs as a workflow of one step, `task`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SingleTask {
    /// The sandbox. Left out where the workflow is created with a `sandbox_config_json`, and each run has a sandbox of its own.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub sandbox_id: Option<SandboxId>,
    /// The same, as an endpoint whose last segment is the id.
    #[serde(default)]
    pub sidecar_url: Option<String>,
    /// What to do. Expressions in `${{ }}` are replaced.
    pub prompt: String,
    /// The session that it continues; a new one where empty. Expressions are replaced.
    #[serde(default)]
    pub session_id: String,
    /// Most calls of the model; 0 is the most there is.
    #[serde(default)]
    pub max_turns: u64,
    /// Milliseconds that it may take; 0 is the default of tasks.
    #[serde(default)]
    pub timeout_ms: u64,
    /// The context of job 12, as text that holds a JSON object. Not beside `context`.
    #[serde(default)]
    pub context_json: Option<String>,
    /// The context of job 12. In its texts expressions are replaced; a text that is one expression becomes its value.
    #[serde(default)]
    pub context: Option<Map<String, Value>>,
    /// Model of the provider; the sandbox's where empty.
    #[serde(default)]
    pub model: String,
    /// Profile of the agent; the sandbox's where empty.
    #[serde(default)]
    pub agent: String,
}

/// Steps that need one another: those that need nothing, or whose needs are through, run beside each other.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Steps {
    /// What is to be done.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = WORKFLOW_STEPS_MAX)))]
    pub steps: Vec<Step>,
    /// The sandbox of all steps that name none. Left out where the workflow is created with a `sandbox_config_json`.
    #[cfg_attr(feature = "schema", schemars(default, with = "Option<String>"))]
    pub sandbox_id: Option<SandboxId>,
    /// The same, as an endpoint whose last segment is the id.
    #[cfg_attr(feature = "schema", schemars(default))]
    pub sidecar_url: Option<String>,
    /// Milliseconds that the whole run may take.
    #[cfg_attr(feature = "schema", schemars(default, range(min = 1, max = WORKFLOW_RUN_TIMEOUT_MS_MAX)))]
    pub timeout_ms: Option<u64>,
    /// Most steps at a time.
    #[cfg_attr(feature = "schema", schemars(default, range(min = 1, max = WORKFLOW_CONCURRENCY_MAX)))]
    pub concurrency: Option<u32>,
}

/// A step.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
pub struct Step {
    /// Names it within the workflow.
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_-]{0,39}$")))]
    pub id: String,
    /// What it does.
    #[cfg_attr(feature = "schema", schemars(flatten))]
    pub work: Work,
    /// Steps that must be through before.
    #[cfg_attr(feature = "schema", schemars(default, length(max = WORKFLOW_STEPS_MAX)))]
    pub needs: Vec<String>,
    /// An expression, without braces, that says once its needs are through whether it runs. Without one it runs if all its
    /// needs succeeded.
    #[cfg_attr(feature = "schema", schemars(default, length(max = WORKFLOW_EXPRESSION_BYTES_MAX)))]
    pub when: Option<String>,
    /// What becomes of it when it fails. Without it, it is begun once.
    #[cfg_attr(feature = "schema", schemars(default))]
    pub retry: Option<Retry>,
    /// Milliseconds that an attempt may take; 0 is the default of its kind.
    #[cfg_attr(feature = "schema", schemars(default))]
    pub timeout_ms: u64,
    /// Whether the run goes on, and may succeed, if it fails.
    #[cfg_attr(feature = "schema", schemars(default))]
    pub allow_failure: bool,
    /// Files in its sandbox that the run's history links to; of commands, prompts and tasks. A run's own sandbox goes with the
    /// run: nothing in it is linked to.
    #[cfg_attr(feature = "schema", schemars(default, length(max = WORKFLOW_ARTIFACTS_MAX)))]
    pub artifacts: Vec<String>,
}

/// When a step that fails is begun again: it may then be carried out more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Retry {
    /// Times that it is begun, with the first.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = WORKFLOW_ATTEMPTS_MAX)))]
    pub max_attempts: u32,
    /// Milliseconds before the second attempt; they double with every further one.
    #[serde(default = "backoff_ms_default")]
    #[cfg_attr(feature = "schema", schemars(range(max = WORKFLOW_BACKOFF_MS_MAX)))]
    pub backoff_ms: u64,
}

const fn backoff_ms_default() -> u64 {
    WORKFLOW_BACKOFF_MS_DEFAULT
}

/// What a step does.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(tag = "kind", content = "with", rename_all = "snake_case")
)]
pub enum Work {
    /// A shell command.
    Exec(ExecWith),
    /// One turn of the agent.
    Prompt(PromptWith),
    /// Many turns of the agent.
    Task(TaskWith),
    /// A snapshot of the sandbox.
    Snapshot(SnapshotWith),
    /// Moves that are argued about.
    Negotiation(NegotiationWith),
}

/// Which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// [`Work::Exec`].
    Exec,
    /// [`Work::Prompt`].
    Prompt,
    /// [`Work::Task`].
    Task,
    /// [`Work::Snapshot`].
    Snapshot,
    /// [`Work::Negotiation`].
    Negotiation,
}

/// A shell command.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecWith {
    /// Where, if not where the workflow says.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub sandbox_id: Option<SandboxId>,
    /// Given to the shell. No expressions: what they stand for comes in by `env` or `stdin`.
    pub command: String,
    /// Working directory; the workspace where empty.
    #[serde(default)]
    pub cwd: String,
    /// Variables of the command. Expressions in their values are replaced.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Its standard input. Expressions are replaced.
    #[serde(default)]
    pub stdin: String,
}

/// One turn of the agent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromptWith {
    /// Where, if not where the workflow says.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub sandbox_id: Option<SandboxId>,
    /// What to do. Expressions are replaced.
    pub prompt: String,
    /// The session that it continues; a new one where empty. Expressions are replaced.
    #[serde(default)]
    pub session_id: String,
    /// The context of job 11. In its texts expressions are replaced; a text that is one expression becomes its value.
    #[serde(default)]
    pub context: Map<String, Value>,
    /// Model of the provider; the sandbox's where empty.
    #[serde(default)]
    pub model: String,
    /// Profile of the agent; the sandbox's where empty.
    #[serde(default)]
    pub agent: String,
}

/// Many turns of the agent.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TaskWith {
    /// Where, if not where the workflow says.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub sandbox_id: Option<SandboxId>,
    /// What to do. Expressions are replaced.
    pub prompt: String,
    /// The session that it continues; a new one where empty. Expressions are replaced.
    #[serde(default)]
    pub session_id: String,
    /// Most calls of the model; 0 is the most there is.
    #[serde(default)]
    pub max_turns: u64,
    /// The context of job 12. In its texts expressions are replaced; a text that is one expression becomes its value.
    #[serde(default)]
    pub context: Map<String, Value>,
    /// Model of the provider; the sandbox's where empty.
    #[serde(default)]
    pub model: String,
    /// Profile of the agent; the sandbox's where empty.
    #[serde(default)]
    pub agent: String,
}

/// A snapshot of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SnapshotWith {
    /// Of which, if not of that which the workflow says.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub sandbox_id: Option<SandboxId>,
    /// Where to; where the sandbox's create says if empty. Expressions are replaced.
    #[serde(default)]
    pub destination: String,
    /// With what is in the workspace.
    #[serde(default = "yes")]
    pub include_workspace: bool,
    /// With what is in the agent's home.
    #[serde(default)]
    pub include_state: bool,
}

const fn yes() -> bool {
    true
}

/// Moves that are argued about, each in a sandbox made like the one that is named.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NegotiationWith {
    /// Like which, if not like that which the workflow says.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub sandbox_id: Option<SandboxId>,
    /// The negotiation, as the context of job 12 has it; `kind` may be left out. In its texts expressions are replaced; a text
    /// that is one expression becomes its value.
    pub context: Map<String, Value>,
    /// Model of the provider; the sandbox's where empty.
    #[serde(default)]
    pub model: String,
}

impl Work {
    /// Which of them it is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Exec(_) => Kind::Exec,
            Self::Prompt(_) => Kind::Prompt,
            Self::Task(_) => Kind::Task,
            Self::Snapshot(_) => Kind::Snapshot,
            Self::Negotiation(_) => Kind::Negotiation,
        }
    }
}

impl Kind {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Prompt => "prompt",
            Self::Task => "task",
            Self::Snapshot => "snapshot",
            Self::Negotiation => "negotiation",
        }
    }
}

/// The JSON Schema (2020-12) of a `workflow_json`, as text.
#[cfg(feature = "schema")]
pub fn schema() -> String {
    let generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    let mut schema = Value::from(generator.into_root_schema_for::<Body>());
    // Whether the library keeps an order of its own is for others in the same build to say.
    schema.sort_all_objects();
    format!("{schema:#}\n")
}

#[cfg(test)]
mod tests;
