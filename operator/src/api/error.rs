//! Errors of the API: one type, two voices. The caller gets a code, a sentence and a reference; the log gets the cause.

use std::error::Error;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use sandbox_protocol::http::ErrorBody;

/// Why a request was not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// Nothing is served at this path.
    #[error("there is nothing at this path")]
    NoRoute,
    /// A part of the request is not what it should be.
    #[error("{0}")]
    BadRequest(String),
    /// The request proves no caller.
    #[error("{0}")]
    Unauthorized(String),
    /// No such call, or not this caller's. Which of the two is not for strangers.
    #[error("this operator has no such call of this caller")]
    NoCall,
    /// As many wait as may.
    #[error("too many wait for calls that are not known here yet")]
    Busy,
    /// The process is starting or ending.
    #[error("the operator is starting or ending")]
    NotReady,
    /// A defect.
    #[error("the operator failed")]
    Internal(#[source] Box<dyn Error + Send + Sync>),
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code, retryable) = match &self {
            Self::NoRoute => (StatusCode::NOT_FOUND, "no_route", false),
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request", false),
            Self::Unauthorized(_) => (StatusCode::UNAUTHORIZED, "unauthorized", false),
            Self::NoCall => (StatusCode::NOT_FOUND, "no_call", true),
            Self::Busy => (StatusCode::TOO_MANY_REQUESTS, "busy", true),
            Self::NotReady => (StatusCode::SERVICE_UNAVAILABLE, "not_ready", true),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal", true),
        };
        let mut message = self.to_string();
        if let Self::Internal(cause) = &self {
            let reference = format!("{:08x}", rand::random::<u32>());
            tracing::error!(%reference, cause = %crate::error_chain(cause.as_ref()), "request failed");
            message = format!("{message}; reference {reference}");
        }
        (status, Json(ErrorBody { code: code.to_owned(), message, retryable })).into_response()
    }
}
