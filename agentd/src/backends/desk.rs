//! A desk that keeps what it is told, for tests.

use std::sync::Mutex;

use async_trait::async_trait;
use sandbox_agent::model::ToolCall;
use sandbox_protocol::agent::Decision;
use sandbox_protocol::agent::event::Told;

use crate::backend::Desk;

/// Answers every question so.
pub(super) struct Kept {
    told: Mutex<Vec<Told>>,
}

impl Kept {
    pub(super) fn new() -> Self {
        Self { told: Mutex::default() }
    }

    /// What was told, each by its name and what matters of it.
    pub(super) fn shown(&self) -> Vec<String> {
        self.told.lock().unwrap().iter().map(shown).collect()
    }
}

#[async_trait]
impl Desk for Kept {
    fn tell(&self, told: Told) {
        self.told.lock().unwrap().push(told);
    }

    async fn ask(&self, _call: &ToolCall) -> Decision {
        Decision::Deny
    }
}

fn shown(told: &Told) -> String {
    let name = told.name();
    match told {
        Told::Message { text } | Told::Reasoning { text } => format!("{name} {text}"),
        Told::Warning { message } => format!("{name} {message}"),
        Told::ToolCall { id, name: tool, .. } => format!("{name} {id} {tool}"),
        Told::ToolResult { id, name: tool, is_error, .. } => format!("{name} {id} {tool} {is_error}"),
        Told::Usage { input_tokens, output_tokens, .. } => format!("{name} {input_tokens} {output_tokens}"),
        other => format!("{name} {other:?}"),
    }
}
