//! What is in memory of a session: its messages, what belongs together, the indices. One owner changes it, and it neither
//! waits nor stores.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::context::Remembered;
use super::retrieval::{Both, Lexical, Question, Retrieval as _, Vectors, embedded, searched};
use super::store::Stored;
use super::summary::Summary;
use super::tiers::{self, Budget};
use super::tokenizer::Tokenizer;
use super::units::{self, Unit, View};
use crate::limits::{EMBEDDED_TEXTS_MAX, RETRIEVED_MESSAGES_MAX, UNSUMMARISED_TOKENS_MAX};

/// A session.
pub(super) struct Session {
    messages: Vec<Arc<Stored>>,
    pub(super) units: Vec<Unit>,
    /// Tokens of all messages before each, and of all.
    tokens_before: Vec<usize>,
    lexical: Lexical,
    pub(super) vectors: Vectors,
    pub(super) summary: Option<Summary>,
    /// Somebody makes a summary.
    pub(super) is_summarising: bool,
    /// Somebody makes vectors.
    pub(super) is_embedding: bool,
    /// Tokens without summary when making one failed last: the next attempt waits for half as many again.
    failed_at_tokens: usize,
}

/// The tiers that depend on messages.
pub(super) struct Tiers {
    pub(super) recent: Vec<Remembered>,
    pub(super) semantic: Vec<Remembered>,
}

impl Session {
    pub(super) fn new(messages: Vec<Stored>, vectors: Vectors, summary: Option<Summary>) -> Self {
        let mut session = Self {
            messages: Vec::new(),
            units: Vec::new(),
            tokens_before: vec![0],
            lexical: Lexical::default(),
            vectors,
            summary: summary.filter(|summary| summary.through <= messages.len()),
            is_summarising: false,
            is_embedding: false,
            failed_at_tokens: 0,
        };
        session.add(messages);
        session
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Takes up messages that are stored.
    pub(super) fn add(&mut self, messages: Vec<Stored>) {
        for stored in messages {
            units::add(&mut self.units, self.messages.len(), &stored);
            self.lexical.add(&searched(&stored.message));
            self.tokens_before.push(self.tokens_before[self.messages.len()] + stored.tokens);
            self.messages.push(Arc::new(stored));
        }
    }

    /// The tiers of a context for this question.
    pub(super) fn tiers(&self, tokenizer: &dyn Tokenizer, budget: Budget, question: Question<'_>) -> Tiers {
        let view = View { messages: &self.messages, units: &self.units, tokenizer };
        let recent = tiers::recent(view, budget.recent);
        let units: BTreeSet<usize> = recent.iter().map(|one| view.unit_of(one.place())).collect();
        let is_older = |place: usize| !units.contains(&view.unit_of(place));
        let both = Both { lexical: &self.lexical, vectors: &self.vectors };
        let found = both.find(question, &is_older, RETRIEVED_MESSAGES_MAX);
        let semantic = tiers::semantic(view, &found, budget.semantic);
        Tiers { recent, semantic }
    }

    /// The messages that a summary should be made of now: all of them, but for calls that wait for their answer. `None` where
    /// few tokens are without one.
    ///
    /// It covers the recent messages too: they will be older before there is the next summary, and in the meantime nothing
    /// may lie between the two tiers. For the same reason a tier of less than the threshold is itself the threshold.
    pub(super) fn to_summarise(&self, budget: Budget) -> Option<Vec<Arc<Stored>>> {
        let threshold = UNSUMMARISED_TOKENS_MAX.min(budget.recent);
        let tokens = self.without_summary();
        let has_failed = self.failed_at_tokens > 0 && tokens <= self.failed_at_tokens + threshold / 2;
        (tokens > threshold && !has_failed).then(|| self.messages[..self.settled()].to_vec())
    }

    /// Takes a new summary.
    pub(super) fn summarised(&mut self, summary: Summary) {
        self.failed_at_tokens = 0;
        self.summary = Some(summary);
    }

    /// Remembers that there is none.
    pub(super) fn not_summarised(&mut self) {
        self.failed_at_tokens = self.without_summary();
    }

    /// Tokens of settled messages that no summary covers.
    fn without_summary(&self) -> usize {
        let covered = self.summary.as_ref().map_or(0, |summary| summary.through);
        self.tokens_before[self.settled()].saturating_sub(self.tokens_before[covered])
    }

    /// Messages before calls that wait for their answer.
    pub(super) fn settled(&self) -> usize {
        self.units.last().filter(|unit| unit.is_open()).map_or(self.messages.len(), |unit| unit.range.start)
    }

    /// The next messages without a vector, with what is to be made one of.
    pub(super) fn to_embed(&self) -> Vec<(usize, String)> {
        let missing = (0..self.len()).filter(|place| !self.vectors.has(*place));
        let texts = missing.map(|place| (place, searched(&self.messages[place].message)));
        let texts = texts.map(|(place, text)| (place, embedded(&text).to_string()));
        texts.filter(|(_, text)| !text.is_empty()).take(EMBEDDED_TEXTS_MAX).collect()
    }
}
