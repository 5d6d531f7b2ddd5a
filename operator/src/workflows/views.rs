//! What the API tells of workflows and their runs, and what it may change: a run may be cancelled, a secret replaced. A stranger's workflow
//! does not exist.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, keccak256};
use sandbox_fleet::workflow::Value;
use sandbox_protocol::CallKey;
use sandbox_protocol::workflow::{
    Cause, HookBody, HookHeaders, RunBody, RunQuery, RunStatus, RunsPage, SecretBody, StepBody, WorkflowEntry,
    verify_hook,
};
use tokio::time::timeout;

use super::error::WorkflowError;
use super::fire::UNREAD;
use super::{Fired, Shared, Workflows, check, now_s};
use crate::limits::HOOK_SECRET_BYTES;
use crate::records::{RunKey, RunRecord};

/// Why a run ends that its owner ends.
const BY_OWNER: &str = "cancelled by its owner";

/// A request that is to fire a workflow.
pub(crate) struct Hook<'a> {
    pub(crate) headers: HookHeaders<'a>,
    /// What its sender calls it.
    pub(crate) delivery: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

impl Workflows {
    /// The workflows of `owner` that this operator fires.
    pub(crate) fn list(&self, owner: Address) -> Result<Vec<WorkflowEntry>, WorkflowError> {
        self.are_read()?;
        let keys: Vec<CallKey> = {
            let table = self.0.table();
            table.iter().filter(|(_, known)| known.row.owner == owner).map(|(key, _)| key).collect()
        };
        keys.into_iter().map(|key| self.show(key, owner)).collect()
    }

    /// A workflow of `owner`.
    pub(crate) fn show(&self, key: CallKey, owner: Address) -> Result<WorkflowEntry, WorkflowError> {
        self.are_read()?;
        let (entry, hash) = {
            let table = self.0.table();
            let known = table.get(key).filter(|known| known.row.owner == owner).ok_or(WorkflowError::Unknown)?;
            let entry = WorkflowEntry {
                service: key.service,
                workflow: key.call,
                name: String::new(),
                owner,
                epoch: known.row.epoch,
                trigger: known.row.kind.to_owned(),
                trigger_config: known.row.config.clone(),
                is_paused: known.row.is_paused,
                next_slot_s: table.next_slot_s(key),
                last_run: None,
                problem: known.trigger.as_ref().err().map(ToString::to_string),
            };
            (entry, known.row.body_hash)
        };
        let text = self.0.parts.records.workflow_text(key, hash)?;
        let problem =
            text.as_ref().and_then(|text| check(text, &self.0.parts.menu).err()).map(|failure| failure.message);
        let last_run = self.0.parts.records.runs(key, u64::MAX, 1)?.pop();
        let name = text.map(|text| text.name).unwrap_or_default();
        Ok(WorkflowEntry { name, last_run, problem: entry.problem.or(problem), ..entry })
    }

    /// A page of the runs of a workflow, the newest first.
    pub(crate) fn runs(
        &self,
        key: CallKey,
        owner: Address,
        (before, count): (Option<u64>, usize),
    ) -> Result<RunsPage, WorkflowError> {
        self.is_owned(key, owner)?;
        let mut runs = self.0.parts.records.runs(key, before.unwrap_or(u64::MAX), count + 1)?;
        let is_more = runs.len() > count;
        runs.truncate(count);
        let next = runs.last().filter(|_| is_more).map(|last| last.number);
        Ok(RunsPage { runs, next })
    }

    /// A run, once it is further than its reader knows, or the time is over for which that is waited.
    pub(crate) async fn run_body(
        &self,
        key: RunKey,
        owner: Address,
        query: RunQuery,
    ) -> Result<RunBody, WorkflowError> {
        let mut changed = self.0.changed.subscribe();
        let waiting = async {
            loop {
                changed.mark_unchanged();
                let body = self.body(key, owner)?;
                if body.version > query.after || body.run.status.is_final() || changed.changed().await.is_err() {
                    return Ok(body);
                }
            }
        };
        match timeout(Duration::from_secs(query.wait), waiting).await {
            Ok(body) => body,
            Err(_) => self.body(key, owner),
        }
    }

    /// Has a run end; returns when it has, or after as long as a request may take.
    pub(crate) async fn cancel_run(&self, key: RunKey, owner: Address) -> Result<RunBody, WorkflowError> {
        let body = self.body(key, owner)?;
        let was_queued = {
            let mut table = self.0.table();
            let known = table.get_mut(key.workflow).ok_or(WorkflowError::Unknown)?;
            if let Some(cancel) = known.running.get(&key.number) {
                cancel.send_replace(Some(BY_OWNER.to_owned()));
            }
            let queued = known.queued.len();
            known.queued.retain(|number| *number != key.number);
            known.queued.len() < queued
        };
        if was_queued {
            self.0.end_unbegun(key, BY_OWNER).await;
        }
        let after = if body.run.status == RunStatus::Running { u64::MAX } else { 0 };
        self.run_body(key, owner, RunQuery { wait: sandbox_protocol::limits::WAIT_S_MAX, after }).await
    }

    /// What senders of a workflow's webhook sign with, made at the first question; with `renew` a new one.
    pub(crate) async fn secret(&self, key: CallKey, owner: Address, renew: bool) -> Result<SecretBody, WorkflowError> {
        self.is_owned(key, owner)?;
        let turn = {
            let table = self.0.table();
            let known = table.get(key).ok_or(WorkflowError::Unknown)?;
            if !known.has_hook() {
                return Err(WorkflowError::NoHook(known.row.kind));
            }
            known.turn.clone()
        };
        let _turn = turn.lock_owned().await;
        let records = &self.0.parts.records;
        let secret = match records.workflow_secret(key)?.filter(|_| !renew) {
            Some(secret) => secret,
            None => {
                let secret = format!("whsec_{}", hex::encode(rand::random::<[u8; HOOK_SECRET_BYTES]>()));
                records.put_workflow_secret(key, &secret).await?;
                secret
            }
        };
        let url = format!("{}/v1/hooks/{}/{}", self.0.parts.url, key.service, key.call);
        Ok(SecretBody { url, secret })
    }

    /// Fires a workflow for a request that proves to know its secret.
    pub(crate) async fn hook(&self, key: CallKey, hook: Hook<'_>) -> Result<HookBody, WorkflowError> {
        let kind = self.0.table().get(key).map(|known| (known.has_hook(), known.row.kind));
        let secret = self.0.parts.records.workflow_secret(key)?;
        match (kind, &secret) {
            (Some((true, _)), Some(secret)) => {
                verify_hook(secret, hook.headers, hook.body, u64::try_from(now_s()).unwrap_or_default())?;
            }
            // Who knows no secret is not told whether there is one.
            _ => return Err(WorkflowError::Unknown),
        }
        if let Some(why) = self.0.blind() {
            return Err(WorkflowError::Blind(why));
        }
        let signature = hook.headers.signature.unwrap_or_default();
        let delivery = hook.delivery.map_or_else(|| keccak256(signature).to_string(), str::to_owned);
        // What was signed once fires once, whatever its sender, or who overheard it, calls it.
        let seal = Some(format!("signature {signature}"));
        let fired = Fired { cause: Cause::Webhook { delivery }, body: Value::of_bytes(hook.body), seal };
        let fired = self.0.fire(key, fired).await?;
        Ok(HookBody { run: fired.number, is_repeat: fired.is_repeat })
    }

    /// Until the workflows were read from the chain, none is known not to exist.
    fn are_read(&self) -> Result<(), WorkflowError> {
        if *self.0.in_step.borrow() { Ok(()) } else { Err(WorkflowError::Blind(UNREAD)) }
    }

    fn is_owned(&self, key: CallKey, owner: Address) -> Result<(), WorkflowError> {
        self.are_read()?;
        let is_owned = self.0.table().get(key).is_some_and(|known| known.row.owner == owner);
        if is_owned { Ok(()) } else { Err(WorkflowError::Unknown) }
    }

    fn body(&self, key: RunKey, owner: Address) -> Result<RunBody, WorkflowError> {
        self.is_owned(key.workflow, owner)?;
        let record = self.0.parts.records.run(key)?.ok_or(WorkflowError::NoRun)?;
        let steps = self.0.steps(key, &record)?;
        let version =
            record.state.as_ref().map_or(0, |state| state.version) + u64::from(record.entry.status.is_final());
        Ok(RunBody { run: record.entry, version: version + 1, sandbox: None, steps })
    }
}

impl Shared {
    /// What there is to be told of a run's steps. Their names are the text's, which is here once a run was begun.
    fn steps(self: &Arc<Self>, key: RunKey, record: &RunRecord) -> Result<Vec<StepBody>, WorkflowError> {
        let Some(state) = &record.state else { return Ok(Vec::new()) };
        let hash = self.table().get(key.workflow).map(|known| known.row.body_hash);
        let text = hash.map(|hash| self.parts.records.workflow_text(key.workflow, hash)).transpose()?.flatten();
        let checked = text.and_then(|text| check(&text, &self.parts.menu).ok());
        Ok(checked.map(|checked| state.bodies(&checked.plan)).unwrap_or_default())
    }
}
