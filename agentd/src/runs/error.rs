//! Why a run is not begun, or not found.

use std::io;

use sandbox_protocol::agent::BadContext;
use sandbox_protocol::exec::SidecarRefusal;

/// Why a request about runs is refused.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// A field is not what its description demands.
    #[error("{field}: {message}")]
    Field {
        /// Which.
        field: &'static str,
        /// What it should be.
        message: String,
    },
    /// The customer's context.
    #[error(transparent)]
    Context(#[from] BadContext),
    /// The backend is none of those that there are.
    #[error("agent_backend: there is no {0:?} here")]
    UnknownBackend(String),
    /// The profile is none of those that there are.
    #[error("agent_identifier: there is no profile {0:?} here")]
    UnknownProfile(String),
    /// The id is another request's.
    #[error("id: belongs to a run with another request")]
    OtherRun,
    /// The session is another backend's.
    #[error("session_id: the session is of the backend {0:?}")]
    OtherBackend(String),
    /// No run has this id, or none any more.
    #[error("no such run")]
    UnknownRun,
    /// No session has this id.
    #[error("no such session")]
    UnknownSession,
    /// The session is in use.
    #[error("the session is in use")]
    SessionInUse,
    /// What a backend keeps of the session is not forgotten.
    #[error("the session is not forgotten")]
    NotForgotten(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Nobody waits for a word about this call.
    #[error("no call of this id waits for an answer")]
    NotAsked,
    /// As many runs wait as may, or the process is about to end.
    #[error("as many runs wait as may")]
    Busy,
    /// What is to outlast the process cannot be written.
    #[error("the run cannot be kept")]
    Store(#[from] io::Error),
}

impl RunsError {
    /// What a customer is answered.
    pub const fn refusal(&self) -> SidecarRefusal {
        match self {
            Self::Field { .. } | Self::Context(_) => SidecarRefusal::BadRequest,
            Self::UnknownBackend(_) => SidecarRefusal::UnknownBackend,
            Self::UnknownProfile(_) => SidecarRefusal::UnknownProfile,
            Self::OtherRun | Self::OtherBackend(_) | Self::SessionInUse | Self::NotAsked => SidecarRefusal::Conflict,
            Self::UnknownRun => SidecarRefusal::UnknownRun,
            Self::UnknownSession => SidecarRefusal::UnknownSession,
            Self::Busy => SidecarRefusal::Busy,
            Self::Store(_) | Self::NotForgotten(_) => SidecarRefusal::Internal,
        }
    }
}
