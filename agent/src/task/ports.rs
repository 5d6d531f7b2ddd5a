//! Who a task speaks with, beside its model and its tools.

use std::error::Error;

use async_trait::async_trait;
use sandbox_protocol::agent::Decision;
use sandbox_protocol::agent::event::Told;

use crate::model::{Message, ToolCall};

/// Who hears of a run, and answers for its customer.
#[async_trait]
pub trait Desk: Send + Sync {
    /// Tells its readers. All but the first and the last event are told by backends.
    fn tell(&self, told: Told);

    /// Asks the customer about a call, by the profile's time and default, and tells its readers of both.
    async fn ask(&self, call: &ToolCall) -> Decision;
}

/// A conversation that outlives its tasks.
#[async_trait]
pub trait Conversation: Send + Sync {
    /// Adds all of these, durably, or none.
    ///
    /// # Errors
    /// None is added, or nobody knows.
    async fn append(&self, messages: Vec<Message>) -> Result<(), ConversationError>;

    /// How many messages were ever added.
    ///
    /// # Errors
    /// It cannot be read.
    async fn count(&self) -> Result<u64, ConversationError>;

    /// What a model is told before it answers: first the system prompt, then what fits of the conversation.
    ///
    /// # Errors
    /// It cannot be read.
    async fn messages(&self, system_prompt: &str, query: &str, room: Room) -> Result<Vec<Message>, ConversationError>;
}

/// How much a model is told of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Room {
    /// As many tokens as it is meant to be told.
    Whole,
    /// Half as many: the model could not take more.
    Half,
}

/// A conversation cannot be read or kept.
#[derive(Debug, thiserror::Error)]
#[error("the conversation cannot be read or kept")]
pub struct ConversationError(#[source] pub Box<dyn Error + Send + Sync>);
