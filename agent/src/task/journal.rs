//! What a task has done, durably: its port, and the file behind it.

use std::path::PathBuf;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::log::{Log, LogError};
use crate::model::{Message, Usage};

/// Something that a task has done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Step {
    /// It began, with so many messages in its conversation.
    Begun {
        /// How many.
        messages: u64,
    },
    /// The model answered.
    AnswerStored {
        /// Number of the turn, from 1 on.
        turn: u32,
        /// The answer.
        message: Message,
        /// What the provider counted.
        usage: Usage,
    },
    /// A tool call is about to be carried out.
    ToolBegun {
        /// Of the call.
        key: String,
    },
    /// A tool call has its result.
    ToolEnded {
        /// Of the call.
        key: String,
        /// What the model is told.
        result: ToolDone,
    },
}

/// What came of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolDone {
    /// What the model is told.
    pub content: String,
    /// Whether it failed.
    pub is_error: bool,
}

/// What a task has done, for its next life.
#[async_trait]
pub trait Journal: Send + Sync {
    /// All steps so far, in order.
    ///
    /// # Errors
    /// They cannot be read.
    async fn load(&self) -> Result<Vec<Step>, LogError>;

    /// Adds a step. It is kept when this returns.
    ///
    /// # Errors
    /// It is not kept.
    async fn record(&self, step: Step) -> Result<(), LogError>;
}

/// A journal in a file of its own.
#[derive(Debug)]
pub struct FileJournal {
    path: PathBuf,
    log: Mutex<Option<Log>>,
}

impl FileJournal {
    /// The journal in this file, which is made when it is used first, in a directory that is there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), log: Mutex::new(None) }
    }
}

#[async_trait]
impl Journal for FileJournal {
    async fn load(&self) -> Result<Vec<Step>, LogError> {
        let mut held = self.log.lock().await;
        let (log, steps) = Log::open(self.path.clone()).await?;
        *held = Some(log);
        Ok(steps)
    }

    async fn record(&self, step: Step) -> Result<(), LogError> {
        let mut held = self.log.lock().await;
        let log = match held.as_ref() {
            Some(log) => log,
            None => held.insert(Log::open::<Step>(self.path.clone()).await?.0),
        };
        log.append(&step).await
    }
}
