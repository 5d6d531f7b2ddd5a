//! Events that fire workflows: logs of contracts in blocks that are believed, and what happens to the owners' sandboxes here.
//!
//! How far both were looked at is on disk, so what happens while the process is away fires when it is back, as far as it looks back. An
//! event is named by where it stands, so it fires once.

use std::collections::BTreeMap;
use std::sync::Arc;

use alloy::primitives::{Address, B256};
use alloy::rpc::types::Log;
use futures::StreamExt as _;
use sandbox_fleet::workflow::Value;
use sandbox_protocol::workflow::{Cause, EventSource, LifecycleEvent, LogFilter};
use sandbox_protocol::{CallKey, SandboxId};
use serde::Serialize;

use super::error::WorkflowError;
use super::logs::{self, Place};
use super::{Fired, Shared};
use crate::limits::{
    LOG_RANGE_BLOCKS_MAX, WORKFLOW_EVENTS_READ_MAX, WORKFLOW_FIRING_AT_ONCE_MAX, WORKFLOW_LOG_DATA_BYTES_MAX,
    WORKFLOW_LOGS_EACH_MAX, WORKFLOW_WATCH_BLOCKS_MAX,
};
use crate::records::{EventRecord, RecordsError, Watched};

/// A workflow that waits for logs.
struct Filtering {
    key: CallKey,
    filter: LogFilter,
    /// Logs of blocks up to this one are nobody's to fire for.
    since_block: u64,
}

/// Who waits for logs, by what the node is asked for.
type Filters = BTreeMap<Place, Vec<Filtering>>;

/// What fires a workflow of the logs that were read at a time.
#[derive(Default)]
struct Batch {
    logs: Vec<Log>,
    /// How many more there are.
    left_out: usize,
}

/// How far logs were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looked {
    /// Nobody waits for any.
    Nowhere,
    /// As far as the chain is believed.
    Through,
    /// As far as one question brings; the next brings further.
    OnTheWay,
    /// No further: the node gives none now.
    Refused,
}

/// A workflow that waits for an event of a sandbox.
struct Waiting {
    key: CallKey,
    event: LifecycleEvent,
    /// What happened before is nobody's to fire for.
    since_s: i64,
}

/// What a log brings to the run that it fires.
#[derive(Debug, Serialize)]
struct LogBody {
    address: Address,
    topics: Vec<B256>,
    data: String,
    /// Whether the log has more data than that.
    is_data_cut: bool,
    block: u64,
    transaction: Option<B256>,
}

/// What an event of a sandbox brings.
#[derive(Debug, Serialize)]
struct LifecycleBody {
    sandbox: SandboxId,
    event: String,
    reason: Option<String>,
    time_ms: u64,
}

impl Shared {
    /// Fires for events, as they come.
    pub(super) async fn watch_events(self: &Arc<Self>) {
        let (mut looks, mut own) = (self.parts.looks.clone(), self.parts.records.last_event());
        let begun = self.parts.records.watched().unwrap_or_else(|error| {
            tracing::error!(error = %crate::error_chain(&error), "what was watched cannot be read");
            None
        });
        let mut watched = begun.unwrap_or(Watched { block: self.believed() + 1, event: *own.borrow() });
        let mut width = LOG_RANGE_BLOCKS_MAX;
        loop {
            let before = watched;
            // What is not fired on an old sight of the chain is looked at when there is a fresh one.
            if self.blind().is_none() {
                let looked = self.watch_logs(&mut watched, &mut width).await;
                let is_watching = self.watch_own(&mut watched).await | (looked != Looked::Nowhere);
                // Who watches nothing writes nothing: with every block there is news.
                if is_watching && before != watched {
                    self.keep(watched).await;
                }
                if looked == Looked::OnTheWay {
                    continue;
                }
            }
            let changed = tokio::select! {
                changed = looks.changed() => changed,
                changed = own.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    }

    async fn keep(&self, watched: Watched) {
        if let Err(error) = self.parts.records.put_watched(watched).await {
            tracing::error!(error = %crate::error_chain(&error), "what was watched is not written");
        }
    }

    /// Fires for the logs of the next blocks that are believed: of at most `width`, which comes to be what the node gives at once.
    pub(super) async fn watch_logs(self: &Arc<Self>, watched: &mut Watched, width: &mut u64) -> Looked {
        let believed = self.believed();
        let filters = self.log_filters();
        if filters.is_empty() {
            watched.block = believed + 1;
            return Looked::Nowhere;
        }
        let oldest = (believed + 1).saturating_sub(WORKFLOW_WATCH_BLOCKS_MAX);
        if watched.block < oldest {
            tracing::warn!(from = watched.block, to = oldest, "logs of so long ago fire nothing any more");
            watched.block = oldest;
        }
        if watched.block > believed {
            return Looked::Through;
        }
        let places: Vec<Place> = filters.keys().copied().collect();
        let (from, wished) = (watched.block, believed.min(watched.block + *width - 1));
        let read = match logs::read(&self.parts.chain, &places, (from, wished)).await {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(from, %error, "logs that may fire are not read; asking again");
                return Looked::Refused;
            }
        };
        *width = if read.to < wished { read.to - from + 1 } else { LOG_RANGE_BLOCKS_MAX.min(*width * 2) };
        self.fire_for_logs(&filters, read.logs).await;
        watched.block = read.to + 1;
        if read.to < believed { Looked::OnTheWay } else { Looked::Through }
    }

    fn log_filters(&self) -> Filters {
        let mut filters = Filters::new();
        for (key, known) in self.table().iter() {
            if let Some(EventSource::Log(filter)) = known.event() {
                let filtering = Filtering { key, filter: filter.clone(), since_block: known.standing.since_block };
                filters.entry((filter.address, filter.topic)).or_default().push(filtering);
            }
        }
        filters
    }

    /// Fires each workflow for its logs in their order, and many workflows at a time.
    async fn fire_for_logs(self: &Arc<Self>, filters: &Filters, logs: Vec<Log>) {
        let mut due: BTreeMap<CallKey, Batch> = BTreeMap::new();
        for log in logs {
            let place = log.topic0().map(|topic| (log.address(), *topic));
            let waiting = place.and_then(|place| filters.get(&place)).into_iter().flatten();
            for filtering in waiting.filter(|filtering| filtering.is_for(&log)) {
                let batch = due.entry(filtering.key).or_default();
                if batch.logs.len() < WORKFLOW_LOGS_EACH_MAX {
                    batch.logs.push(log.clone());
                } else {
                    batch.left_out += 1;
                }
            }
        }
        let firing = futures::stream::iter(due).map(|(key, batch)| self.fire_for_batch(key, batch));
        firing.buffer_unordered(WORKFLOW_FIRING_AT_ONCE_MAX).collect::<Vec<()>>().await;
    }

    async fn fire_for_batch(self: &Arc<Self>, key: CallKey, Batch { logs, left_out }: Batch) {
        if left_out > 0 {
            tracing::warn!(workflow = %key, left_out, "more logs than fire a workflow at a time: the last fire nothing");
        }
        for log in logs {
            let Some((name, body)) = told(&log) else { continue };
            self.fire_for_event(key, name, Value::of(&body)).await;
        }
    }

    /// Fires for what happened to sandboxes; whether any workflow waits for that.
    pub(super) async fn watch_own(self: &Arc<Self>, watched: &mut Watched) -> bool {
        let last = *self.parts.records.last_event().borrow();
        let waiting = self.lifecycle_filters();
        if waiting.is_empty() {
            watched.event = last;
            return false;
        }
        let after = watched.event;
        let watching = futures::stream::iter(waiting)
            .map(|(owner, workflows)| self.watch_owner(owner, workflows, (after, last)))
            .buffer_unordered(WORKFLOW_FIRING_AT_ONCE_MAX);
        let ended: Vec<Result<(), RecordsError>> = watching.collect().await;
        match ended.into_iter().find_map(Result::err) {
            None => watched.event = last,
            Some(error) => {
                tracing::error!(error = %crate::error_chain(&error), "events of sandboxes cannot be read");
            }
        }
        true
    }

    fn lifecycle_filters(&self) -> BTreeMap<Address, Vec<Waiting>> {
        let mut waiting: BTreeMap<Address, Vec<_>> = BTreeMap::new();
        for (key, known) in self.table().iter() {
            if let Some(EventSource::Lifecycle(event)) = known.event() {
                let since_s = known.standing.since_s;
                waiting.entry(known.row.owner).or_default().push(Waiting { key, event: event.clone(), since_s });
            }
        }
        waiting
    }

    async fn watch_owner(
        self: &Arc<Self>,
        owner: Address,
        workflows: Vec<Waiting>,
        (mut after, last): (u64, u64),
    ) -> Result<(), RecordsError> {
        loop {
            let events = self.parts.records.events(owner, after, WORKFLOW_EVENTS_READ_MAX)?;
            for event in events.iter().filter(|event| event.seq <= last) {
                if !self.is_made_here(event.happened.sandbox)? {
                    self.fire_for_sandbox(&workflows, event).await;
                }
            }
            match events.last() {
                Some(event) if event.seq < last => after = event.seq,
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// Whether a sandbox was made in the course of a call or run: it fires nothing, or a workflow might fire itself. One that is
    /// forgotten may have been.
    fn is_made_here(&self, sandbox: SandboxId) -> Result<bool, RecordsError> {
        Ok(self.parts.records.sandbox(sandbox)?.is_none_or(|sandbox| sandbox.child.is_some()))
    }

    async fn fire_for_sandbox(self: &Arc<Self>, workflows: &[Waiting], event: &EventRecord) {
        let name = format!("sandbox.{}", event.happened.phase);
        for Waiting { key, event: wanted, since_s } in workflows {
            let is_of = wanted.sandbox.is_none_or(|sandbox| sandbox == event.happened.sandbox);
            let is_before = i64::try_from(event.time_ms / 1_000).is_ok_and(|time_s| time_s < *since_s);
            if !is_of || is_before || wanted.name != name {
                continue;
            }
            let body = LifecycleBody {
                sandbox: event.happened.sandbox,
                event: name.clone(),
                reason: event.happened.reason.clone(),
                time_ms: event.time_ms,
            };
            self.fire_for_event(*key, event.seq.to_string(), Value::of(&body)).await;
        }
    }

    async fn fire_for_event(self: &Arc<Self>, key: CallKey, event: String, body: Value) {
        let cause = Cause::Event { event };
        match self.fire(key, Fired { cause, body, seal: None }).await {
            Ok(_) | Err(WorkflowError::Unknown | WorkflowError::Paused) => {}
            Err(error) => {
                tracing::error!(workflow = %key, error = %crate::error_chain(&error), "an event fires nothing");
            }
        }
    }
}

impl Filtering {
    /// Whether a log of its place is one that it waits for.
    fn is_for(&self, log: &Log) -> bool {
        let topics = log.topics();
        let fits =
            |(index, field): (usize, &Option<B256>)| field.is_none_or(|field| topics.get(index + 1) == Some(&field));
        let is_new = log.block_number.is_some_and(|block| block > self.since_block);
        is_new && self.filter.fields.iter().enumerate().all(fits)
    }
}

/// What names a log that is in a block, and what its run is told of it.
fn told(log: &Log) -> Option<(String, LogBody)> {
    let (block, hash, index) = (log.block_number?, log.block_hash?, log.log_index?);
    let data = &log.data().data;
    let kept = data.get(..WORKFLOW_LOG_DATA_BYTES_MAX).unwrap_or(data);
    let body = LogBody {
        address: log.address(),
        topics: log.topics().to_vec(),
        data: format!("0x{}", hex::encode(kept)),
        is_data_cut: kept.len() < data.len(),
        block,
        transaction: log.transaction_hash,
    };
    Some((format!("{hash}-{index}"), body))
}
