//! The one place where the sidecar's errors become status codes and words for the caller.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use sandbox_protocol::exec::{BEARER, SidecarRefusal};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::snapshot::{SnapshotErrorBody, SnapshotRefusal};

use crate::archive::Failed;
use crate::exec::ExecError;
use crate::snapshot::SnapshotError;

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

impl From<ExecError> for ApiError {
    fn from(error: ExecError) -> Self {
        let code = match &error {
            ExecError::Invalid(_) | ExecError::Directory(_) | ExecError::TooLong | ExecError::NoLanguage(_) => {
                SidecarRefusal::BadRequest
            }
            ExecError::Unknown => SidecarRefusal::UnknownExecution,
            ExecError::Conflict => SidecarRefusal::Conflict,
            ExecError::OutputLimit { .. } => SidecarRefusal::OutputLimit,
            ExecError::Full
            | ExecError::WaitedTooLong
            | ExecError::NoRoom
            | ExecError::NoMemory
            | ExecError::Ending => SidecarRefusal::Busy,
            ExecError::Interrupted => SidecarRefusal::Interrupted,
            ExecError::Start(_) | ExecError::SlowStart | ExecError::Lost => SidecarRefusal::Internal,
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
    match code {
        SidecarRefusal::Unauthorized => StatusCode::UNAUTHORIZED,
        SidecarRefusal::Forbidden => StatusCode::FORBIDDEN,
        SidecarRefusal::BadRequest => StatusCode::BAD_REQUEST,
        SidecarRefusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        SidecarRefusal::NotFound | SidecarRefusal::UnknownExecution | SidecarRefusal::UnknownTerminal => {
            StatusCode::NOT_FOUND
        }
        SidecarRefusal::UpgradeRequired => StatusCode::UPGRADE_REQUIRED,
        SidecarRefusal::PortReserved => StatusCode::FORBIDDEN,
        SidecarRefusal::PortClosed => StatusCode::BAD_GATEWAY,
        SidecarRefusal::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        SidecarRefusal::Conflict => StatusCode::CONFLICT,
        SidecarRefusal::OutputLimit => StatusCode::UNPROCESSABLE_ENTITY,
        SidecarRefusal::Busy => StatusCode::TOO_MANY_REQUESTS,
        SidecarRefusal::Interrupted => StatusCode::SERVICE_UNAVAILABLE,
        SidecarRefusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
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
