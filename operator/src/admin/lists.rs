//! Sandboxes and calls as the operator lists them.

use alloy::primitives::Address;
use sandbox_fleet::sandbox::Sandbox;
use serde::{Deserialize, Serialize};

use crate::limits::ADMIN_LIST_MAX;
use crate::records::{CallRecord, Progress, Records, RecordsError};

/// A sandbox that is not at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxLine {
    pub(crate) id: String,
    pub(crate) owner: Address,
    pub(crate) phase: String,
    pub(crate) image: String,
    pub(crate) runtime: Option<String>,
    /// Name of its container, where it has one.
    pub(crate) container: Option<String>,
    pub(crate) cpu_cores: u64,
    pub(crate) memory_mb: u64,
    pub(crate) disk_gb: u64,
    /// Last block in which it lives; `None` until its service ends.
    pub(crate) expires_at_block: Option<u64>,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallLine {
    pub(crate) call: String,
    pub(crate) job: u8,
    pub(crate) caller: Address,
    pub(crate) block: u64,
    pub(crate) state: String,
    /// Why it failed, was refused or dropped.
    pub(crate) reason: Option<String>,
}

/// The sandboxes that are not at their end.
pub(crate) fn sandboxes_of(records: &Records) -> Result<Vec<SandboxLine>, RecordsError> {
    let mut sandboxes = records.sandboxes()?;
    sandboxes.retain(|sandbox| !sandbox.phase.is_final());
    sandboxes.sort_by_key(|sandbox| sandbox.id);
    Ok(sandboxes.iter().take(ADMIN_LIST_MAX).map(SandboxLine::from).collect())
}

/// The open calls, or the latest of all.
pub(crate) fn calls_of(records: &Records, open: bool) -> Result<Vec<CallLine>, RecordsError> {
    let calls = if open { records.open_calls()? } else { records.latest_calls(ADMIN_LIST_MAX)? };
    Ok(calls.iter().take(ADMIN_LIST_MAX).map(CallLine::from).collect())
}

impl From<&Sandbox> for SandboxLine {
    fn from(sandbox: &Sandbox) -> Self {
        let (spec, instance) = (&sandbox.spec, sandbox.phase.instance());
        Self {
            id: sandbox.id.to_string(),
            owner: sandbox.owner,
            phase: sandbox.phase.name().to_owned(),
            image: spec.image.clone(),
            runtime: instance.map(|instance| instance.runtime.clone()),
            container: instance.map(|instance| instance.vessel.clone()),
            cpu_cores: spec.resources.cpu_cores,
            memory_mb: spec.resources.memory_mb,
            disk_gb: spec.resources.disk_gb,
            expires_at_block: sandbox.expires_at_block,
        }
    }
}

impl From<&CallRecord> for CallLine {
    fn from(call: &CallRecord) -> Self {
        let failure = call.answer().and_then(|answer| answer.failure).map(|code| code.to_string());
        let (state, reason) = match &call.progress {
            Progress::Seen => ("seen", None),
            Progress::Begun { .. } => ("begun", None),
            Progress::Answered(_) => ("answered", failure),
            Progress::Settled { .. } => ("settled", failure),
            Progress::Refused { reason, .. } => ("refused", Some(reason.clone())),
            Progress::Dropped { reason } => ("dropped", Some(reason.clone())),
        };
        Self {
            call: call.key.to_string(),
            job: call.job,
            caller: call.caller,
            block: call.block,
            state: state.to_owned(),
            reason,
        }
    }
}
