//! The native agent: a model is asked, what it wants done is done, and it is asked again until it wants nothing more.
//!
//! A turn is one call of the model with the tool calls of its answer. The context is built anew for each; a turn is added to
//! the conversation whole, so that no conversation ever holds a call without its result. Every tool call passes the gate.
//!
//! What was done is journaled before anything rests on it. A task that died is run again with the same journal: it asks no
//! model for an answer that it has, and carries out no call that ended. Dropping [`run`] is such a death; a task that is to
//! end is cancelled.
//!
//! Not here: who the readers of a task are, and how they answer; how a conversation is remembered.

mod course;
mod gate;
mod halt;
pub mod journal;
mod ledger;
mod past;
pub mod ports;
mod prompt;
mod repeats;

use sandbox_protocol::agent::RunFailure;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::course::Course;
use self::halt::Halt;
use self::journal::Journal;
pub use self::ledger::Price;
use self::ports::{Conversation, Desk};
use crate::model::{Model, Usage};
use crate::profile::Profile;
use crate::tools::Toolbox;

/// What is to be done.
#[derive(Debug, Clone)]
pub struct TaskOrder {
    /// Id of the run.
    pub run: String,
    /// What the customer said.
    pub prompt: String,
    /// What else the customer said, for the model to see as data.
    pub context: Map<String, Value>,
    /// Most calls of the model; 0 is taken for 1.
    pub max_turns: u32,
    /// Who the agent is.
    pub profile: Profile,
    /// Whose key a provider does not accept, if it does not.
    pub key_of: KeyOf,
    /// When its time is over.
    pub deadline: Instant,
    /// Cancelled when nobody wants it any more.
    pub cancel: CancellationToken,
}

/// Who gave the key of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyOf {
    /// The customer.
    Customer,
    /// The operator.
    Operator,
}

/// What a task works with. A conversation is one task's at a time.
#[derive(Clone, Copy)]
pub struct TaskPorts<'a> {
    /// Who is asked.
    pub model: &'a dyn Model,
    /// What it is told of the past.
    pub conversation: &'a dyn Conversation,
    /// What it may have done.
    pub tools: &'a Toolbox,
    /// Who hears of it.
    pub desk: &'a dyn Desk,
    /// What was done, for the next life.
    pub journal: &'a dyn Journal,
    /// What tokens cost.
    pub price: Price<'a>,
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskEnd {
    /// The agent's last words.
    pub result: String,
    /// Why it did not come to its own end, with a sentence for the customer.
    pub failure: Option<(RunFailure, String)>,
    /// Calls of the model whose answer was used, in all lives.
    pub turns: u32,
    /// Tokens of them.
    pub usage: Usage,
    /// Millionths of a US dollar, where prices are known.
    pub cost_micro_usd: Option<u64>,
}

/// Carries a task out, or on.
pub async fn run(order: &TaskOrder, ports: TaskPorts<'_>) -> TaskEnd {
    let mut course = Course::new(order, ports);
    let ended = match course.recall().await {
        Err(halt) => Err(halt),
        Ok(()) => tokio::select! {
            biased;
            () = order.cancel.cancelled() => Err(Halt::new(RunFailure::Cancelled, "the task was cancelled")),
            () = tokio::time::sleep_until(order.deadline) => {
                Err(Halt::new(RunFailure::Timeout, "the time of the task is over"))
            }
            ended = course.go() => ended,
        },
    };
    course.end(ended).await
}
