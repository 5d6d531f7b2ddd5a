//! The one place where errors become status codes and words for the customer.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::http::ErrorBody;

use crate::runs::RunsError;

/// A refusal on its way out.
#[derive(Debug)]
pub(super) struct Refused {
    code: SidecarRefusal,
    message: String,
}

impl Refused {
    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self { code: SidecarRefusal::BadRequest, message: message.into() }
    }
}

impl From<RunsError> for Refused {
    fn from(error: RunsError) -> Self {
        if error.refusal() == SidecarRefusal::Internal {
            tracing::error!(error = &error as &dyn std::error::Error, "a request failed");
        }
        Self { code: error.refusal(), message: error.to_string() }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let retryable = self.code.retryable();
        (status, Json(ErrorBody { code: self.code.to_string(), message: self.message, retryable })).into_response()
    }
}
