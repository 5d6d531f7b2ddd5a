//! The one place that every tool call passes: whether the profile has the tool, whether the customer allows the call, the
//! journal before and after it, and its events.

use std::time::Duration;

use sandbox_protocol::agent::Decision;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::limits::EXEC_ID_BYTES_MAX;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::halt::Halt;
use super::journal::{Step, ToolDone};
use super::past::Past;
use super::{TaskOrder, TaskPorts};
use crate::ToolError;
use crate::limits::{TOOL_CALLS_MAX, TOOL_NAME_BYTES_MAX, TOOL_RESULT_BYTES_MAX, TOOL_RESULT_BYTES_MIN};
use crate::model::ToolCall;
use crate::profile::{Policy, Profile};
use crate::redact::cleaned;
use crate::tools::Call;

/// The gate of a task.
#[derive(Clone, Copy)]
pub(super) struct Gate<'a> {
    order: &'a TaskOrder,
    ports: TaskPorts<'a>,
}

/// Where in a task a call is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    /// Number of the turn, from 1 on.
    pub(super) turn: u32,
    /// Number in its answer, from 1 on.
    pub(super) number: usize,
    /// Calls of the answer.
    pub(super) of: usize,
}

impl Spot {
    /// By which readers know the call: providers may give the same id in two answers.
    fn id(self) -> String {
        format!("{}-{}", self.turn, self.number)
    }

    /// By which the sandbox knows the call, in every life of the task: nothing of it is the model's choice.
    fn key(self, run: &str) -> String {
        let key = format!("{run}-{}", self.id());
        if key.len() <= EXEC_ID_BYTES_MAX { key } else { format!("{}-{}", hex::encode(Sha256::digest(run)), self.id()) }
    }

    /// The calls of an answer share what there is room for: about a quarter of what the model is told.
    fn result_bytes_max(self, profile: &Profile) -> usize {
        (profile.context_tokens / self.of.max(1)).clamp(TOOL_RESULT_BYTES_MIN, TOOL_RESULT_BYTES_MAX)
    }
}

impl<'a> Gate<'a> {
    pub(super) fn new(order: &'a TaskOrder, ports: TaskPorts<'a>) -> Self {
        Self { order, ports }
    }

    /// Whether the profile has the tool.
    pub(super) fn has(&self, tool: &str) -> bool {
        self.order.profile.tools.as_ref().is_none_or(|tools| tools.iter().any(|name| name == tool))
    }

    /// Lets a call through, or tells why not; a call that passed in a former life has the outcome it had.
    pub(super) async fn pass(&self, past: &mut Past, call: &ToolCall, spot: Spot) -> Result<ToolDone, Halt> {
        let key = spot.key(&self.order.run);
        if let Some(done) = past.ended(&key) {
            return Ok(done);
        }
        let begun = past.has_begun(&key);
        let call = ToolCall { id: spot.id(), ..call.clone() };
        let ToolCall { id, name, arguments } = call.clone();
        self.ports.desk.tell(Told::ToolCall { id, name, arguments });
        let (outcome, took) = match self.admit(&call, spot, begun).await {
            Err(refused) => (Err(refused), Duration::ZERO),
            Ok(()) => {
                if !begun {
                    self.ports.journal.record(Step::ToolBegun { key: key.clone() }).await?;
                }
                let (since, call) = (Instant::now(), self.call(&call, spot, &key, begun));
                (self.ports.tools.execute(call).await, since.elapsed())
            }
        };
        let done = done(outcome);
        self.ports.journal.record(Step::ToolEnded { key, result: done.clone() }).await?;
        let (id, name, duration_ms) = (call.id, call.name, took.as_millis() as u64);
        let ToolDone { content, is_error } = done.clone();
        self.ports.desk.tell(Told::ToolResult { id, name, content, is_error, duration_ms });
        Ok(done)
    }

    /// Whether the call may be carried out. One that began had been let through.
    async fn admit(&self, call: &ToolCall, spot: Spot, begun: bool) -> Result<(), ToolError> {
        let name = cleaned(&call.name, TOOL_NAME_BYTES_MAX);
        if spot.number > TOOL_CALLS_MAX {
            let message = format!("more than {TOOL_CALLS_MAX} calls in one answer; make this one in the next");
            return Err(ToolError::execution(&name, &message).retryable(true));
        }
        if !self.has(&call.name) {
            return Err(ToolError::validation(&name, "this agent does not have the tool").retryable(false));
        }
        if begun {
            return Ok(());
        }
        match self.order.profile.approvals.of(&call.name) {
            Policy::Allow => Ok(()),
            Policy::Deny => Err(ToolError::execution(&name, "This agent may not use the tool; find another way")),
            Policy::Ask => match self.ports.desk.ask(call).await {
                Decision::Allow => Ok(()),
                Decision::Deny => {
                    Err(ToolError::execution(&name, "The user did not approve this call; do not repeat it"))
                }
            },
        }
    }

    fn call<'c>(&self, call: &'c ToolCall, spot: Spot, key: &'c str, begun: bool) -> Call<'c> {
        let result_bytes_max = spot.result_bytes_max(&self.order.profile);
        Call { name: &call.name, arguments: &call.arguments, key, begun, result_bytes_max }
    }
}

fn done(outcome: Result<String, ToolError>) -> ToolDone {
    match outcome {
        Ok(content) => ToolDone { content, is_error: false },
        Err(error) => {
            // Neither its words nor its context: both may hold what a customer said.
            tracing::debug!(error_type = %error.error_type(), "a tool failed");
            ToolDone { content: error.format_for_llm(), is_error: true }
        }
    }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::fsp::is_execution_id;

    use super::*;

    const SPOT: Spot = Spot { turn: 3, number: 2, of: 4 };

    #[test]
    fn a_key_says_where_a_call_is_and_is_always_an_execution_id() {
        assert_eq!((SPOT.id().as_str(), SPOT.key("run").as_str()), ("3-2", "run-3-2"));
        let fits = "r".repeat(EXEC_ID_BYTES_MAX - "-3-2".len());
        assert_eq!(SPOT.key(&fits), format!("{fits}-3-2"));
        let (one, other) = (SPOT.key(&format!("{fits}a")), SPOT.key(&format!("{fits}b")));
        assert!(is_execution_id(&one) && one != other, "{one}");
    }

    #[test]
    fn the_calls_of_an_answer_share_the_room() {
        let room = |context_tokens, of| {
            let profile = Profile { context_tokens, ..Profile::named("p") };
            Spot { of, ..SPOT }.result_bytes_max(&profile)
        };
        assert_eq!((room(8_000, 1), room(8_000, 4)), (8_000, 2_000));
        assert_eq!((room(8_000, 32), room(0, 1)), (TOOL_RESULT_BYTES_MIN, TOOL_RESULT_BYTES_MIN));
        assert_eq!(room(1_000_000, 1), TOOL_RESULT_BYTES_MAX);
    }
}
