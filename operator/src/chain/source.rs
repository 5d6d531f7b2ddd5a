//! Calls from the chain, each delivered until it is answered.
//!
//! A block range is read in one wide query, halved when the node refuses it; the calls in it and the cursor behind it are
//! written together. So a call is either on disk or will be read again, however long the operator was away. Calls that the
//! contract assigned to somebody else are left alone, until they are taken from that one and given to this.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use alloy::primitives::Address;
use alloy::providers::Provider as _;
use alloy::rpc::types::{Filter, Log};
use alloy::sol_types::SolEvent;
use alloy::transports::TransportError;
use futures::{StreamExt as _, TryStreamExt as _};
use sandbox_fleet::Fleet;
use sandbox_protocol::CallKey;
use sandbox_sdk::Chain;
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{Assignment, CallReassigned};
use sandbox_sdk::contracts::ITangleCore::{JobSubmitted, JobSubmittedFromQuote, ServiceTerminated};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::outbox::Outbox;
use super::until_answered;
use crate::limits::{
    CALL_QUEUE_MAX, EXPIRY_GRACE_BLOCKS_MAX, KNOWN_SERVICES_MAX, LOG_RANGE_BLOCKS_MAX, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN,
};
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
    /// Whether a service is of another blueprint, for those that were asked for.
    pub(crate) services: Mutex<HashMap<u64, bool>>,
}

/// Why the chain does not say what a call is.
#[derive(Debug, thiserror::Error)]
enum LookupError {
    /// The logs were not read.
    #[error("the logs were not read")]
    Logs(#[source] TransportError),
    /// The node knows of none, though its own log speaks of it.
    #[error("the node does not know it yet")]
    NotYet,
    /// The chain was not asked.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// What a block range held.
#[derive(Default)]
struct Found {
    calls: Vec<CallRecord>,
    ended: Vec<u64>,
}

impl Source {
    /// Resumes what a former life left open, then reads on until `stop`.
    ///
    /// Ends early only where records cannot be read or written; a node that then went on would be deaf.
    pub(crate) async fn run(self, head: watch::Receiver<u64>, stop: CancellationToken) -> Result<(), RecordsError> {
        // Side by side: an old call that the node does not know yet holds up no new one.
        let reading = futures::future::try_join(self.resume(), self.follow(head));
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            ended = reading => ended.map(drop),
        }
    }

    async fn resume(&self) -> Result<(), RecordsError> {
        let mut open = self.records.open_calls()?;
        open.sort_by_key(|call| call.block);
        let resuming = futures::stream::iter(open).map(|call| async {
            match call.progress {
                Progress::Answered(_) => self.outbox.notify(call.key),
                Progress::Seen | Progress::Begun { .. } => self.resume_call(call).await?,
                Progress::Settled { .. } | Progress::Refused { .. } | Progress::Dropped { .. } => {}
            }
            Ok(())
        });
        resuming.buffer_unordered(CALL_QUEUE_MAX).try_collect().await
    }

    /// Hands an unanswered call on, unless the chain positively says that it is not, or no more, this operator's to answer.
    async fn resume_call(&self, mut call: CallRecord) -> Result<(), RecordsError> {
        let assignment = until_answered("assignment", || self.assignment(call.key)).await;
        if until_answered("part", || self.is_due(call.key, &assignment)).await {
            self.hand_on(&call).await;
            return Ok(());
        }
        let reason = if assignment.answered { "answered already" } else { "assigned to another operator" };
        tracing::warn!(call = %call.key, reason, "an open call is dropped");
        call.progress = Progress::Dropped { reason: reason.into() };
        self.records.put_call(&call).await
    }

    /// The assignment of a call that there is. A node that knows of none is behind.
    async fn assignment(&self, key: CallKey) -> Result<Assignment, LookupError> {
        self.chain.assignment(key).await?.ok_or(LookupError::NotYet)
    }

    async fn follow(&self, mut head: watch::Receiver<u64>) -> Result<(), RecordsError> {
        let mut next = match self.records.cursor()? {
            Some(cursor) => cursor,
            None => self.first_block().await,
        };
        loop {
            let last = head.borrow_and_update().saturating_sub(self.confirmations);
            while next <= last {
                next = self.read(next, last.min(next + LOG_RANGE_BLOCKS_MAX - 1)).await?;
            }
            self.fleet.head(self.settled_height(last)?).await;
            if head.changed().await.is_err() {
                return Ok(());
            }
        }
    }

    /// The height up to which calls are answered: one that came before a sandbox expired finds it alive. A call that stays
    /// open holds up expiry for a while, not for ever.
    fn settled_height(&self, last: u64) -> Result<u64, RecordsError> {
        let open = self.records.open_calls()?;
        let unanswered = open.iter().filter(|call| call.answer().is_none()).map(|call| call.block);
        let oldest = unanswered.filter(|block| block + EXPIRY_GRACE_BLOCKS_MAX > last).min();
        Ok(oldest.map_or(last, |block| block.min(last)))
    }

    async fn first_block(&self) -> u64 {
        let blueprint = self.chain.blueprint();
        until_answered("deployed block", || async { blueprint.deployedBlock().call().await }).await
    }

    /// Takes in `from..=to`, or as much of it as the node serves; returns the block behind.
    async fn read(&self, from: u64, mut to: u64) -> Result<u64, RecordsError> {
        let mut pause = RETRY_PAUSE_MIN;
        let found = loop {
            match self.look(from, to).await {
                Ok(found) => break found,
                // The range may be too wide for the node, or too long for its patience. The logs are read again too: what
                // they spoke of may be gone from the chain.
                Err(error) => {
                    tracing::warn!(from, to, error = %crate::error_chain(&error), "no answer; asking for less");
                    to = from + (to - from) / 2;
                    tokio::time::sleep(pause).await;
                    pause = Duration::min(pause * 2, RETRY_PAUSE_MAX);
                }
            }
        };
        self.records.take_in(&found.calls, to + 1).await?;
        for call in found.calls {
            tracing::info!(call = %call.key, job = call.job, block = call.block, "call taken in");
            self.hand_on(&call).await;
        }
        for service in found.ended {
            self.fleet.service_ended(service).await;
        }
        Ok(to + 1)
    }

    async fn look(&self, from: u64, to: u64) -> Result<Found, LookupError> {
        let mut found = Found::default();
        for log in self.logs(from, to).await.map_err(LookupError::Logs)? {
            if let Some(call) = submitted(&log) {
                found.calls.extend(self.mine(call).await?);
            } else if let Some((key, block)) = reassigned(&log) {
                found.calls.extend(self.taken_over(key, block).await?);
            } else if let Ok(event) = log.log_decode::<ServiceTerminated>() {
                found.ended.push(event.inner.serviceId);
            }
        }
        Ok(found)
    }

    async fn logs(&self, from: u64, to: u64) -> Result<Vec<Log>, TransportError> {
        let deployment = self.chain.deployment();
        let addresses = vec![deployment.core, deployment.manager];
        let filter = Filter::new().address(addresses).from_block(from).to_block(to).event_signature(vec![
            JobSubmitted::SIGNATURE_HASH,
            JobSubmittedFromQuote::SIGNATURE_HASH,
            ServiceTerminated::SIGNATURE_HASH,
            CallReassigned::SIGNATURE_HASH,
        ]);
        self.chain.provider().get_logs(&filter).await
    }

    /// The call, if the contract says that this operator must answer it.
    async fn mine(&self, call: CallRecord) -> Result<Option<CallRecord>, LookupError> {
        let service = call.key.service;
        if self.service.is_some_and(|only| only != service) || self.is_foreign(service).await? {
            return Ok(None);
        }
        let assignment = self.assignment(call.key).await?;
        Ok(self.is_due(call.key, &assignment).await?.then_some(call))
    }

    /// A call that was another operator's until `block`, where it is this one's now. What was asked stands in a log of long ago.
    async fn taken_over(&self, key: CallKey, block: u64) -> Result<Option<CallRecord>, LookupError> {
        if self.assignment(key).await?.operator != self.me {
            return Ok(None);
        }
        let asked = self.chain.submission(key).await?.ok_or(LookupError::NotYet)?;
        self.mine(CallRecord::seen(key, asked.job, asked.caller, asked.inputs, block)).await
    }

    /// Whether the contract waits for this operator's answer. Of a batch it may be one of many.
    async fn is_due(&self, key: CallKey, assignment: &Assignment) -> Result<bool, LookupError> {
        if assignment.parts == 0 {
            return Ok(assignment.operator == self.me && !assignment.answered);
        }
        let parts = self.chain.parts(key).await?;
        Ok(parts.iter().any(|part| part.operator == self.me && !part.answered))
    }

    /// Whether the service is of another blueprint. It has a call, so a node that does not know it is behind.
    async fn is_foreign(&self, service: u64) -> Result<bool, LookupError> {
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

    fn services(&self) -> MutexGuard<'_, HashMap<u64, bool>> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn hand_on(&self, call: &CallRecord) {
        if self.calls.send(DueCall { key: call.key, job: call.job }).await.is_err() {
            tracing::debug!(call = %call.key, "the job router has stopped");
        }
    }
}

/// The call that a log says has moved to another operator.
fn reassigned(log: &Log) -> Option<(CallKey, u64)> {
    let event = log.log_decode::<CallReassigned>().ok()?.inner.data;
    Some((CallKey { service: event.serviceId, call: event.callId }, log.block_number?))
}

/// The call that a log tells of, by either of the core's two events.
fn submitted(log: &Log) -> Option<CallRecord> {
    let block = log.block_number?;
    if let Ok(event) = log.log_decode::<JobSubmitted>() {
        let event = event.inner.data;
        let key = CallKey { service: event.serviceId, call: event.callId };
        return Some(CallRecord::seen(key, event.jobIndex, event.caller, event.inputs, block));
    }
    let event = log.log_decode::<JobSubmittedFromQuote>().ok()?.inner.data;
    let key = CallKey { service: event.serviceId, call: event.callId };
    Some(CallRecord::seen(key, event.jobIndex, event.caller, event.inputs, block))
}
