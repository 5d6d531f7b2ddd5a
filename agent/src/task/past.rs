//! What former lives of a task have done.

use std::collections::{BTreeMap, BTreeSet};

use super::journal::{Step, ToolDone};
use crate::model::{Message, Usage};

/// All of it, by what it is asked for.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Messages of the conversation before the task.
    pub(super) messages: Option<u64>,
    answers: BTreeMap<u32, (Message, Usage)>,
    begun: BTreeSet<String>,
    ended: BTreeMap<String, ToolDone>,
}

impl Past {
    pub(super) fn of(steps: Vec<Step>) -> Self {
        let mut past = Self::default();
        for step in steps {
            match step {
                Step::Begun { messages } => past.messages = Some(messages),
                Step::AnswerStored { turn, message, usage } => {
                    past.answers.insert(turn, (message, usage));
                }
                Step::ToolBegun { key } => {
                    past.begun.insert(key);
                }
                Step::ToolEnded { key, result } => {
                    past.ended.insert(key, result);
                }
            }
        }
        past
    }

    pub(super) fn answer(&mut self, turn: u32) -> Option<(Message, Usage)> {
        self.answers.remove(&turn)
    }

    pub(super) fn has_begun(&self, key: &str) -> bool {
        self.begun.contains(key)
    }

    pub(super) fn ended(&mut self, key: &str) -> Option<ToolDone> {
        self.ended.remove(key)
    }
}
