//! Job 23, and what the API shows of batches: this operator's own parts from its records, the others' as the chain tells of them.

use std::collections::BTreeMap;

use alloy::primitives::Address;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use sandbox_fleet::Unfinished;
use sandbox_protocol::abi::{BatchCollectRequest, BatchCollectResponse};
use sandbox_protocol::batch::{BatchId, BatchReport, BatchStatus, ItemReport, ItemState, OtherPart, PartReport, share};
use sandbox_protocol::limits::{BATCH_REPORT_BYTES_MAX, BATCH_REPORT_PARTS_MAX};
use sandbox_protocol::{CallKey, Failure, FailureCode, Job, Outcome};
use sandbox_sdk::Chain;
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::Part;
use tokio::sync::watch;

use super::cut::{cut, cut_words};
use super::{bad, bare, stopping};
use crate::chain::until_answered;
use crate::jobs::{JobCall, Work};
use crate::limits::BATCH_LOOKUPS_MAX;
use crate::records::{CallRecord, PartRecord, Records, RecordsError};

/// Tells of batches. Clones tell the same.
#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) me: Address,
    pub(crate) head: watch::Receiver<u64>,
}

/// Whose batch, and which.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) owner: Address,
    pub(crate) service: u64,
    pub(crate) batch: BatchId,
}

/// Why nothing can be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectError {
    /// The records cannot be read.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The chain does not tell of the others.
    #[error(transparent)]
    Chain(#[from] ReadError),
}

/// Answers with what is known of a batch of the caller's.
pub(in crate::jobs) async fn collect(call: JobCall) -> Result<Work, Unfinished> {
    let request: BatchCollectRequest = call.request()?;
    let batch: BatchId =
        request.batch_id.parse().map_err(|error: sandbox_protocol::batch::NotABatchId| bad(error.to_string()))?;
    let wanted = Wanted { owner: call.caller, service: call.key.service, batch };
    let parts = call.parts();
    let collector = Collector {
        chain: parts.chain.clone(),
        records: parts.records.clone(),
        me: parts.key.address(),
        head: parts.head.clone(),
    };
    let own = collector.own(&wanted).map_err(|error| stopping(&error))?;
    let others = until_answered("parts of a batch", || collector.others(wanted.service, &own)).await;
    let report = report(wanted, own, others);
    let results_json = serde_json::to_string(&report);
    let response = BatchCollectResponse {
        batch_id: report.batch_id.to_string(),
        status: report.status.name().to_owned(),
        results_json: results_json.map_err(|error| Failure::new(FailureCode::Internal, error.to_string()))?,
    };
    Ok(Work::done(&response, None))
}

impl Collector {
    /// What is known of a batch; of one that is not its owner's nothing.
    pub(crate) async fn report(&self, wanted: Wanted) -> Result<BatchReport, CollectError> {
        let own = self.own(&wanted)?;
        let others = self.others(wanted.service, &own).await?;
        Ok(report(wanted, own, others))
    }

    /// This operator's parts: the newest item by item, of those before them no items.
    fn own(&self, wanted: &Wanted) -> Result<Vec<PartReport>, RecordsError> {
        let parts = self.records.parts_of(wanted.owner, wanted.service, &wanted.batch)?;
        let (before, told) = parts.split_at(parts.len().saturating_sub(BATCH_REPORT_PARTS_MAX));
        let text_bytes_max = share(BATCH_REPORT_BYTES_MAX, told.iter().map(|part| part.items.len()).sum());
        let before = before.iter().map(|part| self.without_items(part));
        before.chain(told.iter().map(|part| self.part(part, text_bytes_max))).collect()
    }

    /// A part without its items.
    fn without_items(&self, part: &PartRecord) -> Result<PartReport, RecordsError> {
        let call = self.records.call(part.call)?;
        Ok(PartReport {
            call: part.call.call,
            job: part.job,
            operator: self.me,
            aggregation: part.aggregation,
            is_over: part.end.is_some() || call.as_ref().is_none_or(CallRecord::is_over),
            items: Vec::new(),
            left_out: u32::try_from(part.items.len()).unwrap_or(u32::MAX),
            majority: None,
            kept_until_ms: part.end.as_ref().map(|end| end.kept_until_ms),
        })
    }

    /// A part with its items, whose texts are cut to so many bytes each.
    fn part(&self, part: &PartRecord, text_bytes_max: usize) -> Result<PartReport, RecordsError> {
        let empty = self.without_items(part)?;
        let is_given_up = empty.is_over && part.end.is_none();
        let mut known: BTreeMap<u32, ItemReport> =
            self.records.part_items(part)?.into_iter().map(|item| (item.index, item)).collect();
        let items = part.items.iter().map(|item| {
            // The slots of a create are begun together.
            let begun = if part.job == Job::BatchCreate.id() { ItemState::Running } else { ItemState::Waiting };
            let found = known.remove(&item.index).unwrap_or_else(|| bare(item.index, item.sandbox, begun));
            cut(if is_given_up { given_up(found) } else { found }, text_bytes_max)
        });
        let items = items.collect();
        let mut majority = part.end.as_ref().and_then(|end| end.majority.clone());
        if let Some(majority) = &mut majority {
            cut_words(&mut majority.answer, text_bytes_max);
        }
        Ok(PartReport { items, left_out: 0, majority, ..empty })
    }

    /// The parts of others in the calls that are told item by item.
    async fn others(&self, service: u64, own: &[PartReport]) -> Result<Vec<OtherPart>, ReadError> {
        let told = &own[own.len().saturating_sub(BATCH_REPORT_PARTS_MAX)..];
        let calls: Vec<BoxFuture<'_, _>> =
            told.iter().map(|part| self.others_of(CallKey { service, call: part.call }).boxed()).collect();
        let others: Vec<_> = stream::iter(calls).buffered(BATCH_LOOKUPS_MAX).try_collect().await?;
        Ok(others.into_iter().flatten().collect())
    }

    async fn others_of(&self, key: CallKey) -> Result<Vec<OtherPart>, ReadError> {
        let Some(assignment) = self.chain.assignment(key).await? else { return Ok(Vec::new()) };
        let is_late = *self.head.borrow() > assignment.deadlineBlock;
        let parts = self.chain.parts(key).await?;
        let others = parts.iter().filter(|part| part.operator != self.me);
        Ok(others.map(|part| other(key.call, part, is_late)).collect())
    }
}

/// An item of a part whose call is over though the part never came to its end.
fn given_up(item: ItemReport) -> ItemReport {
    if item.state.is_final() {
        return item;
    }
    let failure = Failure::new(FailureCode::Interrupted, "the call was over before it");
    ItemReport { state: ItemState::Failed, failure: Some(failure), ..item }
}

fn other(call: u64, part: &Part, is_late: bool) -> OtherPart {
    let outcome = if part.answered { Outcome::from_id(part.outcome) } else { None };
    OtherPart { call, operator: part.operator, outcome, is_silent: is_late && !part.answered }
}

fn report(wanted: Wanted, parts: Vec<PartReport>, others: Vec<OtherPart>) -> BatchReport {
    let status = match parts.as_slice() {
        [] => BatchStatus::Unknown,
        parts if parts.iter().all(|part| part.is_over) => BatchStatus::Done,
        _ => BatchStatus::Running,
    };
    BatchReport { batch_id: wanted.batch, service: wanted.service, status, parts, others }
}

#[cfg(test)]
mod tests;
