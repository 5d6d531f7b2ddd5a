//! Agent profiles: who the agent is, what it may use, and what it must ask for.

use std::collections::BTreeMap;

use sandbox_protocol::agent::Decision;
use serde::{Deserialize, Serialize};

use crate::limits::{APPROVAL_TIMEOUT_MS_DEFAULT, CONTEXT_TOKENS_DEFAULT};

/// A profile, as a JSON file says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What `agent_identifier` calls it.
    pub name: String,
    /// Said to the model before everything else.
    #[serde(default)]
    pub system_prompt: String,
    /// Model where a task names none.
    #[serde(default)]
    pub model: String,
    /// Names of the tools that it has; all where `None`.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    /// What it must ask for.
    #[serde(default)]
    pub approvals: Approvals,
    /// Most calls of the model in a task; 0 leaves it to the task.
    #[serde(default)]
    pub max_turns: u64,
    /// Most that a task may cost, in millionths of a US dollar; 0 is without bound, and so is a model whose price nobody knows.
    #[serde(default)]
    pub cost_micro_usd_max: u64,
    /// Tokens of the conversation that each call is given.
    #[serde(default = "context_tokens_default")]
    pub context_tokens: usize,
}

const fn context_tokens_default() -> usize {
    CONTEXT_TOKENS_DEFAULT
}

impl Profile {
    /// A profile of this name that says nothing else.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            system_prompt: String::new(),
            model: String::new(),
            tools: None,
            approvals: Approvals::default(),
            max_turns: 0,
            cost_micro_usd_max: 0,
            context_tokens: CONTEXT_TOKENS_DEFAULT,
        }
    }
}

/// What happens to a tool call before it is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Nothing.
    #[default]
    Allow,
    /// The customer is asked.
    Ask,
    /// It is refused.
    Deny,
}

/// Policies by tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approvals {
    /// For tools that are not named.
    #[serde(default)]
    pub default: Policy,
    /// By the tool's name.
    #[serde(default)]
    pub tools: BTreeMap<String, Policy>,
    /// How long a customer is waited for, in milliseconds.
    #[serde(default = "approval_timeout_default")]
    pub timeout_ms: u64,
    /// What holds when nobody answered.
    #[serde(default = "unanswered_default")]
    pub unanswered: Decision,
}

const fn approval_timeout_default() -> u64 {
    APPROVAL_TIMEOUT_MS_DEFAULT
}

const fn unanswered_default() -> Decision {
    Decision::Deny
}

impl Default for Approvals {
    fn default() -> Self {
        Self {
            default: Policy::Allow,
            tools: BTreeMap::new(),
            timeout_ms: APPROVAL_TIMEOUT_MS_DEFAULT,
            unanswered: Decision::Deny,
        }
    }
}

impl Approvals {
    /// What holds for a tool.
    pub fn of(&self, tool: &str) -> Policy {
        self.tools.get(tool).copied().unwrap_or(self.default)
    }
}
