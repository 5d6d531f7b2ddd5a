//! What the lines of `opencode run --format json` mean.

use sandbox_agent::model::Usage;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::{Decision, RunFailure};
use serde::Deserialize;
use serde_json::Value;

use crate::backend::{Desk, Order};
use crate::backends::access::Access;
use crate::backends::drive::{Step, Story};
use crate::backends::limits::PROVIDER_ATTEMPTS_MAX;
use crate::backends::tally::{Failure, Tally, shown, too_dear};

/// A line of the program's log about an attempt that failed, and what comes before its reason.
const FAILED_ATTEMPT: &str = "message=\"stream error\"";
const REASON: &str = "error.error=";
/// What the program calls a call of a tool that it does not have.
const NO_TOOL: &str = "invalid";

/// A line of stdout.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "sessionID")]
    session: String,
    #[serde(flatten)]
    body: Body,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Body {
    StepStart,
    Text {
        part: TextPart,
    },
    Reasoning {
        part: TextPart,
    },
    ToolUse {
        part: ToolPart,
    },
    StepFinish {
        part: StepPart,
    },
    Error {
        error: ErrorPart,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct TextPart {
    text: String,
}

#[derive(Debug, Deserialize)]
struct ToolPart {
    tool: String,
    #[serde(rename = "callID")]
    call: String,
    state: ToolState,
}

#[derive(Debug, Deserialize)]
struct ToolState {
    status: String,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    output: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    time: Span,
}

#[derive(Debug, Default, Deserialize)]
struct Span {
    #[serde(default)]
    start: u64,
    #[serde(default)]
    end: u64,
}

#[derive(Debug, Deserialize)]
struct StepPart {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    tokens: Tokens,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    input: u64,
    output: u64,
    reasoning: u64,
    cache: Cache,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cache {
    read: u64,
    write: u64,
}

#[derive(Debug, Deserialize)]
struct ErrorPart {
    #[serde(default)]
    name: String,
    #[serde(default)]
    data: ErrorData,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ErrorData {
    message: String,
    status_code: Option<u16>,
}

/// The story of one run.
pub(super) struct OpencodeStory {
    access: Access,
    turns_max: u64,
    cost_micro_usd_max: u64,
    tally: Tally,
    /// Attempts at an answer that failed since the last one.
    failed_attempts: u32,
}

impl OpencodeStory {
    pub(super) fn new(order: &Order, access: Access) -> Self {
        Self {
            access,
            turns_max: order.max_turns,
            cost_micro_usd_max: order.profile.cost_micro_usd_max,
            tally: Tally::default(),
            failed_attempts: 0,
        }
    }

    pub(super) fn into_tally(self) -> Tally {
        self.tally
    }

    fn step(&mut self, body: Body, desk: &dyn Desk) -> Step {
        match body {
            Body::StepStart => self.tally.result.clear(),
            Body::Text { part } => {
                self.tally.result.push_str(&part.text);
                desk.tell(Told::Message { text: part.text });
            }
            Body::Reasoning { part } => desk.tell(Told::Reasoning { text: part.text }),
            Body::ToolUse { part } => tell_tool(part, desk),
            Body::StepFinish { part } => return self.turn(&part, desk),
            Body::Error { error } => return Step::Stop(self.failure(&error)),
            Body::Other => tracing::debug!("opencode told something that is not known here"),
        }
        Step::GoOn
    }

    fn turn(&mut self, part: &StepPart, desk: &dyn Desk) -> Step {
        self.failed_attempts = 0;
        let Tokens { input, output, reasoning, cache } = &part.tokens;
        let usage = Usage { input_tokens: input + cache.read + cache.write, output_tokens: output + reasoning };
        self.tally.turn(usage, &self.access, desk);
        if part.reason != "tool-calls" {
            return Step::GoOn;
        }
        if self.tally.is_dear(self.cost_micro_usd_max) {
            return Step::Stop(too_dear());
        }
        if u64::from(self.tally.turns) >= self.turns_max {
            return Step::Stop((RunFailure::TurnLimit, format!("all {} turns were taken", self.turns_max)));
        }
        Step::GoOn
    }

    fn failure(&self, error: &ErrorPart) -> Failure {
        match (error.name.as_str(), error.data.status_code) {
            ("ProviderAuthError", _) | (_, Some(401 | 403)) => self.access.refused(),
            ("ContextOverflowError", _) => (RunFailure::ContextOverflow, error.data.message.clone()),
            ("APIError", status) => {
                let status = status.map_or_else(String::new, |status| format!(" with status {status}"));
                (RunFailure::ProviderFailed, format!("the provider failed{status}: {}", error.data.message))
            }
            (name, _) => (RunFailure::Internal, format!("opencode failed: {name}: {}", error.data.message)),
        }
    }
}

impl Story for OpencodeStory {
    fn out(&mut self, line: &str, desk: &dyn Desk) -> Step {
        match serde_json::from_str::<Event>(line) {
            Ok(event) => {
                self.tally.session = Some(event.session);
                let step = self.step(event.body, desk);
                if let Step::Stop((failure, words)) = step { Step::Stop((failure, shown(&words))) } else { step }
            }
            Err(error) => {
                tracing::warn!(%error, "opencode told something malformed");
                desk.tell(Told::Warning { message: "opencode told something malformed, which is left out".to_owned() });
                Step::GoOn
            }
        }
    }

    fn err(&mut self, line: &str) -> Step {
        if !line.contains(FAILED_ATTEMPT) {
            return Step::GoOn;
        }
        self.failed_attempts += 1;
        if self.failed_attempts < PROVIDER_ATTEMPTS_MAX {
            return Step::GoOn;
        }
        let reason = line.split_once(REASON).map_or("", |(_, reason)| reason.trim_matches('"'));
        Step::Stop((
            RunFailure::ProviderFailed,
            format!("the provider failed {PROVIDER_ATTEMPTS_MAX} times: {}", shown(reason)),
        ))
    }

    fn answer(&self, _request: &str, _decision: Decision) -> String {
        // It asks nothing.
        String::new()
    }
}

/// The program tells of a call when it is over.
fn tell_tool(part: ToolPart, desk: &dyn Desk) {
    let ToolPart { tool, call: id, state: ToolState { status, input, output, error, time } } = part;
    let is_error = status == "error" || tool == NO_TOOL;
    let name = input["tool"].as_str().filter(|_| tool == NO_TOOL).map_or(tool.clone(), str::to_owned);
    let content = if error.is_empty() { output } else { error };
    let duration_ms = time.end.saturating_sub(time.start);
    desk.tell(Told::ToolCall { id: id.clone(), name: name.clone(), arguments: input });
    desk.tell(Told::ToolResult { id, name, content, is_error, duration_ms });
}

#[cfg(test)]
mod tests;
