//! Receipts on their way to the chain.
//!
//! As a consumer of the blueprint runner this is a sink that never fails: it only notes which call was answered; the
//! answer itself is on disk. One task turns answers into transactions, as many of a service at a time as fit, and keeps
//! trying until the chain has each, deep enough to stay, or positively will not take it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use alloy::primitives::B256;
use alloy::providers::Provider as _;
use blueprint_sdk::JobResult;
use blueprint_sdk::tangle::extract::{CallId, ServiceId};
use futures::{Sink, StreamExt as _};
use sandbox_protocol::CallKey;
use sandbox_protocol::abi::JobReceipt;
use sandbox_sdk::Chain;
use sandbox_sdk::calls;
use sandbox_sdk::chain::{Mined, ReadError, SendError};
use sandbox_sdk::contracts::ITangleCore::ITangleCoreErrors;
use sandbox_sdk::reverts::Refusal;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::sender::Sender;
use crate::limits::{
    OUTBOX_AT_ONCE_MAX, OUTBOX_BATCH_MAX, OUTBOX_QUEUE_MAX, OUTBOX_RESCAN, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN,
};
use crate::records::{Answer, Progress, Records, RecordsError};

/// The way to the task. Clones share it.
#[derive(Clone)]
pub(crate) struct Outbox {
    notes: mpsc::Sender<CallKey>,
}

/// The task.
pub(crate) struct OutboxTask {
    chain: Chain,
    records: Records,
    sender: Sender,
    notes: mpsc::Receiver<CallKey>,
    height: watch::Receiver<u64>,
    /// Blocks that the block of a receipt must have on top of it before the receipt is believed.
    confirmations: u64,
    work: Work,
}

/// What is on the task's table.
#[derive(Default)]
struct Work {
    /// Calls whose receipt is to be sent.
    open: BTreeSet<CallKey>,
    /// Calls whose receipt was refused by itself, and when it is tried again.
    troubled: HashMap<CallKey, Trouble>,
    /// Receipts in blocks that may yet be taken back.
    shallow: Vec<Shallow>,
    /// How many receipts are put into a transaction: as many as lately fit.
    batch: usize,
}

struct Trouble {
    again: Instant,
    pause: Duration,
}

/// Receipts that one transaction brought.
struct Shallow {
    transaction: B256,
    block: u64,
    calls: Vec<CallKey>,
    /// They are settled already, since no depth is asked for; the next block still says whether they stay.
    is_settled: bool,
}

type Batch = Vec<(CallKey, JobReceipt)>;

/// What became of a batch.
enum Sent {
    /// It is in a block.
    Mined(Box<Mined>),
    /// Some of it, or its size, is to blame; smaller parts may do.
    Split(SendError),
    /// Nothing of it is to blame; it is tried again.
    Later,
}

/// What became of a receipt that was sent by itself.
enum Fate {
    Settled,
    Refused(String),
    Later,
}

impl Outbox {
    /// An outbox and its task. `height` tells of blocks, of which a receipt needs `confirmations` on top of its own.
    pub(crate) fn new(
        chain: Chain,
        records: Records,
        sender: Sender,
        (height, confirmations): (watch::Receiver<u64>, u64),
    ) -> (Self, OutboxTask) {
        let (sender_of_notes, notes) = mpsc::channel(OUTBOX_QUEUE_MAX);
        let work = Work { batch: OUTBOX_BATCH_MAX, ..Work::default() };
        (Self { notes: sender_of_notes }, OutboxTask { chain, records, sender, notes, height, confirmations, work })
    }

    /// Notes that a call was answered.
    pub(crate) fn notify(&self, key: CallKey) {
        if self.notes.try_send(key).is_err() {
            tracing::debug!(call = %key, "the outbox is full; it will find the answer by itself");
        }
    }
}

impl Sink<JobResult> for Outbox {
    type Error = Infallible;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(self: Pin<&mut Self>, result: JobResult) -> Result<(), Infallible> {
        let key = result.metadata().and_then(|metadata| {
            let service = metadata.get(ServiceId::METADATA_KEY)?.try_into().ok()?;
            let call = metadata.get(CallId::METADATA_KEY)?.try_into().ok()?;
            Some(CallKey { service, call })
        });
        match key {
            Some(key) => self.notify(key),
            None => tracing::debug!("a result without a call"),
        }
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
}

impl OutboxTask {
    /// The next call that was handed over, in place of what is done with it.
    #[cfg(test)]
    pub(crate) async fn noted(&mut self) -> Option<CallKey> {
        self.notes.recv().await
    }

    /// Submits until nobody can answer any more.
    pub(crate) async fn run(mut self) {
        let mut pause = RETRY_PAUSE_MIN;
        let mut rescan = tokio::time::interval(OUTBOX_RESCAN);
        let mut height = self.height.clone();
        loop {
            let mut noted = Vec::new();
            tokio::select! {
                received = self.notes.recv_many(&mut noted, OUTBOX_QUEUE_MAX) => match received {
                    0 => return,
                    _ => self.work.open.extend(noted),
                },
                _ = rescan.tick() => self.rescan(),
                Ok(()) = height.changed(), if !self.work.shallow.is_empty() => {}
                () = tokio::time::sleep(pause), if self.work.is_waiting() => {}
            }
            self.settle_deep().await;
            let before = self.work.open.len();
            self.submit().await;
            let moved = self.work.open.is_empty() || self.work.open.len() < before;
            pause = if moved { RETRY_PAUSE_MIN } else { Duration::min(pause * 2, RETRY_PAUSE_MAX) };
        }
    }

    /// Finds what no note told of.
    fn rescan(&mut self) {
        match self.records.open_calls() {
            Ok(calls) => {
                let answered = calls.into_iter().filter(|call| call.answer().is_some()).map(|call| call.key);
                let known: BTreeSet<_> = self.work.shallow.iter().flat_map(|sent| &sent.calls).copied().collect();
                self.work.open.extend(answered.filter(|key| !known.contains(key)));
            }
            Err(error) => tracing::error!(error = %crate::error_chain(&error), "cannot read the open calls"),
        }
    }

    /// Tries every open receipt once, those that were refused by themselves apart from the others.
    async fn submit(&mut self) {
        let now = Instant::now();
        let mut by_service: BTreeMap<u64, Batch> = BTreeMap::new();
        let mut alone = Vec::new();
        for key in self.work.due(now) {
            match self.receipt(key) {
                Ok(Some(receipt)) if self.work.troubled.contains_key(&key) => alone.push((key, receipt)),
                Ok(Some(receipt)) => by_service.entry(key.service).or_default().push((key, receipt)),
                Ok(None) => self.work.forget(key),
                Err(error) => {
                    tracing::error!(call = %key, error = %crate::error_chain(&error), "cannot read an answer")
                }
            }
        }
        for receipts in by_service.into_values() {
            self.submit_all(receipts).await;
        }
        for (key, receipt) in alone {
            self.submit_alone(key, &receipt).await;
        }
    }

    /// Submits the receipts of one service. One bad receipt reverts a whole batch, so that is halved until it stands alone:
    /// among a thousand it costs ten questions, and no other receipt waits for it.
    async fn submit_all(&mut self, mut receipts: Batch) {
        let mut parts: Vec<Batch> = Vec::new();
        loop {
            let Some(mut batch) = parts.pop().or_else(|| {
                let next: Batch = receipts.drain(..receipts.len().min(self.work.batch)).collect();
                (!next.is_empty()).then_some(next)
            }) else {
                return;
            };
            if let [(key, receipt)] = batch.as_slice() {
                self.submit_alone(*key, receipt).await;
                continue;
            }
            match self.send(&batch).await {
                Sent::Mined(mined) => self.mined(batch.iter().map(|(key, _)| *key).collect(), &mined).await,
                Sent::Split(error) => {
                    tracing::debug!(size = batch.len(), error = %crate::error_chain(&error), "batch not taken; in halves");
                    if matches!(error, SendError::TooMuchGas { .. }) {
                        self.work.batch = (batch.len() / 2).max(1);
                    } else {
                        batch = self.without_settled(batch).await;
                    }
                    let half = batch.split_off(batch.len() / 2);
                    parts.extend([half, batch].into_iter().filter(|part| !part.is_empty()));
                }
                Sent::Later => return,
            }
        }
    }

    /// Sends a batch, which goes whole or not at all.
    async fn send(&self, batch: &Batch) -> Sent {
        let service = batch.first().map_or(0, |(key, _)| key.service);
        let receipts: Vec<_> = batch.iter().map(|(key, receipt)| (key.call, receipt.clone())).collect();
        let invocation = calls::submit_receipts(self.chain.deployment(), service, &receipts);
        match self.sender.send(invocation).await {
            Ok(Ok(mined)) => Sent::Mined(Box::new(mined)),
            Ok(Err(error @ (SendError::Refused(_) | SendError::Reverted { .. } | SendError::TooMuchGas { .. }))) => {
                Sent::Split(error)
            }
            // It may be on its way all the same; what is sent next takes its nonce.
            Ok(Err(error)) => {
                tracing::warn!(size = batch.len(), error = %crate::error_chain(&error), "receipts not sent; trying again");
                Sent::Later
            }
            Err(stopped) => {
                tracing::debug!(%stopped, "receipts wait for the next start");
                Sent::Later
            }
        }
    }

    async fn submit_alone(&mut self, key: CallKey, receipt: &JobReceipt) {
        let fate = match self.sender.send(calls::submit_receipt(self.chain.deployment(), key, receipt)).await {
            Ok(Ok(mined)) => return self.mined(vec![key], &mined).await,
            Ok(Err(SendError::Refused(refusal))) => refused(key, &refusal),
            Ok(Err(SendError::Reverted { transaction })) => {
                tracing::warn!(call = %key, %transaction, "receipt refused in its block; trying again");
                Fate::Later
            }
            Ok(Err(error)) => {
                tracing::warn!(call = %key, error = %crate::error_chain(&error), "receipt not sent; trying again");
                return;
            }
            Err(stopped) => return tracing::debug!(call = %key, %stopped, "receipt waits for the next start"),
        };
        let height = *self.height.borrow();
        match fate {
            // When it came there is not known; where that block is taken back, it is sent again.
            Fate::Settled => self.settle(key, None, height).await,
            Fate::Refused(reason) => self.refuse(key, reason).await,
            Fate::Later => self.work.trouble(key, Instant::now()),
        }
    }

    /// The batch without what the chain has already, which is settled.
    async fn without_settled(&mut self, batch: Batch) -> Batch {
        let keys: Vec<CallKey> = batch.iter().map(|(key, _)| *key).collect();
        let asked = futures::stream::iter(keys).map(|key| {
            let asking = self.is_completed(key);
            async move { asking.await.ok().filter(|completed| *completed).map(|_| key) }
        });
        let completed: BTreeSet<CallKey> =
            asked.buffer_unordered(OUTBOX_AT_ONCE_MAX).filter_map(|key| async move { key }).collect().await;
        let height = *self.height.borrow();
        for key in &completed {
            self.settle(*key, None, height).await;
        }
        batch.into_iter().filter(|(key, _)| !completed.contains(key)).collect()
    }

    /// These receipts are in a block. They are done with once it is deep enough.
    async fn mined(&mut self, calls: Vec<CallKey>, mined: &Mined) {
        tracing::info!(receipts = calls.len(), transaction = %mined.transaction, block = mined.block, "receipts on chain");
        for key in &calls {
            self.work.forget(*key);
        }
        let (transaction, block) = (mined.transaction, mined.block);
        self.work.shallow.push(Shallow { transaction, block, calls, is_settled: false });
        self.settle_deep().await;
    }

    /// Settles what lies deep enough, and opens again what its block was taken back with.
    async fn settle_deep(&mut self) {
        let height = *self.height.borrow();
        let confirmations = self.confirmations;
        let is_deep = |sent: &Shallow| match (confirmations, sent.is_settled) {
            (0, false) => true,
            (0, true) => sent.block < height,
            (_, _) => sent.block + confirmations <= height,
        };
        let (deep, shallow) = std::mem::take(&mut self.work.shallow).into_iter().partition(is_deep);
        self.work.shallow = shallow;
        for mut sent in deep {
            let is_new = confirmations == 0 && !sent.is_settled;
            let found = if is_new { Ok(Some(sent.block)) } else { self.block_of(sent.transaction).await };
            match found {
                Ok(Some(block)) if block > sent.block => {
                    sent.block = block;
                    self.work.shallow.push(sent);
                }
                Ok(Some(_)) if sent.is_settled => {}
                Ok(Some(block)) => {
                    let settling = sent.calls.iter().map(|key| self.settle_one(*key, Some(sent.transaction), block));
                    futures::future::join_all(settling).await;
                    if is_new {
                        self.work.shallow.push(Shallow { is_settled: true, ..sent });
                    }
                }
                Ok(None) => self.reopen(sent).await,
                Err(error) => {
                    tracing::debug!(error = %crate::error_chain(&error), "receipts wait for the chain");
                    self.work.shallow.push(sent);
                }
            }
        }
    }

    async fn reopen(&mut self, sent: Shallow) {
        tracing::warn!(transaction = %sent.transaction, "the chain took receipts back; sending them again");
        if sent.is_settled {
            for key in &sent.calls {
                written(*key, self.records.unsettle(*key).await);
            }
        }
        self.work.open.extend(sent.calls);
    }

    async fn block_of(&self, transaction: B256) -> Result<Option<u64>, ReadError> {
        let question = "eth_getTransactionReceipt";
        let found = self.chain.provider().get_transaction_receipt(transaction).await;
        let found = found.map_err(|source| ReadError::Node { question, source })?;
        Ok(found.and_then(|receipt| receipt.block_number))
    }

    async fn is_completed(&self, key: CallKey) -> Result<bool, ReadError> {
        Ok(self.chain.job_call(key).await?.is_some_and(|call| call.completed))
    }

    /// The receipt that is to be sent. While it is not known whether the call is still on the chain there is none: its id may
    /// stand for another, which would take this answer for its own. It is noted again once that is known.
    fn receipt(&self, key: CallKey) -> Result<Option<JobReceipt>, RecordsError> {
        if self.records.is_suspect(key)? {
            return Ok(None);
        }
        let Some(call) = self.records.call(key)? else { return Ok(None) };
        Ok(match call.progress {
            Progress::Answered(Answer { receipt, .. }) => Some(receipt.receipt.on_chain()),
            Progress::Seen
            | Progress::Begun { .. }
            | Progress::Settled { .. }
            | Progress::Refused { .. }
            | Progress::Dropped { .. } => None,
        })
    }

    async fn settle(&mut self, key: CallKey, transaction: Option<B256>, block: u64) {
        self.work.forget(key);
        self.settle_one(key, transaction, block).await;
    }

    async fn settle_one(&self, key: CallKey, transaction: Option<B256>, block: u64) {
        let settled = async {
            let Some(mut call) = self.records.call(key)? else { return Ok(false) };
            let Progress::Answered(answer) = call.progress else { return Ok(false) };
            call.progress = Progress::Settled { answer, transaction };
            self.records.settle(&call, Some(block)).await
        };
        written(key, settled.await);
    }

    async fn refuse(&mut self, key: CallKey, reason: String) {
        tracing::warn!(call = %key, reason, "the chain takes no receipt of this call any more");
        self.work.forget(key);
        let refused = async {
            let Some(mut call) = self.records.call(key)? else { return Ok(false) };
            let Progress::Answered(answer) = call.progress else { return Ok(false) };
            call.progress = Progress::Refused { answer, reason };
            self.records.put_call(&call).await
        };
        written(key, refused.await);
    }
}

impl Work {
    /// Whether something is to be done that nobody will call for.
    fn is_waiting(&self) -> bool {
        !self.open.is_empty() || !self.troubled.is_empty() || !self.shallow.is_empty()
    }

    /// The calls whose receipt is to be tried now.
    fn due(&self, now: Instant) -> Vec<CallKey> {
        let is_due = |key: &&CallKey| self.troubled.get(key).is_none_or(|trouble| trouble.again <= now);
        self.open.iter().filter(is_due).copied().collect()
    }

    fn forget(&mut self, key: CallKey) {
        self.open.remove(&key);
        self.troubled.remove(&key);
    }

    /// The receipt was refused by itself: from now on it is tried alone, ever more seldom.
    fn trouble(&mut self, key: CallKey, now: Instant) {
        let trouble = self.troubled.entry(key).or_insert(Trouble { again: now, pause: RETRY_PAUSE_MIN });
        trouble.again = now + trouble.pause;
        trouble.pause = Duration::min(trouble.pause * 2, RETRY_PAUSE_MAX);
    }
}

fn written(key: CallKey, written: Result<bool, RecordsError>) {
    match written {
        Ok(true) => tracing::debug!(call = %key, "receipt done with"),
        Ok(false) => tracing::debug!(call = %key, "a receipt is of no use any more"),
        Err(error) => {
            tracing::error!(call = %key, error = %crate::error_chain(&error), "cannot note what became of a receipt")
        }
    }
}

/// What a refusal says of a receipt's future.
fn refused(key: CallKey, refusal: &Refusal) -> Fate {
    use ITangleCoreErrors as Core;
    match refusal {
        Refusal::Core(Core::JobAlreadyCompleted(_) | Core::ResultAlreadySubmitted(_)) => Fate::Settled,
        Refusal::Core(Core::ServiceNotActive(_) | Core::ServiceExpired(_) | Core::OperatorNotInService(_)) => {
            Fate::Refused(refusal.to_string())
        }
        _ => {
            tracing::warn!(call = %key, %refusal, "receipt refused; trying again");
            Fate::Later
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CallKey = CallKey { service: 1, call: 1 };

    #[tokio::test(start_paused = true)]
    async fn a_receipt_that_is_refused_is_tried_ever_more_seldom_and_holds_up_no_other() {
        let other = CallKey { service: 1, call: 2 };
        let mut work = Work { open: [KEY, other].into(), ..Work::default() };
        let mut waited = Vec::new();
        for _ in 0..8 {
            let now = Instant::now();
            work.trouble(KEY, now);
            assert_eq!(work.due(now), [other]);
            while !work.due(Instant::now()).contains(&KEY) {
                tokio::time::advance(RETRY_PAUSE_MIN).await;
            }
            waited.push(now.elapsed().as_millis());
        }
        assert_eq!(waited, [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
        work.forget(KEY);
        assert!(work.troubled.is_empty() && work.due(Instant::now()) == [other]);
    }
}
