//! Everything that goes wrong between a client and its sandbox, and what a caller may do about it.

use std::io;
use std::sync::Arc;

use sandbox_protocol::fsp::{ErrorCode, Extension};
use sandbox_protocol::http::ErrorBody;
use tokio_tungstenite::tungstenite;

/// Why there is no result. It is cloned to every execution that it ends.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FspError {
    /// Nobody answers where the sandbox should be.
    #[error("cannot reach {uri}")]
    Unreachable {
        /// Where.
        uri: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// Somebody answers, too slowly.
    #[error("{uri} did not answer within {limit_ms} ms")]
    ConnectTimeout {
        /// Where.
        uri: String,
        /// The limit.
        limit_ms: u64,
    },
    /// The sandbox, or whoever stands before it, will not talk to this client.
    #[error("refused with status {status}: {body}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Its reason.
        body: ErrorBody,
    },
    /// Whoever answers does not speak the protocol.
    #[error("{uri} does not open a WebSocket")]
    Handshake {
        /// Where.
        uri: String,
        /// What was wrong.
        source: Arc<tungstenite::Error>,
    },
    /// The link broke, and what ran on it went with it.
    #[error("the connection to the sandbox broke")]
    Disconnected {
        /// What the socket said; `None` where it was closed.
        source: Option<Arc<tungstenite::Error>>,
    },
    /// The link broke and did not come back.
    #[error("the sandbox is unavailable after {attempts} attempts")]
    Unavailable {
        /// How many.
        attempts: u32,
        /// Why the last of them failed.
        source: Box<Self>,
    },
    /// All connections are in use and stayed so.
    #[error("no connection became free within {waited_ms} ms")]
    PoolExhausted {
        /// How long it was waited for.
        waited_ms: u64,
    },
    /// The sandbox said something that the protocol does not have.
    #[error("the sandbox sent a malformed message: {reason}")]
    Malformed {
        /// What was wrong.
        reason: String,
    },
    /// The execution did not end in its time, and the sandbox did not say so. It was asked to cancel it.
    #[error("execution timed out after {limit_ms}ms")]
    TimedOut {
        /// The execution's own limit.
        limit_ms: u64,
    },
    /// The sandbox ended the execution with an `error`.
    #[error("{message}")]
    Server {
        /// Its code.
        code: ErrorCode,
        /// Its words.
        message: String,
        /// Whether the same request may succeed later, as it says.
        retryable: bool,
    },
    /// After the link broke, the sandbox does not know the execution any more. Nothing is known of what it did.
    #[error("the sandbox lost the execution")]
    Lost {
        /// Whether it had been accepted.
        acked: bool,
    },
    /// The sandbox did not grant what this needs.
    #[error("the sandbox does not offer the extension {0}")]
    NotGranted(Extension),
    /// Bytes for stdin were under way as the link broke; some may be lost, so no more are sent.
    #[error("the connection broke while stdin was being sent")]
    StdinBroken,
    /// The execution has ended.
    #[error("the execution has ended")]
    Ended,
    /// Another execution of this connection has this id.
    #[error("an execution of this id runs on this connection")]
    IdInUse,
    /// As many executions run on this connection as may.
    #[error("the connection has too many executions")]
    TooMany,
}

/// What kind of failure it is, as a model or a caller is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Between client and sandbox.
    Sandbox,
    /// Time was over.
    Timeout,
    /// Of the execution itself.
    Execution,
}

impl FspError {
    /// What kind it is.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreachable { .. }
            | Self::ConnectTimeout { .. }
            | Self::Refused { .. }
            | Self::Handshake { .. }
            | Self::Disconnected { .. }
            | Self::Unavailable { .. }
            | Self::PoolExhausted { .. }
            | Self::Malformed { .. }
            | Self::Lost { .. }
            | Self::NotGranted(_)
            | Self::StdinBroken
            | Self::TooMany => ErrorKind::Sandbox,
            Self::TimedOut { .. } => ErrorKind::Timeout,
            Self::Server { .. } | Self::Ended | Self::IdInUse => ErrorKind::Execution,
        }
    }

    /// Whether the same request may succeed later. It may also have been done.
    pub const fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::ConnectTimeout { .. }
            | Self::Disconnected { .. }
            | Self::Unavailable { .. }
            | Self::PoolExhausted { .. }
            | Self::TooMany => true,
            Self::Refused { body, .. } => body.retryable,
            Self::Server { retryable, .. } => *retryable,
            Self::Handshake { .. }
            | Self::Malformed { .. }
            | Self::TimedOut { .. }
            | Self::Lost { .. }
            | Self::NotGranted(_)
            | Self::StdinBroken
            | Self::Ended
            | Self::IdInUse => false,
        }
    }

    pub(crate) fn malformed(reason: impl ToString) -> Self {
        Self::Malformed { reason: reason.to_string() }
    }

    pub(crate) fn broken(source: tungstenite::Error) -> Self {
        Self::Disconnected { source: Some(Arc::new(source)) }
    }
}
