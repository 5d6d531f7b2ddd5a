//! Calls from the chain, each delivered until it is answered.
//!
//! A block range is read in one wide query, halved when the node refuses it; the calls in it and the cursor behind it are
//! written together. So a call is either on disk or will be read again, however long the operator was away. Calls that the
//! contract assigned to somebody else are left alone.

use alloy::primitives::Address;
use alloy::providers::Provider as _;
use alloy::rpc::types::{Filter, Log};
use alloy::sol_types::SolEvent;
use alloy::transports::TransportError;
use sandbox_fleet::Fleet;
use sandbox_protocol::CallKey;
use sandbox_sdk::Chain;
use sandbox_sdk::contracts::ITangleCore::{JobSubmitted, JobSubmittedFromQuote, ServiceRequested, ServiceTerminated};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::outbox::Outbox;
use super::until_answered;
use crate::limits::LOG_RANGE_BLOCKS_MAX;
use crate::records::{CallRecord, Progress, Records, RecordsError};

/// A recorded call that is to be answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DueCall {
    pub(crate) key: CallKey,
    pub(crate) job: u8,
}

/// Reads the chain and feeds whoever acts on it.
pub(crate) struct Source {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) fleet: Fleet,
    pub(crate) outbox: Outbox,
    pub(crate) me: Address,
    /// Only this service, where one is named.
    pub(crate) service: Option<u64>,
    /// Blocks that a block must have on top of it before it is believed.
    pub(crate) confirmations: u64,
    /// To the job router.
    pub(crate) calls: mpsc::Sender<DueCall>,
    /// To the approvals.
    pub(crate) requests: mpsc::Sender<u64>,
}

/// What a block range held.
#[derive(Default)]
struct Found {
    calls: Vec<CallRecord>,
    requests: Vec<u64>,
    ended: Vec<u64>,
}

impl Source {
    /// Resumes what a former life left open, then reads on until `stop`.
    pub(crate) async fn run(self, head: watch::Receiver<u64>, stop: CancellationToken) {
        let reading = async {
            if let Err(error) = self.resume().await {
                tracing::error!(error = %crate::error_chain(&error), "cannot read the open calls");
            }
            self.follow(head).await
        };
        tokio::select! {
            () = stop.cancelled() => {}
            ended = reading => {
                if let Err(error) = ended {
                    tracing::error!(error = %crate::error_chain(&error), "reading the chain ended");
                }
            }
        }
    }

    async fn resume(&self) -> Result<(), RecordsError> {
        let mut open = self.records.open_calls()?;
        open.sort_by_key(|call| call.block);
        for call in open {
            match call.progress {
                Progress::Answered(_) => self.outbox.notify(call.key),
                Progress::Seen | Progress::Begun { .. } => self.resume_call(call).await?,
                Progress::Settled { .. } | Progress::Dropped { .. } => {}
            }
        }
        Ok(())
    }

    /// Hands an unanswered call on, unless the chain positively says that it was answered without this record.
    async fn resume_call(&self, mut call: CallRecord) -> Result<(), RecordsError> {
        let assignment = until_answered("assignment", || self.chain.assignment(call.key)).await;
        let mine = assignment.as_ref().is_some_and(|assignment| assignment.operator == self.me);
        let answered = assignment.as_ref().is_some_and(|assignment| assignment.answered);
        if mine && !answered {
            self.hand_on(&call).await;
            return Ok(());
        }
        tracing::warn!(call = %call.key, mine, answered, "an open call is no longer this operator's to answer");
        let reason = if answered { "answered already" } else { "assigned to another operator" };
        call.progress = Progress::Dropped { reason: reason.into() };
        self.records.put_call(&call).await
    }

    async fn follow(&self, mut head: watch::Receiver<u64>) -> Result<(), RecordsError> {
        let mut next = match self.records.cursor()? {
            Some(cursor) => cursor,
            None => self.first_block().await,
        };
        loop {
            let height = *head.borrow_and_update();
            self.fleet.head(height).await;
            let last = height.saturating_sub(self.confirmations);
            while next <= last {
                next = self.read(next, last.min(next + LOG_RANGE_BLOCKS_MAX - 1)).await?;
            }
            if head.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    async fn first_block(&self) -> u64 {
        let blueprint = self.chain.blueprint();
        until_answered("deployed block", || async { blueprint.deployedBlock().call().await }).await
    }

    /// Takes in `from..=to`, or as much of it as the node serves; returns the block behind.
    async fn read(&self, from: u64, mut to: u64) -> Result<u64, RecordsError> {
        let logs = loop {
            match self.logs(from, to).await {
                Ok(logs) => break logs,
                // A range that is too wide for the node is halved; a single block is asked for until it comes.
                Err(error) if to > from && error.is_error_resp() => to = from + (to - from) / 2,
                Err(_) => break until_answered("logs", || self.logs(from, to)).await,
            }
        };
        let mut found = Found::default();
        for log in &logs {
            self.sort(log, &mut found).await;
        }
        self.records.take_in(&found.calls, to + 1).await?;
        for call in found.calls {
            tracing::info!(call = %call.key, job = call.job, block = call.block, "call taken in");
            self.hand_on(&call).await;
        }
        for request in found.requests {
            if self.requests.send(request).await.is_err() {
                tracing::debug!(request, "approvals have stopped");
            }
        }
        for service in found.ended {
            self.fleet.service_ended(service).await;
        }
        Ok(to + 1)
    }

    async fn logs(&self, from: u64, to: u64) -> Result<Vec<Log>, TransportError> {
        let filter =
            Filter::new().address(self.chain.deployment().core).from_block(from).to_block(to).event_signature(vec![
                JobSubmitted::SIGNATURE_HASH,
                JobSubmittedFromQuote::SIGNATURE_HASH,
                ServiceRequested::SIGNATURE_HASH,
                ServiceTerminated::SIGNATURE_HASH,
            ]);
        self.chain.provider().get_logs(&filter).await
    }

    async fn sort(&self, log: &Log, found: &mut Found) {
        let block = log.block_number.unwrap_or_default();
        if let Ok(event) = log.log_decode::<JobSubmitted>() {
            let event = event.inner.data;
            let key = CallKey { service: event.serviceId, call: event.callId };
            let call = CallRecord::seen(key, event.jobIndex, event.caller, event.inputs, block);
            found.calls.extend(self.mine(call).await);
        } else if let Ok(event) = log.log_decode::<JobSubmittedFromQuote>() {
            let event = event.inner.data;
            let key = CallKey { service: event.serviceId, call: event.callId };
            let call = CallRecord::seen(key, event.jobIndex, event.caller, event.inputs, block);
            found.calls.extend(self.mine(call).await);
        } else if let Ok(event) = log.log_decode::<ServiceRequested>() {
            if event.inner.blueprintId == self.chain.deployment().blueprint_id {
                found.requests.push(event.inner.requestId);
            }
        } else if let Ok(event) = log.log_decode::<ServiceTerminated>() {
            found.ended.push(event.inner.serviceId);
        }
    }

    /// The call, if the contract says that this operator must answer it. Services of other blueprints have no assignment.
    async fn mine(&self, call: CallRecord) -> Option<CallRecord> {
        if self.service.is_some_and(|service| service != call.key.service) {
            return None;
        }
        let assignment = until_answered("assignment", || self.chain.assignment(call.key)).await?;
        (assignment.operator == self.me && !assignment.answered).then_some(call)
    }

    async fn hand_on(&self, call: &CallRecord) {
        if self.calls.send(DueCall { key: call.key, job: call.job }).await.is_err() {
            tracing::debug!(call = %call.key, "the job router has stopped");
        }
    }
}
