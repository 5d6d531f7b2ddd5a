//! What the lines of `claude` mean.

use std::collections::BTreeMap;
use std::time::Instant;

use sandbox_agent::model::{ToolCall, Usage};
use sandbox_agent::profile::{Policy, Profile};
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::{Decision, RunFailure};
use serde_json::{Value, json};

use super::config::policy_of;
use super::event::{Block, Closing, Content, Delta, Event, Message, Piece, Question, System, Tokens};
use crate::backend::Desk;
use crate::backends::access::Access;
use crate::backends::drive::{Step, Story};
use crate::backends::tally::{Tally, micro_usd, too_dear};

/// What a model is told of a call that its customer, or their profile, refuses.
const REFUSED: &str = "this call was refused";
/// In the words of a provider whose model takes no such long conversation.
const TOO_LONG: &str = "prompt is too long";

/// The story of one run.
pub(super) struct ClaudeStory {
    access: Access,
    profile: Profile,
    tally: Tally,
    /// Of the answer that is coming.
    answer: Usage,
    /// Calls whose result has not come, with their tools and arguments.
    open: BTreeMap<String, Open>,
}

struct Open {
    name: String,
    input: Value,
    since: Instant,
}

impl ClaudeStory {
    pub(super) fn new(access: Access, profile: Profile) -> Self {
        let (tally, answer) = (Tally::default(), Usage::default());
        Self { access, profile, tally, answer, open: BTreeMap::new() }
    }

    pub(super) fn into_tally(self) -> Tally {
        self.tally
    }

    fn step(&mut self, event: Event, desk: &dyn Desk) -> Step {
        match event {
            Event::System(system) => return self.system(system, desk),
            Event::Stream { event } => return self.piece(event, desk),
            Event::Assistant { message } | Event::User { message } => self.blocks(message, desk),
            Event::ControlRequest { request_id, request } => return self.asked(request_id, request),
            Event::Result(closing) => {
                self.close(closing, desk);
                return Step::Close;
            }
            Event::Other => tracing::debug!("claude told something that is not known here"),
        }
        Step::GoOn
    }

    fn system(&mut self, System { subtype, session_id, error_status }: System, desk: &dyn Desk) -> Step {
        match (subtype.as_str(), error_status) {
            ("init", _) => self.tally.session = Some(session_id),
            // It would ask again, with the same key.
            ("api_retry", Some(401 | 403)) => return Step::Stop(self.access.refused()),
            ("api_retry", status) => {
                let status = status.map_or_else(String::new, |status| format!(" with status {status}"));
                desk.tell(Told::Warning { message: format!("the provider failed{status} and is asked again") });
            }
            _ => {}
        }
        Step::GoOn
    }

    fn piece(&mut self, piece: Piece, desk: &dyn Desk) -> Step {
        match piece {
            Piece::MessageStart { .. } if self.tally.is_dear(self.profile.cost_micro_usd_max) => {
                return Step::Stop(too_dear());
            }
            Piece::MessageStart { message } => {
                self.answer = of(message.usage);
                self.tally.result.clear();
            }
            Piece::ContentBlockDelta { delta: Delta::Text { text } } => {
                self.tally.result.push_str(&text);
                desk.tell(Told::Message { text });
            }
            Piece::ContentBlockDelta { delta: Delta::Thinking { thinking: text } } => {
                desk.tell(Told::Reasoning { text });
            }
            // These counts are those of the whole answer so far.
            Piece::MessageDelta { usage } => {
                let usage = of(usage);
                self.answer.input_tokens = self.answer.input_tokens.max(usage.input_tokens);
                self.answer.output_tokens = self.answer.output_tokens.max(usage.output_tokens);
            }
            Piece::MessageStop => self.tally.turn(std::mem::take(&mut self.answer), &self.access, desk),
            Piece::ContentBlockDelta { delta: Delta::Other } | Piece::Other => {}
        }
        Step::GoOn
    }

    fn blocks(&mut self, message: Message, desk: &dyn Desk) {
        let Content::Blocks(blocks) = message.content else { return };
        for block in blocks {
            match block {
                Block::ToolUse { id, name, input } => {
                    desk.tell(Told::ToolCall { id: id.clone(), name: name.clone(), arguments: input.clone() });
                    self.open.insert(id, Open { name, input, since: Instant::now() });
                }
                Block::ToolResult { tool_use_id: id, content, is_error } => {
                    let open = self.open.remove(&id);
                    let (name, since) = open.map(|open| (open.name, open.since)).unzip();
                    let duration = since.map_or_else(Default::default, |since| since.elapsed());
                    desk.tell(Told::ToolResult {
                        id,
                        name: name.unwrap_or_default(),
                        content: words(&content),
                        is_error,
                        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
                    });
                }
                Block::Other => {}
            }
        }
    }

    fn asked(&mut self, request: String, question: Question) -> Step {
        let Question::CanUseTool { tool_name: name, tool_use_id: id, input } = question else {
            let error = json!({ "subtype": "error", "request_id": request, "error": "not known here" });
            return Step::Say(line(&json!({ "type": "control_response", "response": error })));
        };
        let policy = policy_of(&self.profile, &name);
        self.open.insert(request.clone(), Open { name: name.clone(), input: input.clone(), since: Instant::now() });
        match policy {
            Policy::Allow => Step::Say(self.answer(&request, Decision::Allow)),
            Policy::Deny => Step::Say(self.answer(&request, Decision::Deny)),
            Policy::Ask => Step::Ask { request, call: ToolCall { id, name, arguments: input } },
        }
    }

    fn close(&mut self, closing: Closing, desk: &dyn Desk) {
        self.conclude_cost(&closing, desk);
        let Closing { subtype, is_error, result, api_error_status: status, terminal_reason, .. } = closing;
        let failure = match (subtype.as_str(), status) {
            ("success", _) if !is_error => {
                self.tally.result = result;
                return;
            }
            ("error_max_turns", _) => (RunFailure::TurnLimit, "all turns were taken".to_owned()),
            ("error_max_budget_usd", _) => too_dear(),
            (_, Some(401 | 403)) => self.access.refused(),
            _ if result.to_ascii_lowercase().contains(TOO_LONG) => (RunFailure::ContextOverflow, result),
            (_, Some(status)) => {
                (RunFailure::ProviderFailed, format!("the provider failed with status {status}: {result}"))
            }
            _ if terminal_reason == "api_error" => {
                (RunFailure::ProviderFailed, format!("the provider failed: {result}"))
            }
            (subtype, _) => (RunFailure::Internal, format!("claude failed: {subtype} {result}")),
        };
        self.tally.fail(failure);
    }

    /// The last line counts all calls, also those whose pieces were not told.
    fn conclude_cost(&mut self, closing: &Closing, desk: &dyn Desk) {
        let (told, told_cost, all) = (self.tally.usage, self.tally.cost_micro_usd, of(closing.usage));
        let input_tokens = told.input_tokens.max(all.input_tokens);
        let output_tokens = told.output_tokens.max(all.output_tokens);
        self.tally.usage = Usage { input_tokens, output_tokens };
        // For a model that it does not know, it names some price.
        let is_known = !closing.models.is_empty() && closing.models.values().all(|model| model.cost_basis != "unknown");
        let its_own = micro_usd(closing.total_cost_usd).filter(|_| is_known);
        self.tally.cost_micro_usd = self.access.cost_micro_usd(self.tally.usage).or(its_own);
        if (self.tally.usage, self.tally.cost_micro_usd) != (told, told_cost) {
            self.tally.tell(desk);
        }
    }
}

impl Story for ClaudeStory {
    fn out(&mut self, line: &str, desk: &dyn Desk) -> Step {
        match serde_json::from_str(line) {
            Ok(event) => self.step(event, desk),
            Err(error) => {
                tracing::warn!(%error, "claude told something malformed");
                desk.tell(Told::Warning { message: "claude told something malformed, which is left out".to_owned() });
                Step::GoOn
            }
        }
    }

    fn err(&mut self, _line: &str) -> Step {
        Step::GoOn
    }

    fn answer(&self, request: &str, decision: Decision) -> String {
        let answer = match decision {
            Decision::Allow => {
                let input = self.open.get(request).map_or(Value::Null, |open| open.input.clone());
                json!({ "behavior": "allow", "updatedInput": input })
            }
            Decision::Deny => json!({ "behavior": "deny", "message": REFUSED }),
        };
        let response = json!({ "subtype": "success", "request_id": request, "response": answer });
        line(&json!({ "type": "control_response", "response": response }))
    }
}

fn line(value: &Value) -> String {
    format!("{value}\n")
}

fn of(tokens: Tokens) -> Usage {
    let Tokens { input_tokens, cache_creation_input_tokens, cache_read_input_tokens, output_tokens } = tokens;
    Usage { input_tokens: input_tokens + cache_creation_input_tokens + cache_read_input_tokens, output_tokens }
}

/// The words of a result: a text, or blocks of which some hold a text.
fn words(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(|block| block["text"].as_str().unwrap_or_default()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

#[cfg(test)]
mod tests;
