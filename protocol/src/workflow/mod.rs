//! Workflows: what fires them, what they do, and what is told of their runs.
//!
//! | module | what it is |
//! |---|---|
//! | `trigger` | what fires one: the `trigger_config` of a create |
//! | `body` | what it does: the `workflow_json` of a create, and its JSON Schema |
//! | `config` | what its runs' own sandboxes are like: the `sandbox_config_json` |
//! | `hook` | webhooks, signed and verified |
//! | here | what the API tells of workflows and their runs |

pub mod body;
mod config;
mod hook;
mod trigger;

use std::collections::BTreeMap;

use alloy_primitives::Address;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::config::sandbox_config;
pub use self::hook::{HookFault, HookHeaders, sign_hook, verify_hook};
pub use self::trigger::{
    BadTrigger, CatchUp, CronTrigger, EventSource, EventTrigger, LifecycleEvent, LogFilter, Overlap, Policy, Trigger,
};
use crate::failure::Failure;
use crate::limits::PAGE_ENTRIES_DEFAULT;
use crate::sandbox_id::SandboxId;

/// Header of a webhook that says when it was sent, in seconds since 1970.
pub const HOOK_TIMESTAMP: &str = "x-sandbox-timestamp";
/// Header of a webhook that proves it: `v1=` and the HMAC-SHA256 of `<timestamp>.<body>` under the workflow's secret, in hex.
pub const HOOK_SIGNATURE: &str = "x-sandbox-signature";
/// Header of a webhook by which its sender names a delivery; the same one twice fires once.
pub const HOOK_DELIVERY: &str = "x-sandbox-delivery";

/// What fired a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Cause {
    /// Job 31.
    Manual {
        /// Its call.
        call: u64,
    },
    /// The clock.
    Cron {
        /// The instant that it stands for, in seconds since 1970.
        slot_s: i64,
    },
    /// A request.
    Webhook {
        /// What its sender calls it, or the hash of it.
        delivery: String,
    },
    /// Something that happened.
    Event {
        /// What names it: `<block hash>-<log index>` of a log, the number of an operator's own event.
        event: String,
    },
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum RunStatus {
    /// Another run of the workflow goes first.
    Queued,
    /// It goes on.
    Running,
    /// Every step that was to be done is done.
    Succeeded,
    /// A step failed for good, or there was no sandbox for it.
    Failed,
    /// It was cancelled, by job 32 or over the API.
    Cancelled,
    /// It was not begun, since another was still going on.
    Skipped,
}

impl RunStatus {
    /// Whether it stays so.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Queued | Self::Running => false,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Skipped => true,
        }
    }

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
        }
    }
}

/// Where a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum StepStatus {
    /// Steps that it needs are not through.
    Waiting,
    /// It is being carried out.
    Running,
    /// It failed, and is tried again later.
    Retrying,
    /// Done.
    Succeeded,
    /// Not done, for good.
    Failed,
    /// Not to be done: its condition does not hold, or a step that it needs was not done.
    Skipped,
    /// Not done, since the run was cancelled.
    Cancelled,
}

impl StepStatus {
    /// Whether it stays so.
    pub const fn is_final(self) -> bool {
        match self {
            Self::Waiting | Self::Running | Self::Retrying => false,
            Self::Succeeded | Self::Failed | Self::Skipped | Self::Cancelled => true,
        }
    }

    /// As it is written, also in conditions.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StepBody {
    /// As the workflow calls it.
    pub id: String,
    /// `exec`, `prompt`, `task`, `snapshot` or `negotiation`.
    pub kind: String,
    /// Where it is.
    pub status: StepStatus,
    /// Times it was begun.
    pub attempts: u32,
    /// Milliseconds since 1970; of the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub failure: Option<Failure>,
    /// What later steps may use of it, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub outputs: BTreeMap<String, Value>,
    /// Where what it made is to be had: URIs of snapshots, paths of the API to files in sandboxes that live on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
}

/// A run as lists have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunEntry {
    /// From 1 on, per workflow and operator.
    pub number: u64,
    /// What fired it.
    pub cause: Cause,
    /// Where it is.
    pub status: RunStatus,
    /// Milliseconds since 1970.
    pub fired_ms: u64,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// Milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Why it failed, was cancelled or skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Answer to `GET /v1/services/{service}/workflows/{workflow}/runs/{number}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunBody {
    /// What lists have of it.
    #[serde(flatten)]
    pub run: RunEntry,
    /// Grows with every change: what a reader names as `after` to be told of the next.
    pub version: u64,
    /// Its own sandbox, while it goes on in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub sandbox: Option<SandboxId>,
    /// In the order of the workflow.
    pub steps: Vec<StepBody>,
}

/// Query of the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct RunQuery {
    /// Seconds that the answer is held back until the run has changed or is over, at most 60.
    pub wait: u64,
    /// The version that the reader has.
    pub after: u64,
}

/// Answer to `GET /v1/services/{service}/workflows/{workflow}/runs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunsPage {
    /// The newest first.
    pub runs: Vec<RunEntry>,
    /// Names the next page, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// Query of the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct RunsQuery {
    /// Runs before this number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
    /// Entries of the page, at most 100.
    pub limit: u64,
}

impl Default for RunsQuery {
    fn default() -> Self {
        Self { cursor: None, limit: PAGE_ENTRIES_DEFAULT }
    }
}

/// A workflow that this operator fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkflowEntry {
    /// Its service.
    pub service: u64,
    /// The call that created it.
    pub workflow: u64,
    /// What its owner calls it; empty until its body was fetched.
    pub name: String,
    /// Whose it is.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub owner: Address,
    /// Grows when it moves to another operator.
    pub epoch: u16,
    /// `manual`, `cron`, `webhook` or `event`.
    pub trigger: String,
    /// As its create has it.
    pub trigger_config: String,
    /// Whether its owner has paused it.
    pub is_paused: bool,
    /// When the clock fires it next, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_slot_s: Option<i64>,
    /// Its last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<RunEntry>,
    /// Why it cannot be fired, where it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Answer to `GET /v1/workflows`: a page of the caller's workflows that this operator fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkflowsBody {
    /// By service and number.
    pub workflows: Vec<WorkflowEntry>,
    /// The cursor of the next page; absent in the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Query of the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct WorkflowsQuery {
    /// The last answer's `next`; the first page without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Entries of the page, at most 100.
    pub limit: u64,
}

impl Default for WorkflowsQuery {
    fn default() -> Self {
        Self { cursor: None, limit: PAGE_ENTRIES_DEFAULT }
    }
}

/// Answer to `GET` and `POST /v1/services/{service}/workflows/{workflow}/secret`; a POST makes a new one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SecretBody {
    /// Where its webhook is.
    pub url: String,
    /// What its senders sign with: the bytes of this text.
    pub secret: String,
}

impl std::fmt::Debug for SecretBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretBody").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Answer to a webhook that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HookBody {
    /// The run that it fired, now or when it was first delivered.
    pub run: u64,
    /// Whether it had been delivered before.
    pub is_repeat: bool,
}
