//! Keeps the table what the chain says: read as a whole at the start and now and then, a single workflow whenever something is told of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use sandbox_protocol::workflow::{RunEntry, RunStatus};
use sandbox_protocol::{CallKey, Job};
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{WorkflowStatus, WorkflowView};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};

use super::error::WorkflowError;
use super::table::{Moment, Row};
use super::{Shared, now_s};
use crate::chain::notices::Seen;
use crate::chain::until_answered;
use crate::limits::{
    WORKFLOW_BEHIND_BLOCKS_MAX, WORKFLOW_CANCEL_TIMEOUT, WORKFLOW_COMPARE_PAUSE, WORKFLOW_HANDOVER_SLACK_S,
    WORKFLOW_LOOKS_AT_ONCE_MAX, WORKFLOW_LOOKS_MAX, WORKFLOW_STANDINGS_AT_ONCE_MAX, WORKFLOW_TEXT_PAUSE,
};
use crate::records::{RecordsError, RunKey, RunRecord, now_ms};

/// Why runs end whose workflow is fired by another operator now, or by nobody.
const NOT_OURS: &str = "the workflow is not this operator's any more";
/// Why they end when there is nobody any more to fire it for.
const SERVICE_OVER: &str = "the service has ended";

impl Shared {
    /// Makes the table what the chain says.
    pub(super) async fn rebuild(self: &Arc<Self>) {
        let begun = Instant::now();
        let views = until_answered("active workflows", || self.parts.chain.active_workflows(self.parts.me)).await;
        let active: BTreeSet<CallKey> = views.iter().map(key_of).collect();
        if let Err(error) = self.enter_all(&views).await {
            tracing::error!(error = %crate::error_chain(&error), "workflows are not entered");
        }
        // What the list does not have is paused or over.
        let mut others: BTreeSet<CallKey> = self.table().iter().map(|(key, _)| key).collect();
        match self.parts.records.known_workflows() {
            Ok(known) => others.extend(known),
            Err(error) => tracing::error!(error = %crate::error_chain(&error), "known workflows cannot be read"),
        }
        self.look_at(others.difference(&active).copied().collect()).await;
        let (workflows, ms) = (active.len(), begun.elapsed().as_millis());
        tracing::info!(workflows, ms, "workflows are in step with the chain");
    }

    async fn enter_all(&self, views: &[WorkflowView]) -> Result<(), RecordsError> {
        let mut news = Vec::new();
        let mut rows = Vec::new();
        for view in views.iter().filter(|view| self.serves(view.serviceId)) {
            let (key, row) = (key_of(view), Row::of(view));
            if self.table().get(key).is_some() {
                self.enter_one(key, row).await?;
                continue;
            }
            let known = self.parts.records.workflow_standing(key)?;
            let standing = row.standing(known.clone(), self.moment());
            if known.as_ref() != Some(&standing) {
                news.push((key, standing.clone()));
            }
            rows.push((key, row, standing));
        }
        for some in news.chunks(WORKFLOW_STANDINGS_AT_ONCE_MAX) {
            self.parts.records.put_workflow_standings(some).await?;
        }
        for (key, row, standing) in rows {
            self.table().enter(key, row, standing, now_s());
        }
        Ok(())
    }

    /// Looks at workflows whenever something is told of them, at those that were answered here until the chain has them, and now and
    /// then at all.
    pub(super) async fn keep_in_step(self: &Arc<Self>) {
        let (mut looks, mut seen_at) = (self.parts.looks.clone(), 0);
        let mut compare = interval_at(Instant::now() + WORKFLOW_COMPARE_PAUSE, WORKFLOW_COMPARE_PAUSE);
        compare.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                seen = self.parts.notices.next() => self.take_notice(seen).await,
                looked = looks.changed() => {
                    if looked.is_err() {
                        return;
                    }
                    let head = looks.borrow_and_update().block.number;
                    if head != std::mem::replace(&mut seen_at, head) {
                        let expected: Vec<CallKey> = self.expected().iter().copied().collect();
                        self.look_at(expected).await;
                    }
                }
                _ = compare.tick() => self.rebuild().await,
            }
        }
    }

    /// Expects the workflows whose creates a former life answered: the chain may not have heard of it yet.
    pub(super) fn expect_answered(&self) {
        match self.parts.records.open_calls() {
            Ok(open) => {
                let created =
                    open.iter().filter(|call| call.job == Job::WorkflowCreate.id() && call.answer().is_some());
                self.expected().extend(created.map(|call| call.key));
            }
            Err(error) => tracing::error!(error = %crate::error_chain(&error), "open calls cannot be read"),
        }
    }

    async fn take_notice(self: &Arc<Self>, Seen { workflows, services }: Seen) {
        let ended: Vec<CallKey> =
            self.table().iter().map(|(key, _)| key).filter(|key| services.contains(&key.service)).collect();
        for key in ended {
            if let Err(error) = self.part_with(key, SERVICE_OVER).await {
                tracing::error!(workflow = %key, error = %crate::error_chain(&error), "a workflow is not forgotten");
            }
        }
        self.look_at(workflows.into_iter().collect()).await;
    }

    async fn look_at(self: &Arc<Self>, keys: Vec<CallKey>) {
        let looking = futures::stream::iter(keys).map(|key| async move {
            if let Err(error) = self.look(key).await {
                tracing::warn!(workflow = %key, error = %crate::error_chain(&error), "a workflow is not looked at");
                // Until then it is one of those that are looked at with every block.
                self.expected().insert(key);
            }
        });
        looking.buffer_unordered(WORKFLOW_LOOKS_AT_ONCE_MAX).collect::<Vec<()>>().await;
    }

    /// Enters a workflow as the chain has it now, or takes it out and forgets it; whether the chain has a word on it.
    async fn look(self: &Arc<Self>, key: CallKey) -> Result<bool, WorkflowError> {
        // A node that does not know it may be behind.
        let Some((view, _)) = self.parts.chain.workflow(key).await? else { return Ok(false) };
        let is_ours = view.operator == self.parts.me && self.serves(key.service);
        match view.status {
            WorkflowStatus::Pending if is_ours => return Ok(true),
            WorkflowStatus::Active | WorkflowStatus::Paused if is_ours => {
                if self.is_served(key.service).await? {
                    self.enter_one(key, Row::of(&view)).await?;
                    self.expected().remove(&key);
                } else {
                    self.part_with(key, SERVICE_OVER).await?;
                }
            }
            WorkflowStatus::Active
            | WorkflowStatus::Paused
            | WorkflowStatus::Pending
            | WorkflowStatus::Unknown
            | WorkflowStatus::Cancelled
            | WorkflowStatus::Failed
            | WorkflowStatus::__Invalid => self.part_with(key, NOT_OURS).await?,
        }
        Ok(true)
    }

    /// Whether the service goes on: one that is over still has its workflows, as they were.
    async fn is_served(&self, service: u64) -> Result<bool, ReadError> {
        Ok(self.parts.chain.service_view(service).await?.is_some_and(|view| view.active))
    }

    /// Fires a workflow no more, and forgets it when its runs have ended and the block on which it was seen to be over is believed;
    /// until then it is expected to be.
    async fn part_with(self: &Arc<Self>, key: CallKey, reason: &str) -> Result<(), RecordsError> {
        self.drop_workflow(key, reason).await;
        let head = self.parts.looks.borrow().block.number;
        let seen_at = *self.parting().entry(key).or_insert(head);
        if self.believed() < seen_at || self.parts.records.has_open_runs(key)? {
            self.expected().insert(key);
            return Ok(());
        }
        self.parts.records.forget_workflow(key).await?;
        self.parting().remove(&key);
        self.expected().remove(&key);
        Ok(())
    }

    async fn enter_one(&self, key: CallKey, row: Row) -> Result<(), RecordsError> {
        let turn = self.table().get(key).map(|known| known.turn.clone());
        // Who fires it writes the same record.
        let _turn = match turn {
            Some(turn) => Some(turn.lock_owned().await),
            None => None,
        };
        let at = self.moment();
        let here = self.table().get(key).map(|known| known.standing.clone());
        let known = match here {
            Some(here) => Some(here),
            None => self.parts.records.workflow_standing(key)?,
        };
        let was_paused = known.as_ref().is_some_and(|known| known.is_paused);
        let standing = row.standing(known.clone(), at);
        if known.as_ref() != Some(&standing) {
            self.parts.records.put_workflow_standing(key, &standing).await?;
        }
        if row.is_paused && !was_paused {
            tracing::info!(workflow = %key, "paused by its owner");
        }
        self.parting().remove(&key);
        self.table().enter(key, row, standing, at.now_s);
        Ok(())
    }

    /// Makes sure that a workflow is in the table, and there as the chain has it now where it would not be fired.
    pub(super) async fn looked_up_unless_active(self: &Arc<Self>, key: CallKey) -> Result<(), WorkflowError> {
        let is_active = self.table().get(key).is_some_and(|known| !known.row.is_paused);
        if !is_active {
            self.look(key).await?;
        }
        Ok(())
    }

    /// Fires a workflow no more, and has its runs end.
    pub(super) async fn drop_workflow(self: &Arc<Self>, key: CallKey, reason: &str) {
        let Some(known) = self.table().leave(key) else { return };
        tracing::info!(workflow = %key, reason, "fired no more");
        for cancel in known.running.values() {
            cancel.send_replace(Some(reason.to_owned()));
        }
        for number in known.queued {
            self.end_unbegun(RunKey { workflow: key, number }, reason).await;
        }
    }

    /// Returns when no run of a workflow is open, or the time for that is over.
    pub(super) async fn runs_ended(&self, key: CallKey) {
        let mut changed = self.changed.subscribe();
        let ended = async {
            while self.parts.records.has_open_runs(key).unwrap_or(false) && changed.changed().await.is_ok() {}
        };
        if timeout(WORKFLOW_CANCEL_TIMEOUT, ended).await.is_err() {
            tracing::warn!(workflow = %key, "runs of a workflow that is over have not ended yet");
        }
    }

    /// Goes on with the runs that a former life left open; those of workflows that are over are ended.
    pub(super) async fn take_up(self: &Arc<Self>) {
        let open = match self.parts.records.open_runs() {
            Ok(open) => open,
            Err(error) => return tracing::error!(error = %crate::error_chain(&error), "open runs cannot be read"),
        };
        let of: BTreeSet<CallKey> = open.iter().map(|run| run.workflow).collect();
        let asking = futures::stream::iter(of)
            .filter(|key| std::future::ready(self.table().get(*key).is_none()))
            .map(|key| async move { (!self.looked_at_last(key).await).then_some(key) });
        let asked: Vec<Option<CallKey>> = asking.buffer_unordered(WORKFLOW_LOOKS_AT_ONCE_MAX).collect().await;
        let unsaid: BTreeSet<CallKey> = asked.into_iter().flatten().collect();
        // Without a word of the chain nothing is ended: the next start asks again.
        for run in open.into_iter().filter(|run| !unsaid.contains(&run.workflow)) {
            match self.parts.records.run(run) {
                Ok(Some(record)) => self.take_up_one(run, &record).await,
                Ok(None) => {}
                Err(error) => tracing::error!(error = %crate::error_chain(&error), "an open run cannot be read"),
            }
        }
    }

    /// Looks at a workflow until the chain has a word on it, for a while; whether it has.
    async fn looked_at_last(self: &Arc<Self>, key: CallKey) -> bool {
        for _ in 0..WORKFLOW_LOOKS_MAX {
            match self.look(key).await {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => tracing::warn!(workflow = %key, error = %crate::error_chain(&error), "asking again"),
            }
            sleep(WORKFLOW_TEXT_PAUSE).await;
        }
        tracing::error!(workflow = %key, "its runs are left for the next start");
        false
    }

    async fn take_up_one(self: &Arc<Self>, run: RunKey, record: &RunRecord) {
        let is_ours = match self.table().get_mut(run.workflow) {
            Some(known) if known.standing.epoch == record.epoch => {
                if record.entry.status == RunStatus::Queued {
                    known.queue(run.number);
                }
                true
            }
            Some(_) | None => false,
        };
        match record.entry.status {
            RunStatus::Running if is_ours => self.begin(run, true),
            RunStatus::Queued if is_ours => self.begin_next(run.workflow),
            RunStatus::Running => self.give_up(run, record, (RunStatus::Cancelled, NOT_OURS.to_owned())).await,
            RunStatus::Queued => self.end_unbegun(run, NOT_OURS).await,
            RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled | RunStatus::Skipped => {}
        }
    }

    /// Cancels a run that was never begun.
    pub(super) async fn end_unbegun(&self, key: RunKey, reason: &str) {
        let ending = async {
            let Some(record) = self.parts.records.run(key)? else { return Ok(()) };
            let (ended_ms, reason) = (Some(now_ms()), Some(reason.to_owned()));
            let entry = RunEntry { status: RunStatus::Cancelled, ended_ms, reason, ..record.entry };
            self.parts.records.put_run(key, &RunRecord { entry, ..record }).await
        };
        if let Err(error) = ending.await {
            tracing::error!(error = %crate::error_chain(&error), "a run is left for the next start");
        }
        self.tell_changed(key);
    }

    fn moment(&self) -> Moment {
        let handover_s = self.handover_s.get().copied().unwrap_or_default();
        Moment { now_s: now_s(), block: self.believed(), handover_s }
    }

    /// Learns for how long who had a workflow before may go on firing it: as long as anybody may be behind the chain.
    pub(super) async fn learn_handover(&self) {
        let block_ms = until_answered("time between blocks", || self.parts.chain.mean_block_time_ms()).await;
        self.handover_s.get_or_init(|| handover_s(self.parts.others_head_age_s_max, block_ms));
    }

    fn serves(&self, service: u64) -> bool {
        self.parts.service.is_none_or(|only| only == service)
    }
}

/// Seconds that an operator which looks at blocks of at most this age, made every so many milliseconds, may be behind the chain.
fn handover_s(head_age_s_max: u64, block_ms: u64) -> i64 {
    let behind_s = block_ms.saturating_mul(WORKFLOW_BEHIND_BLOCKS_MAX).div_ceil(1_000);
    let sum_s = head_age_s_max.saturating_add(behind_s).saturating_add(WORKFLOW_HANDOVER_SLACK_S);
    i64::try_from(sum_s).unwrap_or(i64::MAX)
}

fn key_of(view: &WorkflowView) -> CallKey {
    CallKey { service: view.serviceId, call: view.workflowId }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::HEAD_AGE_S_MAX;

    #[test]
    fn who_takes_a_workflow_over_waits_for_as_long_as_the_other_may_be_behind() {
        let behind_s = |block_s: u64| i64::try_from(HEAD_AGE_S_MAX + WORKFLOW_BEHIND_BLOCKS_MAX * block_s).unwrap();
        for block_s in [1, 12] {
            assert!(handover_s(HEAD_AGE_S_MAX, block_s * 1_000) > behind_s(block_s), "{block_s}");
        }
        assert_eq!(handover_s(0, 250), 2 + 30, "a chain of one's own");
        assert_eq!(handover_s(u64::MAX, u64::MAX), i64::MAX);
    }
}
