//! The one place where the sidecar's errors become status codes and words for the caller.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use sandbox_process::websocket::NotAWebSocket;
use sandbox_protocol::exec::{BEARER, SidecarRefusal};
use sandbox_protocol::files::{BadQuery, FilesRefusal};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::snapshot::{SnapshotErrorBody, SnapshotRefusal};

use crate::agents::AgentsError;
use crate::archive::Failed;
use crate::channel::ChannelError;
use crate::exec::ExecError;
use crate::files::{FilesError, KeeperError};
use crate::pty::PtyError;
use crate::snapshot::SnapshotError;
use crate::tunnel::TunnelError;

/// A refusal on its way out.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    body: SnapshotErrorBody,
}

impl ApiError {
    pub(super) fn new(code: SidecarRefusal, message: impl Into<String>) -> Self {
        let error = ErrorBody { code: code.to_string(), message: message.into(), retryable: code.retryable() };
        Self { status: status(code), body: SnapshotErrorBody { error, fault: None } }
    }

    /// What is sent where there is no status code any more.
    pub(super) fn into_body(self) -> ErrorBody {
        self.body.error
    }

    fn of_snapshot(code: SnapshotRefusal, message: impl Into<String>) -> Self {
        let error = ErrorBody { code: code.to_string(), message: message.into(), retryable: code.retryable() };
        Self { status: snapshot_status(code), body: SnapshotErrorBody { error, fault: None } }
    }
}

impl From<AgentsError> for ApiError {
    fn from(error: AgentsError) -> Self {
        let code = match error {
            AgentsError::Ending => SidecarRefusal::Busy,
            AgentsError::Start(_) | AgentsError::Ended | AgentsError::TimedOut | AgentsError::Connect(_) => {
                tracing::error!(error = &error as &dyn std::error::Error, "there are no agents");
                SidecarRefusal::Internal
            }
        };
        Self::new(code, error.to_string())
    }
}

impl From<FilesRefusal> for ApiError {
    fn from(code: FilesRefusal) -> Self {
        let error = ErrorBody { code: code.to_string(), message: meaning(code).into(), retryable: code.retryable() };
        let status = StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, body: SnapshotErrorBody { error, fault: None } }
    }
}

impl From<FilesError> for ApiError {
    fn from(error: FilesError) -> Self {
        match error {
            FilesError::Refused(refusal) => refusal.into(),
            FilesError::TooLarge => Self::new(SidecarRefusal::TooLarge, error.to_string()),
            FilesError::NoRoom => Self::new(SidecarRefusal::Busy, error.to_string()),
            // It is the agent's own worker that speaks, so nothing is told that the agent may not know.
            FilesError::Failed { errno, .. } => {
                Self::new(SidecarRefusal::Internal, format!("{error}: {}", errno.desc()))
            }
        }
    }
}

impl From<BadQuery> for ApiError {
    fn from(error: BadQuery) -> Self {
        Self::new(SidecarRefusal::BadRequest, error.to_string())
    }
}

impl From<KeeperError> for ApiError {
    fn from(error: KeeperError) -> Self {
        match error {
            KeeperError::Full | KeeperError::Ending => Self::new(SidecarRefusal::Busy, error.to_string()),
            KeeperError::Start(error) => error.into(),
            KeeperError::Lost(_) => FilesRefusal::WorkerLost.into(),
        }
    }
}

impl From<ExecError> for ApiError {
    fn from(error: ExecError) -> Self {
        Self::new(exec_refusal(&error), error.to_string())
    }
}

fn exec_refusal(error: &ExecError) -> SidecarRefusal {
    match error {
        ExecError::Invalid(_) | ExecError::Directory(_) | ExecError::TooLong | ExecError::NoLanguage(_) => {
            SidecarRefusal::BadRequest
        }
        ExecError::Unknown => SidecarRefusal::UnknownExecution,
        ExecError::Conflict => SidecarRefusal::Conflict,
        ExecError::OutputLimit { .. } => SidecarRefusal::OutputLimit,
        ExecError::Full | ExecError::WaitedTooLong | ExecError::NoRoom | ExecError::NoMemory | ExecError::Ending => {
            SidecarRefusal::Busy
        }
        ExecError::Interrupted => SidecarRefusal::Interrupted,
        ExecError::Start(_) | ExecError::SlowStart | ExecError::Lost => SidecarRefusal::Internal,
    }
}

impl From<ChannelError> for ApiError {
    fn from(error: ChannelError) -> Self {
        Self::new(channel_refusal(&error), error.to_string())
    }
}

/// The word for an operator that is not told by a status code.
pub(super) fn channel_refusal(error: &ChannelError) -> SidecarRefusal {
    match error {
        ChannelError::Full => SidecarRefusal::Busy,
        ChannelError::NoStart
        | ChannelError::Invalid(_)
        | ChannelError::Term
        | ChannelError::Path
        | ChannelError::NotOne => SidecarRefusal::BadRequest,
        ChannelError::Start(error) => exec_refusal(error),
        ChannelError::Reserved(_) => SidecarRefusal::PortReserved,
        ChannelError::Closed(_) => SidecarRefusal::PortClosed,
        ChannelError::Port { .. } | ChannelError::Unusable(_) => SidecarRefusal::Conflict,
        ChannelError::NoArrival => SidecarRefusal::NotFound,
        ChannelError::Streams(cause) | ChannelError::NotOpened(cause) => {
            tracing::error!(error = cause as &dyn std::error::Error, "{error}");
            SidecarRefusal::Internal
        }
    }
}

impl From<PtyError> for ApiError {
    fn from(error: PtyError) -> Self {
        let code = match &error {
            PtyError::Invalid(_) | PtyError::Size | PtyError::Term | PtyError::Since { .. } => {
                SidecarRefusal::BadRequest
            }
            PtyError::Unknown => SidecarRefusal::UnknownTerminal,
            PtyError::Full | PtyError::ManyViewers | PtyError::Ending => SidecarRefusal::Busy,
            PtyError::Open(cause) => {
                tracing::error!(error = cause as &dyn std::error::Error, "no terminal could be opened");
                SidecarRefusal::Internal
            }
            PtyError::Start(_) => SidecarRefusal::Internal,
        };
        match error {
            PtyError::Start(error) => error.into(),
            error => Self::new(code, error.to_string()),
        }
    }
}

impl From<TunnelError> for ApiError {
    fn from(error: TunnelError) -> Self {
        let code = match error {
            TunnelError::Reserved(_) => SidecarRefusal::PortReserved,
            TunnelError::Closed { .. } => SidecarRefusal::PortClosed,
            TunnelError::Full => SidecarRefusal::Busy,
        };
        Self::new(code, error.to_string())
    }
}

impl From<SnapshotError> for ApiError {
    fn from(error: SnapshotError) -> Self {
        let message = error.to_string();
        match error {
            SnapshotError::NothingAsked => Self::new(SidecarRefusal::BadRequest, message),
            SnapshotError::Busy | SnapshotError::Ending => Self::new(SidecarRefusal::Busy, message),
            SnapshotError::Interrupted => Self::new(SidecarRefusal::Interrupted, message),
            SnapshotError::Lost => Self::new(SidecarRefusal::Internal, message),
            SnapshotError::Nested => Self::of_snapshot(SnapshotRefusal::Unavailable, message),
            SnapshotError::CutOff => Self::of_snapshot(SnapshotRefusal::CutOff, message),
            SnapshotError::TooSlow => Self::of_snapshot(SnapshotRefusal::TooSlow, message),
            SnapshotError::Start(error) => error.into(),
            SnapshotError::Failed(failed) => failed.into(),
        }
    }
}

impl From<Failed> for ApiError {
    fn from(failed: Failed) -> Self {
        let Some(code) = failed.refusal else {
            tracing::error!(message = failed.message, "a snapshot failed");
            return Self::new(SidecarRefusal::Internal, "the snapshot failed");
        };
        let mut error = Self::of_snapshot(code, failed.message);
        error.body.fault = failed.fault;
        error
    }
}

pub(super) fn bad_query(rejection: QueryRejection) -> ApiError {
    ApiError::new(SidecarRefusal::BadRequest, rejection.body_text())
}

pub(super) fn no_websocket(error: NotAWebSocket) -> ApiError {
    ApiError::new(SidecarRefusal::UpgradeRequired, error.to_string())
}

fn meaning(code: FilesRefusal) -> &'static str {
    match code {
        FilesRefusal::BadPath => "the request, or the path's form, does not fit: a name is needed",
        FilesRefusal::NameTooLong => "the path or a name in it is too long, or lies too deep",
        FilesRefusal::Outside => "the path leads out of the workspace and the home",
        FilesRefusal::Denied => "the agent may not do this",
        FilesRefusal::NoSuchFile => "there is no such file or directory",
        FilesRefusal::Exists => "there is something of this name",
        FilesRefusal::IsDirectory => "it is a directory",
        FilesRefusal::NotDirectory => "it, or something on the way, is no directory",
        FilesRefusal::NotRegular => "it is a fifo, a socket or a device",
        FilesRefusal::NotEmpty => "the directory is not empty",
        FilesRefusal::TooManyLinks => "too many links are on the way",
        FilesRefusal::IsRoot => "the workspace and the home themselves stay as they are",
        FilesRefusal::CannotMove => "it cannot be moved there: into itself, or to another disk",
        FilesRefusal::BeyondEnd => "the offset lies beyond the file's end",
        FilesRefusal::TooManyDirectories => "there are more directories than one watch sees into",
        FilesRefusal::Changed => "the file is not the one of the condition",
        FilesRefusal::NoSuchRange => "the range lies beyond the file's end",
        FilesRefusal::Unfinished => "a part is done; ask again to go on",
        FilesRefusal::WorkerLost => "the worker was ended with the request in hand",
        FilesRefusal::DiskFull => "the disk is full",
    }
}

fn snapshot_status(code: SnapshotRefusal) -> StatusCode {
    match code {
        SnapshotRefusal::ArchiveRefused | SnapshotRefusal::HashMismatch => StatusCode::UNPROCESSABLE_ENTITY,
        SnapshotRefusal::DiskFull => StatusCode::INSUFFICIENT_STORAGE,
        SnapshotRefusal::CutOff => StatusCode::BAD_REQUEST,
        SnapshotRefusal::TooSlow => StatusCode::GATEWAY_TIMEOUT,
        SnapshotRefusal::Unavailable => StatusCode::CONFLICT,
    }
}

fn status(code: SidecarRefusal) -> StatusCode {
    StatusCode::from_u16(code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(BEARER));
        }
        response
    }
}
