//! The one place where errors of the engine become the protocol's codes.

use sandbox_protocol::fsp::{ErrorCode, Refusal, ServerBody, ServerMessage};

use crate::exec::ExecError;

/// The code of an execution that has no result.
pub(super) fn code(error: &ExecError) -> ErrorCode {
    match error {
        ExecError::Invalid(_) | ExecError::Directory(_) | ExecError::TooLong | ExecError::Conflict => {
            ErrorCode::InvalidRequest
        }
        ExecError::NoLanguage(_) => ErrorCode::LanguageNotSupported,
        ExecError::Unknown => ErrorCode::UnknownExecution,
        ExecError::WaitedTooLong => ErrorCode::Timeout,
        ExecError::NoMemory => ErrorCode::Oom,
        ExecError::OutputLimit { .. } => ErrorCode::OutputLimit,
        ExecError::Full | ExecError::NoRoom => ErrorCode::SandboxOverloaded,
        ExecError::Ending | ExecError::Interrupted | ExecError::Start(_) | ExecError::SlowStart | ExecError::Lost => {
            ErrorCode::InternalError
        }
    }
}

/// What a client is told of an error.
pub(super) fn body(error: &ExecError) -> ServerBody {
    let code = code(error);
    ServerBody::Error { code, message: error.to_string(), retryable: code.retryable() }
}

/// A message that was not taken.
pub(super) fn refusal(refusal: Refusal) -> ServerMessage {
    let Refusal { id, code, message } = refusal;
    ServerMessage { id, seq: None, body: ServerBody::Error { code, message, retryable: code.retryable() } }
}
