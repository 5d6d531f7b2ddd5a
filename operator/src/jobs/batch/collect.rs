//! Job 23, and what the API shows of batches: this operator's own parts from its records, the others' as the chain tells of them.

use alloy::primitives::Address;
use sandbox_fleet::Unfinished;
use sandbox_protocol::abi::{BatchCollectRequest, BatchCollectResponse};
use sandbox_protocol::batch::{BatchId, BatchReport, BatchStatus, ItemReport, ItemState, OtherPart, PartReport};
use sandbox_protocol::{CallKey, Failure, FailureCode, Job, Outcome};
use sandbox_sdk::Chain;
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::Part;
use tokio::sync::watch;

use super::{bad, bare, stopping};
use crate::chain::until_answered;
use crate::jobs::{JobCall, Work};
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

    fn own(&self, wanted: &Wanted) -> Result<Vec<PartReport>, RecordsError> {
        let parts = self.records.parts_of(wanted.owner, wanted.service, &wanted.batch)?;
        parts.iter().map(|part| self.part(part)).collect()
    }

    fn part(&self, part: &PartRecord) -> Result<PartReport, RecordsError> {
        let known = self.records.part_items(part)?;
        let call = self.records.call(part.call)?;
        let is_given_up = part.end.is_none() && call.as_ref().is_none_or(CallRecord::is_over);
        let items = part.items.iter().map(|item| {
            let found = known.iter().find(|known| known.index == item.index).cloned();
            // The slots of a create are begun together.
            let begun = if part.job == Job::BatchCreate.id() { ItemState::Running } else { ItemState::Waiting };
            let found = found.unwrap_or_else(|| bare(item.index, item.sandbox, begun));
            if is_given_up { given_up(found) } else { found }
        });
        Ok(PartReport {
            call: part.call.call,
            job: part.job,
            operator: self.me,
            aggregation: part.aggregation,
            is_over: part.end.is_some() || is_given_up,
            items: items.collect(),
            majority: part.end.as_ref().and_then(|end| end.majority.clone()),
            kept_until_ms: part.end.as_ref().map(|end| end.kept_until_ms),
        })
    }

    async fn others(&self, service: u64, own: &[PartReport]) -> Result<Vec<OtherPart>, ReadError> {
        let mut others = Vec::new();
        for call in own.iter().map(|part| part.call) {
            let key = CallKey { service, call };
            let Some(assignment) = self.chain.assignment(key).await? else { continue };
            let is_late = *self.head.borrow() > assignment.deadlineBlock;
            let parts = self.chain.parts(key).await?;
            others.extend(parts.iter().filter(|part| part.operator != self.me).map(|part| other(call, part, is_late)));
        }
        Ok(others)
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
