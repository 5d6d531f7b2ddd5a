//! What a negotiation comes to: the sandbox of each move, and the result of all of them.
//!
//! Every move is argued about in a child of the call, which is made like the sandbox that the caller named. Moves are
//! independent of each other, and the result has them in the order in which they were given.

use sandbox_protocol::agent::negotiation::{
    ConversationLogs, Ledger, Move, MoveReport, Negotiation, NegotiationResult, PolicyScore,
};
use sandbox_protocol::{CallKey, Failure, FailureCode};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::children::{ChildName, ChildOrder, NotAChildName};
use crate::limits::NEGOTIATION_MEMORY_MB;
use crate::request::{Resources, SandboxSpec};
use crate::sandbox::Sandbox;

/// What separates a move that was argued about in the operator's own process.
pub const NOT_ISOLATED: &str = "none";

/// A move that is through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// What came of it.
    pub report: MoveReport,
    /// What separated it from the others; empty where it never ran.
    pub isolation: String,
    /// Why it never ran.
    #[serde(default)]
    pub code: Option<FailureCode>,
}

impl Finished {
    /// A move that came to nothing, and why.
    pub fn failed(one: &Move, failure: Failure) -> Self {
        let move_id = one.move_id.clone();
        let logs = ConversationLogs { move_id: move_id.clone(), ..ConversationLogs::default() };
        let report = MoveReport {
            score: PolicyScore { move_id, total_score: 0, scores_by_agent: Default::default() },
            transcript_hash: hash([]),
            logs,
            rounds: 0,
            error: Some(failure.message),
            ledger: Ledger::default(),
            warnings: Vec::new(),
        };
        Self { report, isolation: String::new(), code: Some(failure.code) }
    }

    /// Whether it has a score.
    pub fn is_scored(&self) -> bool {
        !self.report.score.scores_by_agent.is_empty()
    }
}

/// The sandbox of a move of `call`'s, made like `parent` and called so among the call's children.
///
/// # Errors
/// The name is none of a child's.
pub fn child(
    parent: &Sandbox,
    (call, name): (CallKey, &str),
    ticker: &str,
    one: &Move,
) -> Result<ChildOrder, NotAChildName> {
    let labels =
        [("ticker", ticker), ("move", one.move_id.as_str()), ("layer", "sandbox"), ("project", "ai-consulting-agency")];
    let spec = SandboxSpec {
        resources: Resources { memory_mb: NEGOTIATION_MEMORY_MB, ..parent.spec.resources },
        idle_timeout_s: None,
        snapshot: None,
        snapshot_destination: None,
        name: one.sandbox_name(ticker),
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        ..parent.spec.clone()
    };
    let (name, owner, expires_at_block) = (ChildName::parse(name)?, parent.owner, parent.expires_at_block);
    Ok(ChildOrder { parent: call, name, owner, spec, expires_at_block })
}

/// Why none of these moves ever ran; `None` where one did.
pub fn never_ran(finished: &[Finished]) -> Option<FailureCode> {
    let codes = finished.iter().map(|one| one.code);
    codes.reduce(|first, code| first.filter(|_| code.is_some())).flatten()
}

/// The result of all moves, which are `finished` in the order in which they were given.
pub fn result(negotiation: &Negotiation, finished: Vec<Finished>) -> NegotiationResult {
    let hashes = finished.iter().map(|one| one.report.transcript_hash.as_str());
    let mut result = NegotiationResult {
        transcript_hash: hash(hashes),
        policy_scores: Vec::new(),
        conversation_logs: Vec::new(),
        errors: Default::default(),
        ledger: sum(finished.iter().map(|one| &one.report.ledger)),
        isolation: Default::default(),
        warnings: Vec::new(),
    };
    for (one, Finished { report, isolation, code: _ }) in negotiation.moves.iter().zip(finished) {
        if !isolation.is_empty() {
            result.isolation.insert(one.move_id.clone(), isolation);
        }
        if let Some(error) = report.error {
            result.errors.insert(one.move_id.clone(), error);
        }
        result.warnings.extend(report.warnings.into_iter().map(|warning| format!("{}: {warning}", one.move_id)));
        result.policy_scores.push(report.score);
        result.conversation_logs.push(report.logs);
    }
    result
}

/// SHA-256 of these texts, one behind the other, in hexadecimal digits.
fn hash<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let hasher = texts.into_iter().fold(Sha256::new(), |hasher, text| hasher.chain_update(text));
    hex::encode(hasher.finalize())
}

fn sum<'a>(ledgers: impl Iterator<Item = &'a Ledger>) -> Ledger {
    // What some of it cost is no price of all.
    let start = Ledger { cost_micro_usd: Some(0), ..Ledger::default() };
    ledgers.fold(start, |all, one| {
        let is_free = *one == Ledger::default();
        Ledger {
            logical_calls: all.logical_calls.saturating_add(one.logical_calls),
            retries: all.retries.saturating_add(one.retries),
            summaries: all.summaries.saturating_add(one.summaries),
            failed_calls: all.failed_calls.saturating_add(one.failed_calls),
            scores_from_fence: all.scores_from_fence.saturating_add(one.scores_from_fence),
            scores_by_regex: all.scores_by_regex.saturating_add(one.scores_by_regex),
            scores_neutral: all.scores_neutral.saturating_add(one.scores_neutral),
            input_tokens: all.input_tokens.saturating_add(one.input_tokens),
            output_tokens: all.output_tokens.saturating_add(one.output_tokens),
            cost_micro_usd: if is_free {
                all.cost_micro_usd
            } else {
                all.cost_micro_usd.zip(one.cost_micro_usd).map(|(all, one)| all.saturating_add(one))
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fakes::sandbox;

    fn a_move(move_id: &str) -> Move {
        Move { move_id: move_id.into(), content: "buy".into() }
    }

    fn no_engine() -> Failure {
        Failure::new(FailureCode::Engine, "no engine")
    }

    fn negotiation(moves: &[&str]) -> Negotiation {
        let moves = moves.iter().map(|id| a_move(id)).collect();
        Negotiation { ticker: "ABC".into(), moves, max_rounds: 1, concurrency: 1, personas: Default::default() }
    }

    fn scored(move_id: &str, ledger: Ledger) -> Finished {
        let mut finished = Finished::failed(&a_move(move_id), no_engine());
        let scores = sandbox_protocol::agent::negotiation::Scores {
            impact: 1,
            feasibility: 1,
            risk_adjusted_return: 1,
            strategic_alignment: 1,
            reasoning: None,
        };
        finished.report.score.scores_by_agent.insert("D1".into(), scores);
        (finished.report.error, finished.report.ledger) = (None, ledger);
        (finished.isolation, finished.code) = ("runc".into(), None);
        finished
    }

    #[test]
    fn a_moves_sandbox_is_like_the_one_that_was_named_with_memory_and_labels_of_its_own() {
        let mut parent = sandbox(1);
        parent.spec.env.insert("MODEL".into(), "m".into());
        parent.spec.egress = "api.example".into();
        parent.spec.runtime = Some("runsc".into());
        parent.spec.idle_timeout_s = Some(60);
        parent.spec.snapshot = Some(crate::fakes::snapshot("s3://b/k"));
        parent.expires_at_block = Some(9);
        let call = CallKey { service: 7, call: 5 };
        let order = child(&parent, (call, "run-1-m1"), "ABC.D", &a_move("M1")).unwrap();
        assert_eq!((order.name.to_string().as_str(), order.parent), ("run-1-m1", call));
        assert_eq!(order.spec.name, "negotiate-abc.d-m1");
        assert_eq!((order.owner, order.expires_at_block), (parent.owner, Some(9)));
        assert_eq!(order.spec.resources, Resources { memory_mb: 2_048, ..parent.spec.resources });
        assert_eq!((order.spec.env, order.spec.egress), (parent.spec.env, parent.spec.egress));
        assert_eq!((order.spec.runtime, order.spec.image), (parent.spec.runtime, parent.spec.image));
        assert_eq!((order.spec.snapshot, order.spec.idle_timeout_s), (None, None));
        let labels: Vec<_> = order.spec.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(labels, ["layer=sandbox", "move=M1", "project=ai-consulting-agency", "ticker=ABC.D"]);
    }

    #[test]
    fn a_result_has_every_move_in_its_order_and_says_what_came_to_nothing() {
        let priced = Ledger { logical_calls: 7, input_tokens: 3, cost_micro_usd: Some(5), ..Ledger::default() };
        let finished =
            vec![scored("m2", priced.clone()), Finished::failed(&a_move("m1"), no_engine()), scored("m3", priced)];
        let found = result(&negotiation(&["m2", "m1", "m3"]), finished.clone());
        let ids: Vec<_> = found.policy_scores.iter().map(|score| score.move_id.as_str()).collect();
        assert_eq!(ids, ["m2", "m1", "m3"]);
        assert_eq!(found.conversation_logs.len(), 3);
        assert_eq!(found.errors, [("m1".to_owned(), "no engine".to_owned())].into());
        assert_eq!(found.isolation.keys().collect::<Vec<_>>(), ["m2", "m3"]);
        assert_eq!((found.ledger.logical_calls, found.ledger.cost_micro_usd), (14, Some(10)));
        let hashes: String = finished.iter().map(|one| one.report.transcript_hash.as_str()).collect();
        assert_eq!(found.transcript_hash, hash([hashes.as_str()]));
        assert_eq!(finished.iter().filter(|one| one.is_scored()).count(), 2);
        assert_eq!((never_ran(&finished), never_ran(&finished[1..2])), (None, Some(FailureCode::Engine)));
    }

    #[test]
    fn what_some_moves_cost_is_no_price_of_all() {
        let free = Ledger { logical_calls: 1, ..Ledger::default() };
        let priced = Ledger { logical_calls: 1, cost_micro_usd: Some(5), ..Ledger::default() };
        assert_eq!(sum([&priced, &free].into_iter()).cost_micro_usd, None);
        assert_eq!(sum([&priced, &Ledger::default()].into_iter()).cost_micro_usd, Some(5));
    }
}
