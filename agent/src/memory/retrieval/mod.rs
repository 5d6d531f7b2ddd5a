//! Finding again what is like a question: by its words, or by its meaning where somebody makes vectors.

mod lexical;
mod vectors;

use std::fmt::Write as _;

pub(super) use self::lexical::Lexical;
pub(super) use self::vectors::{BadVector, Vectors};
use crate::limits::EMBEDDED_TEXT_BYTES_MAX;
use crate::model::Message;

/// What is looked for.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) text: &'a str,
    /// Where there is one.
    pub(super) vector: Option<&'a [f32]>,
}

/// A way to find messages.
pub(super) trait Retrieval {
    /// Places of the messages most like the question, best first, at most so many, and only those that are wanted.
    fn find(&self, question: Question<'_>, wanted: &dyn Fn(usize) -> bool, most: usize) -> Vec<usize>;
}

/// By meaning what has a vector, by its words what has none yet.
pub(super) struct Both<'a> {
    pub(super) lexical: &'a Lexical,
    pub(super) vectors: &'a Vectors,
}

impl Retrieval for Both<'_> {
    fn find(&self, question: Question<'_>, wanted: &dyn Fn(usize) -> bool, most: usize) -> Vec<usize> {
        if !question.vector.is_some_and(|vector| self.vectors.is_comparable(vector)) {
            return self.lexical.find(question, wanted, most);
        }
        let by_meaning = self.vectors.find(question, wanted, most);
        let without_vector = |place: usize| wanted(place) && !self.vectors.has(place);
        let by_words = self.lexical.find(question, &without_vector, most);
        // The scores of the two cannot be compared, their ranks can.
        let rounds = by_meaning.len().max(by_words.len());
        let ranks = (0..rounds).flat_map(|rank| [by_meaning.get(rank), by_words.get(rank)]);
        ranks.flatten().copied().take(most).collect()
    }
}

/// What of a message is searched: its words, and what it calls with which arguments.
pub(super) fn searched(message: &Message) -> String {
    let mut text = message.content.clone();
    for call in &message.tool_calls {
        // Writing to a string does not fail.
        write!(text, "\n{} {}", call.name, call.arguments).unwrap_or_default();
    }
    text
}

/// What of a text is made a vector of; empty where there is nothing to make one of.
pub(super) fn embedded(text: &str) -> &str {
    let text = text.trim();
    &text[..text.floor_char_boundary(EMBEDDED_TEXT_BYTES_MAX)]
}
