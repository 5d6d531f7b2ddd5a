//! What tools fail with, and how each becomes a [`ToolError`].

use std::error::Error;

use super::ports::{FilesError, SandboxError};
use crate::ToolError;

/// Why a tool failed, as the tool came by it.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The tool's own words.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// Of the sandbox.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// Of the files.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// Its mode does not give it what it wants to use.
    #[error("the tool's sandbox mode does not give it this")]
    OutOfReach,
    /// Anything else.
    #[error("{0}")]
    Other(#[source] Box<dyn Error + Send + Sync>),
}

impl Failure {
    pub(super) fn told(&self, tool: &str) -> ToolError {
        match self {
            Self::Tool(error) => error.clone(),
            Self::Sandbox(SandboxError::Fsp(error)) => ToolError::from_fsp(tool, error),
            Self::Sandbox(SandboxError::Unknown) => unknown(tool),
            Self::Files(FilesError::Refused { refusal, message }) => {
                ToolError::execution(tool, message).retryable(true).with("code", refusal.to_string())
            }
            Self::Files(error @ FilesError::Unavailable(_)) => {
                let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
                ToolError::sandbox(tool, &format!("Sandbox error: {error}{cause}")).retryable(true)
            }
            Self::OutOfReach => ToolError::from_error(tool, self),
            Self::Other(error) => ToolError::execution(tool, &error.to_string()),
        }
    }
}

/// A call began, and nobody knows its end.
pub(super) fn unknown(tool: &str) -> ToolError {
    ToolError::execution(
        tool,
        "The agent was restarted while this call was under way. It may have been carried out in full, in part or not at \
         all: look at what is there before it is done again",
    )
}
