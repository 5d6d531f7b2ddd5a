//! Events that fire workflows: logs of contracts in blocks that are believed, and what happens to the owners' sandboxes here.
//!
//! How far both were looked at is on disk, so what happens while the process is away fires when it is back, as far as it looks back. An
//! event is named by where it stands, so it fires once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alloy::primitives::{Address, B256};
use alloy::providers::Provider as _;
use alloy::rpc::types::{Filter, Log};
use sandbox_fleet::workflow::Value;
use sandbox_protocol::workflow::{Cause, EventSource, LifecycleEvent, LogFilter};
use sandbox_protocol::{CallKey, Job, SandboxId};
use serde::Serialize;

use super::error::WorkflowError;
use super::{Fired, Shared};
use crate::limits::{LOG_RANGE_BLOCKS_MAX, WORKFLOW_EVENTS_READ_MAX, WORKFLOW_FILTERS_MAX, WORKFLOW_WATCH_BLOCKS_MAX};
use crate::records::{EventRecord, RecordsError, Watched};

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
        loop {
            let before = watched;
            // What is not fired on an old sight of the chain is looked at when there is a fresh one.
            let is_watching =
                self.blind().is_none() && (self.watch_logs(&mut watched).await | self.watch_own(&mut watched).await);
            // Who watches nothing writes nothing: with every block there is news.
            if is_watching && before != watched {
                self.keep(watched).await;
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

    /// Fires for logs up to the newest block that is believed; whether any workflow waits for some.
    async fn watch_logs(self: &Arc<Self>, watched: &mut Watched) -> bool {
        let believed = self.believed();
        let filters = self.log_filters();
        if filters.is_empty() {
            watched.block = believed + 1;
            return false;
        }
        let oldest = (believed + 1).saturating_sub(WORKFLOW_WATCH_BLOCKS_MAX);
        if watched.block < oldest {
            tracing::warn!(from = watched.block, to = oldest, "logs of so long ago fire nothing any more");
            watched.block = oldest;
        }
        while watched.block <= believed {
            let to = believed.min(watched.block + LOG_RANGE_BLOCKS_MAX - 1);
            match self.logs(&filters, (watched.block, to)).await {
                Ok(logs) => {
                    for log in logs {
                        self.fire_for_log(&filters, &log).await;
                    }
                    watched.block = to + 1;
                    self.keep(*watched).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "logs that may fire are not read; asking again");
                    break;
                }
            }
        }
        true
    }

    fn log_filters(&self) -> BTreeMap<CallKey, (LogFilter, u64)> {
        let table = self.table();
        let found = table.iter().filter_map(|(key, known)| match known.event()? {
            EventSource::Log(filter) => Some((key, (filter.clone(), known.standing.since_block))),
            EventSource::Lifecycle(_) => None,
        });
        found.collect()
    }

    /// Logs that some filter may be for, in their order.
    async fn logs(
        &self,
        filters: &BTreeMap<CallKey, (LogFilter, u64)>,
        (from, to): (u64, u64),
    ) -> Result<Vec<Log>, alloy::transports::TransportError> {
        let places: Vec<(Address, B256)> = filters
            .values()
            .map(|(filter, _)| (filter.address, filter.topic))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let mut logs = Vec::new();
        for some in places.chunks(WORKFLOW_FILTERS_MAX) {
            let addresses: Vec<Address> = some.iter().map(|(address, _)| *address).collect();
            let topics: Vec<B256> = some.iter().map(|(_, topic)| *topic).collect();
            let asked = Filter::new().from_block(from).to_block(to).address(addresses).event_signature(topics);
            logs.extend(self.parts.chain.provider().get_logs(&asked).await?);
        }
        logs.retain(|log| !log.removed);
        logs.sort_by_key(|log| (log.block_number, log.log_index));
        Ok(logs)
    }

    async fn fire_for_log(self: &Arc<Self>, filters: &BTreeMap<CallKey, (LogFilter, u64)>, log: &Log) {
        let (Some(block), Some(hash), Some(index)) = (log.block_number, log.block_hash, log.log_index) else { return };
        for (key, (filter, since_block)) in filters {
            if block <= *since_block || !matches(filter, log) {
                continue;
            }
            let body = LogBody {
                address: log.address(),
                topics: log.topics().to_vec(),
                data: log.data().data.to_string(),
                block,
                transaction: log.transaction_hash,
            };
            self.fire_for_event(*key, format!("{hash}-{index}"), Value::of(&body)).await;
        }
    }

    /// Fires for what happened to sandboxes; whether any workflow waits for that.
    async fn watch_own(self: &Arc<Self>, watched: &mut Watched) -> bool {
        let last = *self.parts.records.last_event().borrow();
        let waiting = self.lifecycle_filters();
        if waiting.is_empty() {
            watched.event = last;
            return false;
        }
        for (owner, workflows) in waiting {
            if let Err(error) = self.watch_owner(owner, &workflows, (watched.event, last)).await {
                tracing::error!(error = %crate::error_chain(&error), "events of sandboxes cannot be read");
                return true;
            }
        }
        watched.event = last;
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
        workflows: &[Waiting],
        (mut after, last): (u64, u64),
    ) -> Result<(), RecordsError> {
        loop {
            let events = self.parts.records.events(owner, after, WORKFLOW_EVENTS_READ_MAX)?;
            for event in events.iter().filter(|event| event.seq <= last) {
                if !self.is_made_here(event.happened.sandbox)? {
                    self.fire_for_sandbox(workflows, event).await;
                }
            }
            match events.last() {
                Some(event) if event.seq < last => after = event.seq,
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// Whether a sandbox was made in the course of a call or run: it fires nothing, or a workflow might fire itself.
    fn is_made_here(&self, sandbox: SandboxId) -> Result<bool, RecordsError> {
        let parent = self.parts.records.call(sandbox.origin)?;
        let creates = [Job::SandboxCreate.id(), Job::BatchCreate.id()];
        Ok(parent.is_none_or(|parent| !creates.contains(&parent.job)))
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

/// Whether a log is one that a workflow waits for.
fn matches(filter: &LogFilter, log: &Log) -> bool {
    let topics = log.topics();
    let fits = |(index, field): (usize, &Option<B256>)| field.is_none_or(|field| topics.get(index + 1) == Some(&field));
    log.address() == filter.address
        && topics.first() == Some(&filter.topic)
        && filter.fields.iter().enumerate().all(fits)
}
