//! Receipts on their way to the chain.
//!
//! As a consumer of the blueprint runner this is a sink that never fails: it only notes which call was answered; the
//! answer itself is on disk. One task turns answers into transactions, several of a service at a time, and keeps trying
//! until the chain has each or positively will not take it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use alloy::primitives::B256;
use alloy::providers::Provider as _;
use blueprint_sdk::JobResult;
use blueprint_sdk::tangle::extract::{CallId, ServiceId};
use futures::Sink;
use sandbox_protocol::CallKey;
use sandbox_protocol::abi::JobReceipt;
use sandbox_sdk::Chain;
use sandbox_sdk::calls;
use sandbox_sdk::chain::{ReadError, SendError};
use sandbox_sdk::contracts::ITangleCore::ITangleCoreErrors;
use sandbox_sdk::reverts::Refusal;
use tokio::sync::mpsc;

use super::sender::Sender;
use super::until_answered;
use crate::limits::{OUTBOX_BATCH_MAX, OUTBOX_QUEUE_MAX, OUTBOX_RESCAN, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
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
}

/// What became of a receipt.
enum Fate {
    Settled(Option<B256>),
    Refused(String),
    Later,
}

impl Outbox {
    /// An outbox and its task.
    pub(crate) fn new(chain: Chain, records: Records, sender: Sender) -> (Self, OutboxTask) {
        let (sender_of_notes, notes) = mpsc::channel(OUTBOX_QUEUE_MAX);
        (Self { notes: sender_of_notes }, OutboxTask { chain, records, sender, notes })
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
    /// Submits until nobody can answer any more.
    pub(crate) async fn run(mut self) {
        let mut open = BTreeSet::new();
        let mut pause = RETRY_PAUSE_MIN;
        let mut rescan = tokio::time::interval(OUTBOX_RESCAN);
        loop {
            let mut noted = Vec::new();
            tokio::select! {
                received = self.notes.recv_many(&mut noted, OUTBOX_BATCH_MAX) => match received {
                    0 => return,
                    _ => open.extend(noted),
                },
                _ = rescan.tick() => open.extend(self.rescan()),
                () = tokio::time::sleep(pause), if !open.is_empty() => {}
            }
            let before = open.len();
            self.submit(&mut open).await;
            let moved = open.is_empty() || open.len() < before;
            pause = if moved { RETRY_PAUSE_MIN } else { Duration::min(pause * 2, RETRY_PAUSE_MAX) };
        }
    }

    fn rescan(&self) -> Vec<CallKey> {
        match self.records.open_calls() {
            Ok(calls) => calls.into_iter().filter(|call| call.answer().is_some()).map(|call| call.key).collect(),
            Err(error) => {
                tracing::error!(error = %crate::error_chain(&error), "cannot read the open calls");
                Vec::new()
            }
        }
    }

    /// Tries every open receipt once; those that have a fate leave.
    async fn submit(&self, open: &mut BTreeSet<CallKey>) {
        let mut by_service: BTreeMap<u64, Vec<(CallKey, JobReceipt)>> = BTreeMap::new();
        for key in std::mem::take(open) {
            match self.receipt(key) {
                Ok(Some(receipt)) => by_service.entry(key.service).or_default().push((key, receipt)),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(call = %key, error = %crate::error_chain(&error), "cannot read an answer")
                }
            }
        }
        for receipts in by_service.values() {
            for batch in receipts.chunks(OUTBOX_BATCH_MAX) {
                open.extend(self.submit_batch(batch).await);
            }
        }
    }

    /// Submits a batch; returns what is to be tried again. One bad receipt reverts a whole batch, so that is then split.
    async fn submit_batch(&self, batch: &[(CallKey, JobReceipt)]) -> Vec<CallKey> {
        if let [first, _, ..] = batch {
            let receipts: Vec<_> = batch.iter().map(|(key, receipt)| (key.call, receipt.clone())).collect();
            let invocation = calls::submit_receipts(self.chain.deployment(), first.0.service, &receipts);
            match self.sender.send(invocation).await {
                Ok(Ok(mined)) => {
                    for (key, _) in batch {
                        self.settle(*key, Fate::Settled(Some(mined.transaction))).await;
                    }
                    return Vec::new();
                }
                Ok(Err(SendError::NotMined { transaction, .. } | SendError::Receipt { transaction, .. })) => {
                    self.wait_out(transaction).await;
                    return batch.iter().map(|(key, _)| *key).collect();
                }
                Ok(Err(error @ (SendError::Refused(_) | SendError::Reverted { .. }))) => {
                    tracing::debug!(error = %crate::error_chain(&error), "batch not taken; one by one");
                }
                // It may be on its way all the same.
                Ok(Err(error)) => {
                    tracing::warn!(error = %crate::error_chain(&error), "batch not sent; trying again");
                    return batch.iter().map(|(key, _)| *key).collect();
                }
                Err(stopped) => {
                    tracing::debug!(%stopped, "batch waits for the next start");
                    return batch.iter().map(|(key, _)| *key).collect();
                }
            }
        }
        let mut later = Vec::new();
        for (key, receipt) in batch {
            match self.submit_one(*key, receipt).await {
                Fate::Later => later.push(*key),
                fate => self.settle(*key, fate).await,
            }
        }
        later
    }

    async fn submit_one(&self, key: CallKey, receipt: &JobReceipt) -> Fate {
        match self.is_completed(key).await {
            Ok(true) => return Fate::Settled(None),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(call = %key, error = %crate::error_chain(&error), "receipt waits for the chain");
                return Fate::Later;
            }
        }
        let invocation = calls::submit_receipt(self.chain.deployment(), key, receipt);
        match self.sender.send(invocation).await {
            Ok(Ok(mined)) => Fate::Settled(Some(mined.transaction)),
            Ok(Err(SendError::Refused(refusal))) => refused(key, &refusal),
            Ok(Err(SendError::NotMined { transaction, .. } | SendError::Receipt { transaction, .. })) => {
                self.wait_out(transaction).await;
                Fate::Later
            }
            Ok(Err(error)) => {
                tracing::warn!(call = %key, error = %crate::error_chain(&error), "receipt not taken; trying again");
                Fate::Later
            }
            Err(stopped) => {
                tracing::debug!(call = %key, %stopped, "receipt waits for the next start");
                Fate::Later
            }
        }
    }

    /// Waits until a sent transaction is in a block or forgotten: a second one for the same receipts would be paid for in vain.
    async fn wait_out(&self, transaction: B256) {
        let provider = self.chain.provider();
        while until_answered("transaction", || provider.get_transaction_by_hash(transaction))
            .await
            .is_some_and(|found| found.block_number.is_none())
        {
            tracing::warn!(%transaction, "receipts wait for a transaction that is in no block yet");
            tokio::time::sleep(RETRY_PAUSE_MAX).await;
        }
    }

    async fn is_completed(&self, key: CallKey) -> Result<bool, ReadError> {
        Ok(self.chain.job_call(key).await?.is_some_and(|call| call.completed))
    }

    fn receipt(&self, key: CallKey) -> Result<Option<JobReceipt>, RecordsError> {
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

    async fn settle(&self, key: CallKey, fate: Fate) {
        let settled = async {
            let Some(mut call) = self.records.call(key)? else { return Ok(()) };
            let Progress::Answered(answer) = call.progress else { return Ok(()) };
            call.progress = match fate {
                Fate::Settled(transaction) => Progress::Settled { answer, transaction },
                Fate::Refused(reason) => {
                    tracing::warn!(call = %key, reason, "the chain takes no receipt of this call any more");
                    Progress::Refused { answer, reason }
                }
                Fate::Later => Progress::Answered(answer),
            };
            self.records.put_call(&call).await
        };
        match settled.await {
            Ok(()) => tracing::info!(call = %key, "receipt done with"),
            Err(error) => {
                let error: RecordsError = error;
                tracing::error!(call = %key, error = %crate::error_chain(&error), "cannot note a settled receipt");
            }
        }
    }
}

/// What a refusal says of a receipt's future.
fn refused(key: CallKey, refusal: &Refusal) -> Fate {
    use ITangleCoreErrors as Core;
    match refusal {
        Refusal::Core(Core::JobAlreadyCompleted(_) | Core::ResultAlreadySubmitted(_)) => Fate::Settled(None),
        Refusal::Core(Core::ServiceNotActive(_) | Core::ServiceExpired(_) | Core::OperatorNotInService(_)) => {
            Fate::Refused(refusal.to_string())
        }
        _ => {
            tracing::warn!(call = %key, %refusal, "receipt refused; trying again");
            Fate::Later
        }
    }
}
