//! What is made of moves' reports: the whole negotiation's result, sums of ledgers, files of conversations.
//!
//! Not here: how a move is argued about, and who collects the reports.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use alloy_primitives::hex;
use sha2::{Digest, Sha256};

use super::{
    ConversationEntry, ConversationLogs, DECISION_MAKERS, LOGS, Ledger, METRICS, MoveReport, NEUTRAL,
    NegotiationResult, PolicyScore, Scores,
};

/// What a move will ask of the model if nothing fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Calls.
    pub calls: u32,
    /// Stages: the calls of one are made at the same time, each stage waits for the one before.
    pub stages: u32,
}

/// What a move of this many rounds will ask of the model.
pub const fn plan(rounds: u32) -> Plan {
    Plan { calls: 6 * rounds + 1, stages: 2 * rounds + 1 }
}

impl Scores {
    /// The middle of every metric, for a score that nobody could read.
    pub const fn neutral() -> Self {
        Self {
            impact: NEUTRAL,
            feasibility: NEUTRAL,
            risk_adjusted_return: NEUTRAL,
            strategic_alignment: NEUTRAL,
            reasoning: None,
        }
    }

    /// In the order of [`METRICS`].
    pub const fn metrics(&self) -> [u32; METRICS.len()] {
        [self.impact, self.feasibility, self.risk_adjusted_return, self.strategic_alignment]
    }
}

impl PolicyScore {
    /// A move's score of its decision makers' scores, in their order.
    pub fn of(move_id: &str, scores: [Scores; DECISION_MAKERS.len()]) -> Self {
        let total_score = scores.iter().map(Scores::total).sum();
        let scores_by_agent = DECISION_MAKERS.map(str::to_owned).into_iter().zip(scores).collect();
        Self { move_id: move_id.to_owned(), total_score, scores_by_agent }
    }
}

impl ConversationLogs {
    /// The three, in the order of [`LOGS`].
    pub fn all(&self) -> [&[ConversationEntry]; LOGS.len()] {
        [&self.i1, &self.i2, &self.i3]
    }

    /// The three as files: names of [`LOGS`] and bytes, JSON indented by two spaces.
    pub fn files(&self) -> [(String, Vec<u8>); LOGS.len()] {
        let mut names = LOGS.into_iter();
        self.all().map(|log| {
            let name = names.next().unwrap_or_default();
            // Texts and numbers always have a form in JSON.
            (format!("{name}.json"), serde_json::to_vec_pretty(log).unwrap_or_default())
        })
    }

    /// The logs of a move of these files' bytes, in the order of [`LOGS`].
    ///
    /// # Errors
    /// A file does not hold a conversation.
    pub fn of_files(move_id: &str, files: [&[u8]; LOGS.len()]) -> Result<Self, serde_json::Error> {
        let [i1, i2, i3] = files.map(serde_json::from_slice);
        Ok(Self { move_id: move_id.to_owned(), i1: i1?, i2: i2?, i3: i3? })
    }

    /// SHA-256, in hexadecimal digits, of the three as one list in JSON without spaces: each entry's role, content and round,
    /// in this order.
    pub fn hash(&self) -> String {
        let canonical = serde_json::to_vec(&self.all()).unwrap_or_default();
        hex::encode(Sha256::digest(canonical))
    }
}

impl AddAssign<&Self> for Ledger {
    /// Costs that nobody knows count as none, unless nobody knows any.
    fn add_assign(&mut self, other: &Self) {
        self.logical_calls += other.logical_calls;
        self.retries += other.retries;
        self.summaries += other.summaries;
        self.failed_calls += other.failed_calls;
        self.scores_from_fence += other.scores_from_fence;
        self.scores_by_regex += other.scores_by_regex;
        self.scores_neutral += other.scores_neutral;
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cost_micro_usd = match (self.cost_micro_usd, other.cost_micro_usd) {
            (Some(one), Some(two)) => Some(one + two),
            (one, two) => one.or(two),
        };
    }
}

impl MoveReport {
    /// The report of a move that nobody could argue about, and why.
    pub fn unscored(move_id: &str, error: impl Into<String>) -> Self {
        let logs = ConversationLogs { move_id: move_id.to_owned(), ..ConversationLogs::default() };
        let scores_neutral = u32::try_from(DECISION_MAKERS.len()).unwrap_or(u32::MAX);
        Self {
            score: PolicyScore::of(move_id, DECISION_MAKERS.map(|_| Scores::neutral())),
            transcript_hash: logs.hash(),
            logs,
            rounds: 0,
            error: Some(error.into()),
            ledger: Ledger { scores_neutral, ..Ledger::default() },
            warnings: Vec::new(),
        }
    }
}

impl NegotiationResult {
    /// What came of a negotiation. `reports` are in the order in which the moves were given; warnings of moves are told with
    /// their moves' names, behind those of the whole.
    pub fn of(reports: Vec<MoveReport>, isolation: BTreeMap<String, String>, mut warnings: Vec<String>) -> Self {
        let mut ledger = Ledger::default();
        let mut hashes = Sha256::new();
        let mut errors = BTreeMap::new();
        let (mut policy_scores, mut conversation_logs) = (Vec::new(), Vec::new());
        for report in reports {
            ledger += &report.ledger;
            hashes.update(format!("{}\n", report.transcript_hash));
            let move_id = &report.score.move_id;
            errors.extend(report.error.map(|error| (move_id.clone(), error)));
            warnings.extend(report.warnings.iter().map(|warning| format!("{move_id}: {warning}")));
            policy_scores.push(report.score);
            conversation_logs.push(report.logs);
        }
        let transcript_hash = hex::encode(hashes.finalize());
        Self { policy_scores, conversation_logs, errors, transcript_hash, ledger, isolation, warnings }
    }
}
