//! Errors of the API: one type, two voices. The caller gets a code, a sentence and a reference; the log gets the cause.

use std::error::Error;

use alloy::primitives::Address;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use sandbox_protocol::Failure;
use sandbox_protocol::http::ErrorBody;
use sandbox_sdk::chain::ReadError;

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
    /// As many ask as may.
    #[error("{0}")]
    Busy(&'static str),
    /// The body is too long.
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    /// A service in which this operator has nothing to quote for.
    #[error("this operator serves no service {0} whose calls are paid one by one")]
    NoService(u64),
    /// A service that is paid in something this operator has no price in.
    #[error("this operator has no price in asset {0}, which the service is paid in")]
    NoPrice(Address),
    /// The job would be refused, or could not be done.
    #[error("{}", .0.message)]
    NotQuoted(#[from] Failure),
    /// The node of the chain does not answer.
    #[error("the operator's node does not answer")]
    Chain(#[source] ReadError),
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
            Self::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, "busy", true),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large", false),
            Self::NoService(_) => (StatusCode::NOT_FOUND, "no_service", false),
            Self::NoPrice(_) => (StatusCode::UNPROCESSABLE_ENTITY, "no_price", false),
            Self::NotQuoted(failure) => return not_quoted(failure),
            Self::Chain(_) => (StatusCode::SERVICE_UNAVAILABLE, "chain", true),
            Self::NotReady => (StatusCode::SERVICE_UNAVAILABLE, "not_ready", true),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal", true),
        };
        let mut message = self.to_string();
        if let Self::Chain(cause) = &self {
            tracing::warn!(cause = %crate::error_chain(cause), "a quote waits for the node");
        }
        if let Self::Internal(cause) = &self {
            let reference = format!("{:08x}", rand::random::<u32>());
            tracing::error!(%reference, cause = %crate::error_chain(cause.as_ref()), "request failed");
            message = format!("{message}; reference {reference}");
        }
        (status, Json(ErrorBody { code: code.to_owned(), message, retryable })).into_response()
    }
}

/// A failure that the job would have come to, by its own code.
fn not_quoted(failure: &Failure) -> Response {
    let (code, message, retryable) = (failure.code.to_string(), failure.message.clone(), failure.code.retryable());
    (StatusCode::UNPROCESSABLE_ENTITY, Json(ErrorBody { code, message, retryable })).into_response()
}
