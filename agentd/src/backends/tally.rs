//! What is added up of a run while a program tells it.

use sandbox_agent::model::Usage;
use sandbox_agent::redact;
use sandbox_protocol::agent::RunFailure;
use sandbox_protocol::agent::event::Told;

use super::access::Access;
use super::limits::FAILURE_BYTES_MAX;
use crate::backend::{Desk, Outcome};

/// Why a run did not come to its own end, with a sentence for the customer.
pub(super) type Failure = (RunFailure, String);

/// The sums of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Tally {
    /// What the program calls its conversation.
    pub(super) session: Option<String>,
    /// The last words.
    pub(super) result: String,
    pub(super) turns: u32,
    pub(super) usage: Usage,
    pub(super) cost_micro_usd: Option<u64>,
    pub(super) failure: Option<Failure>,
}

impl Tally {
    /// One call of the model is over.
    pub(super) fn turn(&mut self, usage: Usage, access: &Access, desk: &dyn Desk) {
        self.turns += 1;
        self.usage.input_tokens += usage.input_tokens;
        self.usage.output_tokens += usage.output_tokens;
        self.cost_micro_usd = access.cost_micro_usd(self.usage);
        self.tell(desk);
    }

    /// Whether it has cost as much as a profile lets it.
    pub(super) fn is_dear(&self, cost_micro_usd_max: u64) -> bool {
        cost_micro_usd_max != 0 && self.cost_micro_usd.is_some_and(|cost| cost >= cost_micro_usd_max)
    }

    /// Tells what was used so far.
    pub(super) fn tell(&self, desk: &dyn Desk) {
        let Usage { input_tokens, output_tokens } = self.usage;
        desk.tell(Told::Usage { input_tokens, output_tokens, cost_micro_usd: self.cost_micro_usd });
    }

    /// It did not end well; the first reason holds.
    pub(super) fn fail(&mut self, (failure, words): Failure) {
        self.failure.get_or_insert_with(|| (failure, shown(&words)));
    }

    pub(super) fn outcome(self) -> Outcome {
        let Self { session: _, result, turns, usage, cost_micro_usd, failure } = self;
        Outcome { result, failure, turns, usage, cost_micro_usd }
    }
}

/// A program's words as a customer may see them: without keys, and short.
pub(super) fn shown(words: &str) -> String {
    let mut clean = redact(words.trim());
    clean.truncate(clean.floor_char_boundary(FAILURE_BYTES_MAX));
    clean
}

/// Said where a run has cost as much as it may.
pub(super) fn too_dear() -> Failure {
    (RunFailure::CostLimit, "it has cost as much as it may".to_owned())
}

/// Millionths of a US dollar; `None` for what is no price.
pub(super) fn micro_usd(usd: f64) -> Option<u64> {
    (usd.is_finite() && usd > 0.0).then(|| (usd * 1_000_000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failures_words_hold_no_key_and_are_short() {
        let words = format!("no such key sk-abcdefghijklmnopqrstuv {}", "x".repeat(2 * FAILURE_BYTES_MAX));
        let shown = shown(&words);
        assert!(shown.starts_with("no such key [redacted]") && shown.len() == FAILURE_BYTES_MAX, "{shown}");
    }

    #[test]
    fn a_price_of_nothing_is_no_price() {
        assert_eq!([0.0, f64::NAN, 0.00054].map(micro_usd), [None, None, Some(540)]);
    }
}
