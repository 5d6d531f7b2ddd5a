//! What carries a prompt or task out: the port, and what both sides of it say.

use std::collections::BTreeMap;
use std::time::Instant;

use async_trait::async_trait;
use sandbox_agent::model::Usage;
use sandbox_agent::profile::Profile;
pub use sandbox_agent::task::ports::Desk;
use sandbox_protocol::agent::{Provider, RunFailure};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

/// An agent.
#[async_trait]
pub trait Backend: Send + Sync {
    /// What customers call it.
    fn name(&self) -> &'static str;

    /// Carries an order out, and tells what happens meanwhile. It ends soon after `order.cancel` or `order.deadline`, with all
    /// that it started; its caller has the last word on how the run ended then.
    async fn run(&self, order: &Order, desk: &dyn Desk) -> Outcome;

    /// Forgets what it keeps of a session besides the session's own directory.
    ///
    /// # Errors
    /// It is kept, or in part.
    async fn forget(&self, _session: &str) -> Result<(), ForgetError> {
        Ok(())
    }
}

/// Why a session is not forgotten.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// Somebody works in it.
    #[error("the session is in use")]
    InUse,
    /// What is kept of it cannot be removed.
    #[error("what is kept of the session cannot be removed")]
    Kept(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Order {
    /// Id of the run.
    pub id: String,
    /// One turn, or as many as are needed.
    pub is_prompt: bool,
    /// What the customer said.
    pub prompt: String,
    /// Other keys of the customer's `context_json`, for the model.
    pub context: Map<String, Value>,
    /// The session.
    pub session: String,
    /// Whether the session has been used before, by this backend.
    pub continues: bool,
    /// Whether the run was begun in a former life of this process.
    pub resumed: bool,
    /// Who the agent is.
    pub profile: Profile,
    /// The model that the customer named, or empty.
    pub model: String,
    /// Where the model is, as the customer said.
    pub provider: Option<Provider>,
    /// The customer's environment.
    pub env: BTreeMap<String, String>,
    /// Most calls of the model; never 0.
    pub max_turns: u64,
    /// When its time is over.
    pub deadline: Instant,
    /// Cancelled when nobody wants it any more.
    pub cancel: CancellationToken,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The agent's last words.
    pub result: String,
    /// Why it did not come to its own end, with a sentence for the customer.
    pub failure: Option<(RunFailure, String)>,
    /// Calls of the model whose answer was used.
    pub turns: u32,
    /// Tokens of all calls.
    pub usage: Usage,
    /// Millionths of a US dollar, where prices are known.
    pub cost_micro_usd: Option<u64>,
}
