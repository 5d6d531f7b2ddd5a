//! What went wrong with a tool, as data: what kind of failure, whether trying again may help, and what a model is told.

use std::any::{Any, type_name};
use std::error::Error;
use std::fmt;

use sandbox_fsp::{ErrorKind, FspError};
use tokio::task::JoinError;

use crate::detail::Detail;
use crate::limits::{CONTEXT_BYTES_MAX, CONTEXT_LEVELS_MAX, CONTEXT_TEXT_BYTES_MAX, MESSAGE_BYTES_MAX};
use crate::redact::cleaned;

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorType {
    /// The tool was called with what it does not take.
    Validation,
    /// It was called rightly and failed.
    Execution,
    /// It did not end in its time.
    Timeout,
    /// It was to run in a sandbox, which was not to be had.
    Sandbox,
}

impl fmt::Display for ErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Validation => "validation",
            Self::Execution => "execution",
            Self::Timeout => "timeout",
            Self::Sandbox => "sandbox",
        })
    }
}

/// A failed tool call. Its words are bounded and without secrets from its making on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{tool_name}: {message}")]
pub struct ToolError {
    tool_name: String,
    error_type: ErrorType,
    message: String,
    retryable: bool,
    context: Vec<(String, Detail)>,
}

impl ToolError {
    /// The call was not what the tool takes; other parameters may do.
    pub fn validation(tool: &str, message: &str) -> Self {
        Self::new(tool, ErrorType::Validation, message).retryable(true)
    }

    /// The tool failed, and would again.
    pub fn execution(tool: &str, message: &str) -> Self {
        Self::new(tool, ErrorType::Execution, message)
    }

    /// The tool did not end in its time.
    pub fn timeout(tool: &str, limit_ms: u64) -> Self {
        Self::new(tool, ErrorType::Timeout, &format!("Execution timed out after {limit_ms}ms"))
    }

    /// The tool's sandbox was not to be had.
    pub fn sandbox(tool: &str, message: &str) -> Self {
        Self::new(tool, ErrorType::Sandbox, message)
    }

    /// Another service answered with an error status, 400 or more.
    pub fn from_api_error(tool: &str, status: u16, body: &str) -> Self {
        Self::execution(tool, &format!("API error: {status}"))
            .retryable(matches!(status, 429 | 500 | 502 | 503 | 504))
            .with("status", u64::from(status))
            .with("body", cleaned(body, CONTEXT_TEXT_BYTES_MAX))
    }

    /// The tool gave an error that is not one of these: its words, and those of what caused it.
    pub fn from_error<E: Error>(tool: &str, error: &E) -> Self {
        Self::execution(tool, &chain(error)).with("exception_type", type_name::<E>())
    }

    /// The tool panicked.
    pub fn from_panic(tool: &str, panic: &(dyn Any + Send)) -> Self {
        let words =
            panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::execution(tool, &format!("Tool crashed: {}", words.unwrap_or("panic without a message")))
    }

    /// The tool's task did not come to its end.
    pub fn from_join(tool: &str, error: JoinError) -> Self {
        match error.try_into_panic() {
            Ok(panic) => Self::from_panic(tool, &*panic),
            Err(_) => Self::execution(tool, "Tool crashed: it was aborted"),
        }
    }

    /// The tool ran, or was to run, in a sandbox.
    pub fn from_fsp(tool: &str, error: &FspError) -> Self {
        let made = match (error.kind(), error) {
            (ErrorKind::Timeout, FspError::TimedOut { limit_ms }) => Self::timeout(tool, *limit_ms),
            (ErrorKind::Timeout, _) => Self::new(tool, ErrorType::Timeout, &chain(error)),
            (ErrorKind::Execution, FspError::Server { code, message, .. }) => {
                let code = serde_json::to_value(code).unwrap_or_default();
                Self::execution(tool, message).with("code", Detail::from(&code))
            }
            (ErrorKind::Execution, _) => Self::execution(tool, &chain(error)),
            (ErrorKind::Sandbox, _) => Self::sandbox(tool, &format!("Sandbox error: {}", chain(error))),
        };
        made.retryable(error.retryable())
    }

    /// The same, with this said about trying again.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// The same, with one circumstance more. Of circumstances a model sees those of validation and execution.
    #[must_use]
    pub fn with(mut self, name: &str, detail: impl Into<Detail>) -> Self {
        self.context.push((name.to_owned(), detail.into()));
        self
    }

    /// The tool.
    pub fn tool_name(&self) -> &str {
        &self.tool_name
    }

    /// What kind of failure it is.
    pub fn error_type(&self) -> ErrorType {
        self.error_type
    }

    /// In words.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether trying again may help.
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// The circumstances, also those that no model sees.
    pub fn context(&self) -> &[(String, Detail)] {
        &self.context
    }

    /// What a model is told, as the result of its call.
    pub fn format_for_llm(&self) -> String {
        let Self { tool_name, error_type, message, retryable, .. } = self;
        let advice = if *retryable {
            "This error may be resolved by trying again with different parameters."
        } else {
            "This error is not retryable."
        };
        let told = format!("Tool `{tool_name}` failed.\nError type: {error_type}\nMessage: {message}\n{advice}");
        match error_type {
            ErrorType::Validation | ErrorType::Execution if !self.context.is_empty() => {
                format!("{told}\nContext: {}", self.shown_context())
            }
            ErrorType::Validation | ErrorType::Execution | ErrorType::Timeout | ErrorType::Sandbox => told,
        }
    }

    fn new(tool: &str, error_type: ErrorType, message: &str) -> Self {
        Self {
            tool_name: tool.to_owned(),
            error_type,
            message: cleaned(message, MESSAGE_BYTES_MAX),
            retryable: false,
            context: Vec::new(),
        }
    }

    fn shown_context(&self) -> String {
        let mut shown = String::new();
        for (name, detail) in &self.context {
            shown.push_str(if shown.is_empty() { "" } else { ", " });
            shown.push_str(name);
            shown.push_str(": ");
            // Writing to a text cannot fail.
            detail.write_as(name, &mut shown, CONTEXT_LEVELS_MAX).ok();
        }
        cleaned(&shown, CONTEXT_BYTES_MAX)
    }
}

/// An error's words and those of all that caused it.
fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push_str(&format!(": {error}"));
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests;
