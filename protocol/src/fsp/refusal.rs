//! The nine error codes, and a message that was not taken.

use serde::{Deserialize, Serialize};

/// Why an execution has no result, or a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// Its time was over before it ran.
    Timeout,
    /// There was no memory to start it with.
    Oom,
    /// It wrote more than `max_output_bytes`, and was killed.
    OutputLimit,
    /// The language is not one of the four, or this sandbox does not have it.
    LanguageNotSupported,
    /// The message is not what the protocol demands.
    InvalidRequest,
    /// The id belongs to no execution.
    UnknownExecution,
    /// As many executions run and wait as may.
    SandboxOverloaded,
    /// A defect of the sandbox, or its end.
    InternalError,
    /// The way to the sandbox broke.
    NetworkError,
}

impl ErrorCode {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Timeout,
        Self::Oom,
        Self::OutputLimit,
        Self::LanguageNotSupported,
        Self::InvalidRequest,
        Self::UnknownExecution,
        Self::SandboxOverloaded,
        Self::InternalError,
        Self::NetworkError,
    ];

    /// Whether the same request may succeed later.
    pub const fn retryable(self) -> bool {
        match self {
            Self::SandboxOverloaded | Self::InternalError | Self::NetworkError => true,
            Self::Timeout
            | Self::Oom
            | Self::OutputLimit
            | Self::LanguageNotSupported
            | Self::InvalidRequest
            | Self::UnknownExecution => false,
        }
    }
}

/// A message that was not taken, or an execution that ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Of the execution it is about, as far as it can be told.
    pub id: Option<String>,
    /// Why.
    pub code: ErrorCode,
    /// In words.
    pub message: String,
}

impl Refusal {
    /// A message that is not what the protocol demands.
    pub fn invalid(id: Option<&str>, message: impl Into<String>) -> Self {
        Self { id: id.map(str::to_owned), code: ErrorCode::InvalidRequest, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_retryable_as_the_protocol_says() {
        let written = |code| serde_json::to_value::<ErrorCode>(code).unwrap();
        let retryable: Vec<_> = ErrorCode::ALL.into_iter().filter(|code| code.retryable()).map(written).collect();
        assert_eq!(retryable, ["SANDBOX_OVERLOADED", "INTERNAL_ERROR", "NETWORK_ERROR"]);
        let others: Vec<_> = ErrorCode::ALL.into_iter().filter(|code| !code.retryable()).map(written).collect();
        assert_eq!(
            others,
            ["TIMEOUT", "OOM", "OUTPUT_LIMIT", "LANGUAGE_NOT_SUPPORTED", "INVALID_REQUEST", "UNKNOWN_EXECUTION"]
        );
    }
}
