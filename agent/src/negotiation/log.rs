//! A conversation between the critic and one decision maker, and how a model is shown it.

use sandbox_protocol::agent::negotiation::{CRITIC, ConversationEntry};

use super::call::Maker;
use crate::limits::NEGOTIATION_LAST_ROUNDS_KEPT;

/// How the heading of an entry begins.
const HEADING: &str = "**[Round";
/// What stands between two entries.
const BETWEEN: &str = "\n\n---\n\n";

/// A conversation.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    pub(super) entries: Vec<ConversationEntry>,
    pub(super) summary: Option<Summary>,
}

/// What stands for rounds that the model is not shown any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Summary {
    /// The last of these rounds; the first is 2.
    pub(super) through: u32,
    pub(super) text: String,
}

impl Log {
    /// Appends an entry.
    pub(super) fn append(&mut self, role: &str, content: String, round: u32) {
        self.entries.push(ConversationEntry { role: role.to_owned(), content, round });
    }

    /// Rounds that the decision maker has answered.
    pub(super) fn rounds(&self, maker: Maker) -> u32 {
        self.entries.iter().filter(|entry| entry.role == maker.id()).map(|entry| entry.round).max().unwrap_or(0)
    }

    /// The conversation as a model is shown it: all of it, or the first round, the summary, and the rounds behind it.
    pub(super) fn shown(&self) -> String {
        let Some(summary) = &self.summary else { return forgery_proof(&self.entries) };
        let first = forgery_proof(&self.of_rounds(1, 1));
        let rest = forgery_proof(&self.of_rounds(summary.through + 1, u32::MAX));
        [first, summary.shown(), rest].join(BETWEEN)
    }

    /// Entries of these rounds, the last included.
    pub(super) fn of_rounds(&self, first: u32, last: u32) -> Vec<ConversationEntry> {
        self.entries.iter().filter(|entry| (first..=last).contains(&entry.round)).cloned().collect()
    }

    /// Rounds whose entries a summary could stand for besides those that it stands for already: all but the first and the last
    /// ones. `None` where there are none.
    pub(super) fn shortenable(&self) -> Option<(u32, u32)> {
        let newest = self.entries.last()?.round;
        let first = self.summary.as_ref().map_or(2, |summary| summary.through + 1);
        let last = newest.saturating_sub(NEGOTIATION_LAST_ROUNDS_KEPT);
        (first <= last).then_some((first, last))
    }
}

impl Summary {
    pub(super) fn shown(&self) -> String {
        let text = without_headings(&self.text);
        format!("**[Rounds 2-{}] SUMMARY:**\n{text}", self.through)
    }
}

/// A conversation as the design formats it.
pub fn format_transcript(conversation: &[ConversationEntry]) -> String {
    let entries: Vec<_> = conversation.iter().map(|entry| formatted(entry, &entry.content)).collect();
    entries.join(BETWEEN)
}

/// The same, but nobody's words can look like another entry.
pub(super) fn forgery_proof(conversation: &[ConversationEntry]) -> String {
    let entries: Vec<_> =
        conversation.iter().map(|entry| formatted(entry, &without_headings(&entry.content))).collect();
    entries.join(BETWEEN)
}

fn formatted(entry: &ConversationEntry, content: &str) -> String {
    let round = entry.round;
    match entry.role.as_str() {
        CRITIC => format!("{HEADING} {round}] CRITIC:**\n{content}"),
        maker => format!("{HEADING} {round}] DECISION MAKER ({maker}):**\n{content}"),
    }
}

fn without_headings(content: &str) -> String {
    content.replace(HEADING, "\\**[Round")
}
