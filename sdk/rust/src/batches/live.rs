//! What operators tell of a batch while it goes on. It is a view and no answer: nothing here is proven.

use std::collections::BTreeSet;

use alloy::primitives::Address;
use sandbox_protocol::abi::{self, BatchCollectResponse};
use sandbox_protocol::batch::{BatchId, BatchReport, BatchStatus, OtherPart, PartReport};
use sandbox_protocol::http::AnswerBody;
use serde::Serialize;

use crate::api::ApiError;

/// What one operator told, or why it told nothing.
pub type LiveReport = (Address, Result<BatchReport, NotTold>);

/// Why an operator told nothing.
#[derive(Debug, thiserror::Error)]
pub enum NotTold {
    /// Its API did not do what was asked.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// There is no session with it.
    #[error("there is no session with it: {0}")]
    NoSession(String),
    /// What it answered to a job 23 is none.
    #[error("its answer holds no report of the batch")]
    NoReport,
}

/// An operator that told nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unheard {
    /// The operator.
    pub operator: Address,
    /// Why.
    pub why: String,
}

/// What all operators told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveBatch {
    /// The batch.
    pub batch_id: BatchId,
    /// Its service.
    pub service: u64,
    /// Where it is: done, if all that are known to work on it are through.
    pub status: BatchStatus,
    /// Parts by call, each as its own operator tells of it.
    pub parts: Vec<PartReport>,
    /// Parts that nobody has told of but others, who have it from the chain.
    pub others: Vec<OtherPart>,
    /// Operators that told nothing.
    pub unheard: Vec<Unheard>,
}

impl LiveBatch {
    /// All reports as one. What an operator says of another's items is left out.
    pub fn of(service: u64, batch_id: BatchId, reports: Vec<LiveReport>) -> Self {
        let (mut parts, mut others, mut unheard) = (Vec::<PartReport>::new(), Vec::<OtherPart>::new(), Vec::new());
        for (operator, report) in reports {
            let report = match report {
                Ok(report) => report,
                Err(error) => {
                    unheard.push(Unheard { operator, why: error.to_string() });
                    continue;
                }
            };
            for part in report.parts.into_iter().filter(|part| part.operator == operator) {
                if !parts.iter().any(|known| (known.call, known.operator) == (part.call, operator)) {
                    parts.push(part);
                }
            }
            others.extend(report.others);
        }
        parts.sort_by_key(|part| (part.call, part.operator));
        others.retain(|other| !parts.iter().any(|part| (part.call, part.operator) == (other.call, other.operator)));
        others.sort_by_key(|other| (other.call, other.operator, !other.is_silent, other.outcome.is_none()));
        others.dedup_by_key(|other| (other.call, other.operator));
        let status = status(&parts, &others);
        Self { batch_id, service, status, parts, others, unheard }
    }

    /// What operators have attested to in their answers to a job 23.
    pub fn of_answers(service: u64, batch_id: BatchId, answers: &[AnswerBody]) -> Self {
        let report = |answer: &AnswerBody| {
            let told: Option<BatchReport> = abi::decode::<BatchCollectResponse>(&answer.response)
                .ok()
                .and_then(|response| serde_json::from_str(&response.results_json).ok());
            let told = told.filter(|report: &BatchReport| report.service == service && report.batch_id == batch_id);
            (answer.receipt.receipt.operator, told.ok_or(NotTold::NoReport))
        };
        Self::of(service, batch_id.clone(), answers.iter().map(report).collect())
    }

    /// The calls that are it, as far as anybody told.
    pub fn calls(&self) -> BTreeSet<u64> {
        let others = self.others.iter().map(|other| other.call);
        self.parts.iter().map(|part| part.call).chain(others).collect()
    }
}

fn status(parts: &[PartReport], others: &[OtherPart]) -> BatchStatus {
    let is_over = |other: &OtherPart| other.is_silent || other.outcome.is_some();
    if parts.is_empty() && others.is_empty() {
        BatchStatus::Unknown
    } else if parts.iter().all(|part| part.is_over) && others.iter().all(is_over) {
        BatchStatus::Done
    } else {
        BatchStatus::Running
    }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::Outcome;

    use super::*;

    const fn address(place: u8) -> Address {
        Address::repeat_byte(place)
    }

    fn part(call: u64, operator: u8, is_over: bool) -> PartReport {
        let (job, operator) = (20, address(operator));
        let (aggregation, items, left_out, majority, kept_until_ms) = (None, Vec::new(), 0, None, None);
        PartReport { call, job, operator, aggregation, is_over, items, left_out, majority, kept_until_ms }
    }

    fn other(call: u64, operator: u8, outcome: Option<Outcome>, is_silent: bool) -> OtherPart {
        OtherPart { call, operator: address(operator), outcome, is_silent }
    }

    type Told = Option<(Vec<PartReport>, Vec<OtherPart>)>;

    fn live(reports: Vec<(u8, Told)>) -> LiveBatch {
        let batch_id: BatchId = "b".parse().unwrap();
        let report = |(parts, others)| BatchReport {
            batch_id: "b".parse().unwrap(),
            service: 1,
            status: BatchStatus::Running,
            parts,
            others,
        };
        let told = |(operator, told): (u8, Told)| (address(operator), told.map(report).ok_or(NotTold::NoReport));
        LiveBatch::of(1, batch_id, reports.into_iter().map(told).collect())
    }

    #[test]
    fn each_operator_is_heard_about_its_own_part_alone() {
        let forged = live(vec![
            (1, Some((vec![part(4, 1, true), part(4, 2, true)], vec![other(4, 2, Some(Outcome::Done), false)]))),
            (2, Some((vec![part(4, 2, false)], vec![]))),
        ]);
        assert_eq!(forged.parts, [part(4, 1, true), part(4, 2, false)]);
        assert_eq!((forged.status, forged.others.len()), (BatchStatus::Running, 0));
    }

    #[test]
    fn who_tells_nothing_is_known_by_what_others_have_from_the_chain() {
        let told = live(vec![
            (1, Some((vec![part(4, 1, true)], vec![other(4, 3, None, true)]))),
            (2, Some((vec![part(5, 2, true)], vec![other(4, 3, None, false)]))),
            (3, None),
        ]);
        assert_eq!((told.others.as_slice(), told.status), ([other(4, 3, None, true)].as_slice(), BatchStatus::Done));
        assert_eq!(
            told.unheard,
            [Unheard { operator: address(3), why: "its answer holds no report of the batch".into() }]
        );
        assert_eq!(told.calls().into_iter().collect::<Vec<_>>(), [4, 5]);
        assert_eq!(live(vec![(1, Some((vec![], vec![])))]).status, BatchStatus::Unknown);
    }
}
