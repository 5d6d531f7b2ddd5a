//! Why a task ends before its agent is done: every cause, and what a customer is told of it.

use std::error::Error;

use sandbox_protocol::agent::RunFailure;

use super::KeyOf;
use super::ports::ConversationError;
use crate::log::LogError;
use crate::model::ModelError;

/// A task ends here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Halt {
    pub(super) failure: RunFailure,
    /// A sentence for the customer.
    pub(super) words: String,
}

impl Halt {
    pub(super) fn new(failure: RunFailure, words: impl Into<String>) -> Self {
        Self { failure, words: words.into() }
    }

    /// The model has no answer.
    pub(super) fn of_model(error: &ModelError, key_of: KeyOf) -> Self {
        let failure = match (error, key_of) {
            (ModelError::Refused, KeyOf::Customer) => RunFailure::ProviderRefused,
            (ModelError::Refused, KeyOf::Operator) => RunFailure::OperatorKeyRefused,
            (ModelError::ContextOverflow, _) => RunFailure::ContextOverflow,
            (ModelError::Settings(_), _) => RunFailure::BadRequest,
            (
                ModelError::Rejected(_)
                | ModelError::RateLimited { .. }
                | ModelError::Failed { .. }
                | ModelError::Unreachable(_)
                | ModelError::Forbidden
                | ModelError::Malformed(_)
                | ModelError::TimedOut { .. },
                _,
            ) => RunFailure::ProviderFailed,
        };
        // Not the error's words: a provider may repeat in them what it was sent.
        tracing::info!(?failure, "no answer of the model");
        Self::new(failure, error.to_string())
    }

    fn internal(error: &(dyn Error + 'static)) -> Self {
        tracing::error!(error, "a task cannot go on");
        Self::new(RunFailure::Internal, "the task could not be kept; the sandbox's log holds the cause")
    }
}

impl From<LogError> for Halt {
    fn from(error: LogError) -> Self {
        Self::internal(&error)
    }
}

impl From<ConversationError> for Halt {
    fn from(error: ConversationError) -> Self {
        Self::internal(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_of_a_model_has_its_failure() {
        let other = || Box::<dyn Error + Send + Sync>::from("cable cut");
        let table = [
            (ModelError::Refused, RunFailure::ProviderRefused),
            (ModelError::Rejected("no such model".into()), RunFailure::ProviderFailed),
            (ModelError::ContextOverflow, RunFailure::ContextOverflow),
            (ModelError::RateLimited { retry_after: None }, RunFailure::ProviderFailed),
            (ModelError::Failed { status: 503 }, RunFailure::ProviderFailed),
            (ModelError::Unreachable(other()), RunFailure::ProviderFailed),
            (ModelError::Forbidden, RunFailure::ProviderFailed),
            (ModelError::Malformed(other()), RunFailure::ProviderFailed),
            (ModelError::TimedOut { after_ms: 5 }, RunFailure::ProviderFailed),
            (ModelError::Settings("no model"), RunFailure::BadRequest),
        ];
        for (error, failure) in table {
            let halt = Halt::of_model(&error, KeyOf::Customer);
            assert_eq!((halt.failure, halt.words), (failure, error.to_string()));
        }
        assert_eq!(Halt::of_model(&ModelError::Refused, KeyOf::Operator).failure, RunFailure::OperatorKeyRefused);
    }
}
