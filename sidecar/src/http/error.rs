//! The one place where the sidecar's errors become status codes and words for the caller.

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::{HeaderValue, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use sandbox_protocol::exec::{BEARER, SidecarRefusal};
use sandbox_protocol::http::ErrorBody;

use crate::exec::ExecError;

/// A refusal on its way out.
#[derive(Debug)]
pub(super) struct ApiError {
    code: SidecarRefusal,
    message: String,
}

impl ApiError {
    pub(super) fn new(code: SidecarRefusal, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<ExecError> for ApiError {
    fn from(error: ExecError) -> Self {
        let code = match &error {
            ExecError::Invalid(_) | ExecError::Directory(_) | ExecError::TooLong => SidecarRefusal::BadRequest,
            ExecError::Unknown => SidecarRefusal::UnknownExecution,
            ExecError::Conflict => SidecarRefusal::Conflict,
            ExecError::Full | ExecError::NoRoom | ExecError::Ending => SidecarRefusal::Busy,
            ExecError::Interrupted => SidecarRefusal::Interrupted,
            ExecError::Start(_) | ExecError::SlowStart | ExecError::Lost => SidecarRefusal::Internal,
        };
        Self::new(code, error.to_string())
    }
}

fn status(code: SidecarRefusal) -> StatusCode {
    match code {
        SidecarRefusal::Unauthorized => StatusCode::UNAUTHORIZED,
        SidecarRefusal::BadRequest => StatusCode::BAD_REQUEST,
        SidecarRefusal::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        SidecarRefusal::NotFound | SidecarRefusal::UnknownExecution => StatusCode::NOT_FOUND,
        SidecarRefusal::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        SidecarRefusal::Conflict => StatusCode::CONFLICT,
        SidecarRefusal::Busy => StatusCode::TOO_MANY_REQUESTS,
        SidecarRefusal::Interrupted => StatusCode::SERVICE_UNAVAILABLE,
        SidecarRefusal::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { code, message } = self;
        let body = ErrorBody { code: code.to_string(), message, retryable: code.retryable() };
        let mut response = (status(code), Json(body)).into_response();
        if code == SidecarRefusal::Unauthorized {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(BEARER));
        }
        response
    }
}
