//! What the API tells of workflows and their runs, and what it may change: a run may be cancelled, a secret replaced. A stranger's workflow
//! does not exist.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::{Address, keccak256};
use sandbox_fleet::sandbox::Sandbox;
use sandbox_fleet::workflow::Value;
use sandbox_protocol::workflow::{
    Cause, HookBody, HookHeaders, RunBody, RunQuery, RunStatus, RunsPage, SecretBody, StepBody, WorkflowEntry,
    verify_hook,
};
use sandbox_protocol::{CallKey, SandboxId};
use tokio::time::timeout;

use super::error::WorkflowError;
use super::fire::UNREAD;
use super::table::Known;
use super::{Fired, Shared, Workflows, check, now_s};
use crate::limits::{API_KEEPER_TIMEOUT, HOOK_SECRET_BYTES};
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
    /// A page of the workflows of `owner` that this operator fires, those behind `after`; and behind which the next page is, if there is
    /// one.
    pub(crate) async fn list(
        &self,
        owner: Address,
        (after, count): (Option<CallKey>, usize),
    ) -> Result<(Vec<WorkflowEntry>, Option<CallKey>), WorkflowError> {
        self.are_read()?;
        let mut keys: Vec<CallKey> = {
            let table = self.0.table();
            let own = table.iter().filter(|(_, known)| known.row.owner == owner).map(|(key, _)| key);
            own.filter(|key| after.is_none_or(|after| *key > after)).take(count + 1).collect()
        };
        let is_more = keys.len() > count;
        keys.truncate(count);
        let next = keys.last().copied().filter(|_| is_more);
        let shown = self.0.apart(move |shared| {
            let shown = keys.into_iter().map(|key| shared.shown(key, owner));
            // One that is over since then is none.
            shown.filter(|shown| !matches!(shown, Err(WorkflowError::Unknown))).collect()
        });
        Ok((shown.await?, next))
    }

    /// A workflow of `owner`.
    pub(crate) async fn show(&self, key: CallKey, owner: Address) -> Result<WorkflowEntry, WorkflowError> {
        self.are_read()?;
        self.0.apart(move |shared| shared.shown(key, owner)).await
    }

    /// A page of the runs of a workflow, the newest first.
    pub(crate) async fn runs(
        &self,
        key: CallKey,
        owner: Address,
        (before, count): (Option<u64>, usize),
    ) -> Result<RunsPage, WorkflowError> {
        self.is_owned(key, owner)?;
        let read = move |shared: &Shared| Ok(shared.parts.records.runs(key, before.unwrap_or(u64::MAX), count + 1)?);
        let mut runs = self.0.apart(read).await?;
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
        let mut changed = self.0.waiters.watch(key);
        let waiting = async {
            loop {
                changed.mark_unchanged();
                let body = self.body(key, owner).await?;
                if body.version > query.after || body.run.status.is_final() || changed.changed().await.is_err() {
                    return Ok(body);
                }
            }
        };
        let told: Result<RunBody, WorkflowError> = match timeout(Duration::from_secs(query.wait), waiting).await {
            Ok(told) => told,
            Err(_) => self.body(key, owner).await,
        };
        let body = told?;
        Ok(RunBody { sandbox: self.0.own_sandbox_of(key, body.run.status).await?, ..body })
    }

    /// Has a run end; returns when it has, or after as long as a request may take.
    pub(crate) async fn cancel_run(&self, key: RunKey, owner: Address) -> Result<RunBody, WorkflowError> {
        let body = self.body(key, owner).await?;
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
                let secret = new_secret();
                records.put_workflow_secret(key, &secret).await?;
                secret
            }
        };
        let url = format!("{}/v1/hooks/{}/{}", self.0.parts.url, key.service, key.call);
        Ok(SecretBody { url, secret })
    }

    /// Fires a workflow for a request that proves to know its secret.
    pub(crate) async fn hook(&self, key: CallKey, hook: Hook<'_>) -> Result<HookBody, WorkflowError> {
        self.are_read()?;
        let has_hook = self.0.table().get(key).is_some_and(Known::has_hook);
        let secret = self.0.parts.records.workflow_secret(key)?.filter(|_| has_hook);
        // Where there is none, a secret that nobody has: who knows none is not told whether there is one.
        let secret = secret.unwrap_or_else(new_secret);
        verify_hook(&secret, hook.headers, hook.body, u64::try_from(now_s()).unwrap_or_default())?;
        if let Some(why) = self.0.blind() {
            return Err(WorkflowError::Blind(why));
        }
        let signature = hook.headers.signature.unwrap_or_default();
        let delivery = hook.delivery.map_or_else(|| keccak256(signature).to_string(), str::to_owned);
        // What was signed once fires once, whatever its sender, or who overheard it, calls it.
        let seal = Some(format!("signature {signature}"));
        let fired = Fired { cause: Cause::Webhook { delivery }, body: Value::of_bytes(hook.body), seal };
        let shared = self.0.clone();
        // A sender that hangs up ends no firing that is on its way to the disk.
        let fired = tokio::spawn(async move { shared.fire(key, fired).await }).await??;
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

    async fn body(&self, key: RunKey, owner: Address) -> Result<RunBody, WorkflowError> {
        self.is_owned(key.workflow, owner)?;
        self.0.apart(move |shared| shared.body(key)).await
    }
}

impl Shared {
    /// Reads what is long, and sees what follows from it, where nobody waits for that but who wants it.
    async fn apart<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> Result<T, WorkflowError> + Send + 'static,
    ) -> Result<T, WorkflowError> {
        let place = self.reads.clone().acquire_owned().await;
        let shared = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _place = place;
            read(&shared)
        });
        reading.await?
    }

    fn shown(&self, key: CallKey, owner: Address) -> Result<WorkflowEntry, WorkflowError> {
        let (entry, hash) = {
            let table = self.table();
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
        let text = self.parts.records.workflow_text(key, hash)?;
        let problem = text.as_ref().and_then(|text| check(text, &self.parts.menu).err()).map(|failure| failure.message);
        let last_run = self.parts.records.runs(key, u64::MAX, 1)?.pop();
        let name = text.map(|text| text.name).unwrap_or_default();
        Ok(WorkflowEntry { name, last_run, problem: entry.problem.or(problem), ..entry })
    }

    fn body(&self, key: RunKey) -> Result<RunBody, WorkflowError> {
        let record = self.parts.records.run(key)?.ok_or(WorkflowError::NoRun)?;
        let steps = self.steps(key, &record)?;
        let version =
            record.state.as_ref().map_or(0, |state| state.version) + u64::from(record.entry.status.is_final());
        Ok(RunBody { run: record.entry, version: version + 1, sandbox: None, steps })
    }

    /// A run's own sandbox, while it goes on in one.
    async fn own_sandbox_of(&self, key: RunKey, status: RunStatus) -> Result<Option<SandboxId>, WorkflowError> {
        if status != RunStatus::Running {
            return Ok(None);
        }
        let children = timeout(API_KEEPER_TIMEOUT, self.parts.executor.fleet.children(key.workflow)).await;
        let children = children.map_err(|_| WorkflowError::Keeper)?.map_err(|_| WorkflowError::Keeper)?;
        let is_own = |child: &&Sandbox| child.lives() && RunKey::of_child(child) == Some(key);
        Ok(children.iter().find(is_own).map(|child| child.id))
    }

    /// What there is to be told of a run's steps. Their names are the text's, which is here once a run was begun.
    fn steps(&self, key: RunKey, record: &RunRecord) -> Result<Vec<StepBody>, WorkflowError> {
        let Some(state) = &record.state else { return Ok(Vec::new()) };
        let hash = self.table().get(key.workflow).map(|known| known.row.body_hash);
        let text = hash.map(|hash| self.parts.records.workflow_text(key.workflow, hash)).transpose()?.flatten();
        let checked = text.and_then(|text| check(&text, &self.parts.menu).ok());
        Ok(checked.map(|checked| state.bodies(&checked.plan)).unwrap_or_default())
    }
}

fn new_secret() -> String {
    format!("whsec_{}", hex::encode(rand::random::<[u8; HOOK_SECRET_BYTES]>()))
}
