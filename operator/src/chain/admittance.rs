//! What becomes of a call that the chain told of: taken in, handed on, given up, undone.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use alloy::primitives::B256;
use futures::StreamExt as _;
use sandbox_fleet::Fleet;
use sandbox_protocol::CallKey;
use sandbox_sdk::Chain;
use sandbox_sdk::chain::Submission;

use super::duty::{Duty, LookupError, Standing};
use super::logs::Word;
use super::notices::Notices;
use super::outbox::Outbox;
use crate::jobs::JobQueue;
use crate::limits::{KNOWN_SERVICES_MAX, REFILL_PAUSE, RESUMED_AT_ONCE_MAX, SORTED_AT_ONCE_MAX, UNDO_TIMEOUT};
use crate::records::{CallRecord, Progress, Records, RecordsError};

/// The way in. Shared by all who read the chain.
pub(crate) struct Admittance {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) fleet: Fleet,
    pub(crate) outbox: Outbox,
    pub(crate) queue: JobQueue,
    pub(crate) duty: Duty,
    /// Where it is told what was seen of workflows.
    pub(crate) notices: Notices,
    /// Only this service, where one is named.
    pub(crate) service: Option<u64>,
    /// Whether a service is of another blueprint, for those that were asked for.
    pub(crate) services: Mutex<HashMap<u64, bool>>,
}

/// What some blocks held.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Calls that are this operator's to answer.
    calls: Vec<CallRecord>,
    /// Calls that are so no more.
    lost: Vec<CallKey>,
    /// Services that ended.
    ended: Vec<u64>,
    /// Calls that may be workflows of which something changed.
    workflows: Vec<CallKey>,
}

impl Admittance {
    /// Goes on with what a former life left open.
    pub(super) fn resume(&self) -> Result<(), RecordsError> {
        let mut open = self.records.open_calls()?;
        open.sort_by_key(|call| (call.block, call.key.service, call.key.call));
        for call in open {
            self.hand_on(&call)?;
        }
        Ok(())
    }

    /// Now and then offers the calls that found no room, and undoes what is to be undone.
    pub(super) async fn look_after(&self) -> Result<(), RecordsError> {
        loop {
            self.undo_all().await?;
            if self.queue.refill() {
                self.resume()?;
            }
            tokio::time::sleep(REFILL_PAUSE).await;
        }
    }

    /// What is in these words for this operator. Each costs the node a question or two; many are asked at a time, since a
    /// long absence leaves thousands.
    pub(super) async fn sort(&self, words: Vec<Word>) -> Result<Found, LookupError> {
        let sorting = words.into_iter().map(|word| self.sort_one(word));
        let mut sorted = futures::stream::iter(sorting).buffered(SORTED_AT_ONCE_MAX);
        let mut found = Found::default();
        while let Some(one) = sorted.next().await {
            let Found { calls, lost, ended, workflows } = one?;
            found.calls.extend(calls);
            found.lost.extend(lost);
            found.ended.extend(ended);
            found.workflows.extend(workflows);
        }
        Ok(found)
    }

    async fn sort_one(&self, word: Word) -> Result<Found, LookupError> {
        match word {
            Word::Submitted(call) => {
                Ok(Found { calls: self.mine(*call).await?.into_iter().collect(), ..Found::default() })
            }
            // A workflow may move long after it was answered.
            Word::Reassigned(key, block) => {
                self.moved(key, block).await.map(|found| Found { workflows: vec![key], ..found })
            }
            Word::Workflow(key) => Ok(Found { workflows: vec![key], ..Found::default() }),
            Word::Ended(service) => Ok(Found { ended: vec![service], ..Found::default() }),
        }
    }

    /// Writes down what was found up to block `to`, whose hash is `tip`, and hands on what is to be done.
    pub(super) async fn take_in(&self, found: Found, to: u64, tip: B256) -> Result<(), RecordsError> {
        self.withdraw_replaced(&found.calls).await?;
        let due = self.records.take_in_at(&found.calls, to + 1, tip).await?;
        for call in due {
            tracing::info!(call = %call.key, job = call.job, block = call.block, "call taken in");
            self.hand_on(&call)?;
        }
        for key in found.lost {
            self.lose(key).await?;
        }
        for service in found.ended {
            self.fleet.service_ended(service).await;
            self.notices.service(service);
        }
        found.workflows.into_iter().for_each(|key| self.notices.workflow(key));
        Ok(())
    }

    /// Takes in a call that the reader passed by, if it is this operator's to answer.
    pub(super) async fn take_in_missed(&self, submission: Submission) -> Result<(), AdmittanceError> {
        let Submission { key, job, caller, inputs, block, .. } = submission;
        let Some(call) = self.mine(CallRecord::seen(key, job, caller, inputs, block)).await? else { return Ok(()) };
        self.withdraw_replaced(std::slice::from_ref(&call)).await?;
        for call in self.records.take_in_missed(&call).await? {
            tracing::warn!(call = %call.key, job = call.job, block = call.block, "a call that no log told of is taken in");
            self.hand_on(&call)?;
        }
        Ok(())
    }

    /// Gives up a call that the chain positively has no more.
    pub(super) async fn give_up(&self, call: &CallRecord, reason: &'static str) -> Result<(), RecordsError> {
        tracing::warn!(call = %call.key, reason, "a call is given up");
        self.queue.withdraw(call.key).await;
        self.records.give_up(call, reason).await
    }

    /// Whether the service is of another blueprint, or not to be served. It is known to exist: a node that does not know it
    /// is behind.
    pub(super) async fn is_foreign(&self, service: u64) -> Result<bool, LookupError> {
        if self.service.is_some_and(|only| only != service) {
            return Ok(true);
        }
        if let Some(foreign) = self.services().get(&service) {
            return Ok(*foreign);
        }
        let found = self.chain.service(service).await?.ok_or(LookupError::NotYet)?;
        let foreign = found.blueprintId != self.chain.deployment().blueprint_id;
        let mut known = self.services();
        if known.len() >= KNOWN_SERVICES_MAX {
            known.clear();
        }
        known.insert(service, foreign);
        Ok(foreign)
    }

    /// What was learned of services may be of another fork.
    pub(super) fn forget_services(&self) {
        self.services().clear();
    }

    /// The call, if the contract says that this operator must answer it.
    async fn mine(&self, call: CallRecord) -> Result<Option<CallRecord>, LookupError> {
        if self.is_foreign(call.key.service).await? {
            return Ok(None);
        }
        let standing = self.duty.standing(call.key).await?;
        // One that is known stays so: its receipt may have come back with the block.
        let is_known = || self.records.call(call.key).ok().flatten().is_some_and(|known| known.is_same(&call));
        let is_due = matches!(standing, Standing::Mine { .. });
        Ok((is_due || (standing == Standing::Answered && is_known())).then_some(call))
    }

    /// A call that was another operator's until `block`, or is so from then on. What was asked stands in a log of long ago.
    async fn moved(&self, key: CallKey, block: u64) -> Result<Found, LookupError> {
        if self.is_foreign(key.service).await? {
            return Ok(Found::default());
        }
        Ok(match self.duty.standing(key).await? {
            Standing::Elsewhere => Found { lost: vec![key], ..Found::default() },
            Standing::Answered => Found::default(),
            Standing::Mine { .. } => {
                let asked = self.chain.submission(key).await?.ok_or(LookupError::NotYet)?;
                let call = CallRecord::seen(key, asked.job, asked.caller, asked.inputs, block);
                Found { calls: vec![call], ..Found::default() }
            }
        })
    }

    /// Has nobody work on calls whose ids have come to stand for others.
    async fn withdraw_replaced(&self, calls: &[CallRecord]) -> Result<(), RecordsError> {
        for call in calls {
            if let Some(known) = self.records.call(call.key)?.filter(|known| !known.is_same(call)) {
                tracing::warn!(call = %call.key, was = %known.inputs_hash, is = %call.inputs_hash, "the chain gave a call's id to another");
                self.queue.withdraw(call.key).await;
            }
        }
        Ok(())
    }

    /// A call that the contract gave to another operator. One that was answered as failed moved by that very answer.
    async fn lose(&self, key: CallKey) -> Result<(), RecordsError> {
        let Some(call) = self.records.call(key)? else { return Ok(()) };
        match &call.progress {
            Progress::Seen | Progress::Begun { .. } => self.give_up(&call, "assigned to another operator").await,
            Progress::Answered(answer) if answer.failure.is_none() => {
                self.give_up(&call, "assigned to another operator").await
            }
            Progress::Answered(_) | Progress::Settled { .. } | Progress::Refused { .. } | Progress::Dropped { .. } => {
                Ok(())
            }
        }
    }

    fn hand_on(&self, call: &CallRecord) -> Result<(), RecordsError> {
        match call.progress {
            Progress::Answered(_) => self.outbox.notify(call.key),
            // Its turn comes when what stood under its id is gone.
            Progress::Seen | Progress::Begun { .. } if self.records.is_to_undo(call.key)? => {}
            Progress::Seen | Progress::Begun { .. } => self.queue.offer(call),
            Progress::Settled { .. } | Progress::Refused { .. } | Progress::Dropped { .. } => {}
        }
        Ok(())
    }

    async fn undo_all(&self) -> Result<(), RecordsError> {
        let mut undoing = futures::stream::iter(self.records.to_undo()?)
            .map(|key| async move { tokio::time::timeout(UNDO_TIMEOUT, self.undo(key)).await })
            .buffer_unordered(RESUMED_AT_ONCE_MAX);
        while let Some(undone) = undoing.next().await {
            match undone {
                Ok(undone) => undone?,
                Err(_) => tracing::warn!("sandboxes of a call that was taken back are not gone yet"),
            }
        }
        Ok(())
    }

    /// Has nothing left of what was made under the id, then hands on the call that it stands for now.
    async fn undo(&self, key: CallKey) -> Result<(), RecordsError> {
        let made: Vec<_> =
            self.records.sandboxes()?.into_iter().map(|sandbox| sandbox.id).filter(|id| id.origin == key).collect();
        for id in &made {
            tracing::warn!(sandbox = %id, "undone: the chain took back its create, or gave it to another operator");
            if self.fleet.forget(*id).await.is_err() {
                return Ok(());
            }
        }
        self.records.undone(key, &made).await?;
        match self.records.call(key)? {
            Some(call) => self.hand_on(&call),
            None => Ok(()),
        }
    }

    fn services(&self) -> MutexGuard<'_, HashMap<u64, bool>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a call was not taken in.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdmittanceError {
    /// The chain does not say what it is.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// It could not be written down.
    #[error(transparent)]
    Records(#[from] RecordsError),
}
