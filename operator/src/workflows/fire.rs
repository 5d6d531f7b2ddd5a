//! A firing: written down once, whatever names it, and then carried out, put off or passed over.

use std::sync::Arc;
use std::time::SystemTime;

use futures::StreamExt as _;
use sandbox_fleet::schedule::Due;
use sandbox_fleet::schedule::overlap::{self, Firing};
use sandbox_fleet::workflow::Value;
use sandbox_protocol::CallKey;
use sandbox_protocol::workflow::{Cause, RunEntry, RunStatus};
use tokio::time::Instant;

use super::error::WorkflowError;
use super::{Shared, now_s};
use crate::limits::{WORKFLOW_BEHIND_BLOCKS_MAX, WORKFLOW_FIRING_AT_ONCE_MAX};
use crate::records::{self, Names, RunKey, RunRecord, Standing, now_ms};

/// Why a firing was passed over.
const STILL_RUNNING: &str = "another run of the workflow was still going on";

/// Why nothing is fired or told after a start.
pub(super) const UNREAD: &str = "the workflows were not read from the chain yet";

/// What fires a workflow.
#[derive(Debug, Clone)]
pub(crate) struct Fired {
    /// What it is.
    pub(crate) cause: Cause,
    /// What it brings.
    pub(crate) body: Value,
    /// By which it is known again besides its cause.
    pub(crate) seal: Option<String>,
}

/// The run that was fired, now or before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FiredRun {
    pub(super) number: u64,
    pub(super) status: RunStatus,
    pub(super) is_repeat: bool,
}

impl Shared {
    /// Fires what is due, unless what is known of the chain is too old for that.
    pub(super) async fn tick(self: &Arc<Self>) {
        let Ok(_ticking) = self.ticking.try_lock() else { return };
        if let Some(why) = self.blind() {
            return tracing::warn!(why, "nothing is fired");
        }
        let due = self.table().due(now_s());
        let firing = futures::stream::iter(due).map(|due| self.fire_slots(due));
        firing.buffer_unordered(WORKFLOW_FIRING_AT_ONCE_MAX).collect::<Vec<()>>().await;
    }

    /// Why nothing may be fired now: another operator may have come to fire it, and this one would not know.
    pub(super) fn blind(&self) -> Option<&'static str> {
        if !*self.in_step.borrow() {
            return Some(UNREAD);
        }
        let look = *self.parts.looks.borrow();
        let now = (Instant::now(), SystemTime::now());
        if look.staleness(now, self.parts.head_age_s_max).is_some() {
            return Some("the sight of the chain is too old");
        }
        let believed = self.believed();
        match self.parts.records.cursor() {
            Ok(Some(cursor)) if cursor + WORKFLOW_BEHIND_BLOCKS_MAX > believed => None,
            Ok(_) => Some("the chain is read no further than long ago"),
            Err(_) => Some("the records cannot be read"),
        }
    }

    async fn fire_slots(self: &Arc<Self>, due: Due) {
        for slot_s in due.slots {
            // Others may have taken long.
            if let Some(why) = self.blind() {
                tracing::warn!(workflow = %due.key, why, "not fired now");
                return self.table().put_back(due.key, now_s());
            }
            let cause = Cause::Cron { slot_s };
            match self.fire(due.key, Fired { cause, body: Value::Null, seal: None }).await {
                Ok(_) | Err(WorkflowError::Unknown | WorkflowError::Paused | WorkflowError::FiredBefore) => {}
                Err(error) => {
                    let error = crate::error_chain(&error);
                    tracing::error!(workflow = %due.key, slot_s, error, "an instant is not fired");
                }
            }
        }
    }

    /// Fires a workflow once for what has this cause.
    pub(super) async fn fire(self: &Arc<Self>, key: CallKey, fired: Fired) -> Result<FiredRun, WorkflowError> {
        let turn = self.table().get(key).map(|known| known.turn.clone()).ok_or(WorkflowError::Unknown)?;
        let _turn = turn.lock_owned().await;
        let names = names_of(&fired);
        if let Some(repeat) = self.repeated(key, &names).await? {
            return Ok(repeat);
        }
        let (record, standing) = self.decided(key, fired)?;
        let number = record.entry.number;
        let run_key = RunKey { workflow: key, number };
        let firing = records::Firing { key: run_key, run: &record, standing: &standing, names: &names };
        self.parts.records.fire(firing).await?;
        let status = record.entry.status;
        if !self.settle_firing(run_key, &record, standing) {
            self.end_unbegun(run_key, "the workflow is over").await;
        }
        tracing::info!(workflow = %key, run = number, status = status.name(), "fired");
        Ok(FiredRun { number, status, is_repeat: false })
    }

    /// The run that was fired by what has one of these names; from now on all of them are its.
    async fn repeated(&self, key: CallKey, names: &Names) -> Result<Option<FiredRun>, WorkflowError> {
        let records = &self.parts.records;
        let (mut run, mut unseen) = (None, Vec::new());
        for name in &names.texts {
            match records.fired(key, name)? {
                Some(number) => run = run.or(Some(number)),
                None => unseen.push(name.clone()),
            }
        }
        if !unseen.is_empty() && names.held_until_ms != 0 && !records.has_room_for_names(key)? {
            return Err(WorkflowError::Crowded);
        }
        let Some(number) = run else { return Ok(None) };
        let run = RunKey { workflow: key, number };
        if !unseen.is_empty() {
            // Who overheard a repeat knows a name of it that would be new otherwise.
            records.name_firing(run, &Names { texts: unseen, ..*names }).await?;
        }
        let status = records.run_entry(run)?.map_or(RunStatus::Succeeded, |run| run.status);
        Ok(Some(FiredRun { number, status, is_repeat: true }))
    }

    /// The run that a firing makes, and how far its workflow is with it.
    fn decided(&self, key: CallKey, fired: Fired) -> Result<(RunRecord, Standing), WorkflowError> {
        let table = self.table();
        let known = table.get(key).ok_or(WorkflowError::Unknown)?;
        if known.row.is_paused {
            return Err(WorkflowError::Paused);
        }
        let mut standing = known.standing.clone();
        let fired_ms = now_ms();
        match &fired.cause {
            // What the table says is due may have been fired since.
            Cause::Cron { slot_s } if standing.last_slot_s.is_some_and(|last| last >= *slot_s) => {
                return Err(WorkflowError::FiredBefore);
            }
            Cause::Cron { slot_s } => (standing.last_slot_s, standing.fired_s) = (Some(*slot_s), fired_ms / 1_000),
            Cause::Webhook { .. } | Cause::Event { .. } => standing.fired_s = fired_ms / 1_000,
            // The contract wrote it down with the call.
            Cause::Manual { .. } => {}
        }
        standing.last_run += 1;
        let (status, reason) = match overlap::decide(known.overlap(), known.running.len(), known.queued.len()) {
            Firing::Start => (RunStatus::Running, None),
            Firing::Queue => (RunStatus::Queued, None),
            Firing::Skip => (RunStatus::Skipped, Some(STILL_RUNNING.to_owned())),
        };
        let ended_ms = status.is_final().then_some(fired_ms);
        let (number, cause) = (standing.last_run, fired.cause);
        let entry = RunEntry { number, cause, status, fired_ms, started_ms: None, ended_ms, reason };
        Ok((RunRecord { entry, epoch: standing.epoch, body: fired.body, state: None }, standing))
    }

    /// Enters a firing that is on disk, and begins its run where that is to be; whether its workflow is still there.
    fn settle_firing(self: &Arc<Self>, key: RunKey, record: &RunRecord, standing: Standing) -> bool {
        if standing.fired_s > standing.reported_s {
            self.unreported.notify_one();
        }
        let mut table = self.table();
        let Some(known) = table.get_mut(key.workflow) else { return record.entry.status.is_final() };
        // What came from the chain meanwhile stays.
        known.standing = Standing { reported_s: known.standing.reported_s, ..standing };
        match record.entry.status {
            RunStatus::Queued => {
                known.queue(key.number);
                drop(table);
                // What it waits for may have ended meanwhile.
                self.begin_next(key.workflow);
            }
            RunStatus::Running => {
                // Still in hand of the table: who drops the workflow finds the run that is to end with it.
                let owner = known.row.owner;
                let begun = known.begin(key.number);
                drop(table);
                if let Some(cancelled) = begun {
                    self.start(key, (owner, cancelled), false);
                }
            }
            RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled | RunStatus::Skipped => {}
        }
        self.tell_changed(key);
        true
    }
}

/// What names a firing; of an instant its workflow's standing knows.
fn names_of(fired: &Fired) -> Names {
    match &fired.cause {
        Cause::Manual { call } => Names::of_word(vec![format!("call {call}")]),
        Cause::Cron { .. } => Names::of_word(Vec::new()),
        Cause::Webhook { delivery } => {
            Names::of_request([format!("delivery {delivery}")].into_iter().chain(fired.seal.clone()).collect())
        }
        Cause::Event { event } => Names::of_word(vec![format!("event {event}")]),
    }
}
