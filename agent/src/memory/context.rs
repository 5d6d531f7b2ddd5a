//! What a call of the model is given of a conversation, tier by tier.

use std::time::SystemTime;

use crate::model::{Message, Role};

/// Stands before what was found again.
pub const ATTRIBUTION: &str = "[From earlier in conversation]";
/// Stands before the summary.
pub const SUMMARY_HEADER: &str = "[Conversation Summary]";

/// A conversation as one call of the model is given it. Each tier keeps where its messages come from.
#[derive(Debug, Clone, PartialEq)]
pub struct Context {
    /// The session.
    pub session_id: String,
    /// What is older, in short; without its header.
    pub summary: Option<String>,
    /// What was said last, word for word, in order.
    pub recent_messages: Vec<Remembered>,
    /// What is older and like the question, each with its attribution, in order.
    pub semantic_messages: Vec<Remembered>,
    /// Tokens of all tiers with their headers and attributions; a system prompt is not of them.
    pub total_tokens: usize,
    /// For those who observe.
    pub metadata: Metadata,
}

/// What a context consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Messages of what was said last.
    pub recent_count: usize,
    /// Messages that were found again.
    pub semantic_count: usize,
    /// Whether there is a summary.
    pub has_summary: bool,
    /// When it was built.
    pub built_at: SystemTime,
}

/// A message and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Remembered {
    /// Its place in the session, from 0.
    pub id: u64,
    /// When it was stored, in milliseconds since 1970.
    pub at_ms: u64,
    /// Its tokens, as it stands here.
    pub tokens: usize,
    /// Whether it is shorter than it was said, or lacks calls that nobody answered.
    pub is_cut: bool,
    /// The message, as it stands here.
    pub message: Message,
}

impl Remembered {
    /// Its id as an index.
    pub(super) fn place(&self) -> usize {
        usize::try_from(self.id).unwrap_or(usize::MAX)
    }
}

impl Context {
    /// What the model is given: the system prompt, if there is one, the summary, what was found again, what was said last.
    pub fn messages(&self, system_prompt: &str) -> Vec<Message> {
        let prompt = (!system_prompt.is_empty()).then(|| Message::new(Role::System, system_prompt));
        let summary = self.summary.as_deref().map(summary_message);
        let tiers = self.semantic_messages.iter().chain(&self.recent_messages);
        prompt.into_iter().chain(summary).chain(tiers.map(|one| one.message.clone())).collect()
    }
}

/// A summary as the model is given it.
pub(super) fn summary_message(text: &str) -> Message {
    Message::new(Role::System, format!("{SUMMARY_HEADER}\n{text}"))
}

/// A message that was found again, as the model is given it.
pub(super) fn attributed(message: &Message) -> Message {
    Message { content: format!("{ATTRIBUTION}\n{}", message.content), ..message.clone() }
}
