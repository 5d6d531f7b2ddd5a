//! Errors of the API: one type, two voices. The caller gets a code, a sentence and a reference; the log gets the cause.

use std::error::Error;

use alloy::primitives::Address;
use axum::Json;
use axum::http::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use sandbox_fleet::Unfinished;
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::session::Scope;
use sandbox_protocol::{Failure, FailureCode, Outcome};
use sandbox_sdk::chain::ReadError;

use crate::records::RecordsError;

/// Why a request was not served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// Nothing is served at this path.
    #[error("there is nothing at this path")]
    NoRoute,
    /// Something else is served at this path.
    #[error("{0} is not served at this path")]
    NoMethod(Method),
    /// A part of the request is not what it should be.
    #[error("{0}")]
    BadRequest(String),
    /// The request proves no caller.
    #[error("{0}")]
    Unauthorized(String),
    /// The caller's token does not open this.
    #[error("the token has no scope {0}; sign in for it")]
    NoScope(Scope),
    /// No such call, or not this caller's. Which of the two is not for strangers.
    #[error("this operator has no such call of this caller")]
    NoCall,
    /// No such batch, or not this caller's.
    #[error("this operator has no part of such a batch of this caller")]
    NoBatch,
    /// No such sandbox, or not this caller's.
    #[error("this operator holds no such sandbox of this caller")]
    NoSandbox,
    /// No such workflow, or not this caller's, or another operator's.
    #[error("this operator fires no such workflow of this caller")]
    NoWorkflow,
    /// No such run of a workflow.
    #[error("the workflow has no such run, or it is not kept any more")]
    NoRun,
    /// It does not go with how things are.
    #[error("{0}")]
    Conflict(String),
    /// There is no SSH gateway.
    #[error("this operator lets nobody in over SSH")]
    NoSsh,
    /// No such token, or not this caller's.
    #[error("there is no such token of this caller")]
    NoToken,
    /// As many ask as may.
    #[error("{0}")]
    Busy(&'static str),
    /// One asks more often than one may.
    #[error("too many requests; the next is served in {retry_after_s} s")]
    TooFast {
        /// Seconds until there is one to spend.
        retry_after_s: u64,
    },
    /// The body is too long.
    #[error("the body is longer than {0} bytes")]
    TooLarge(usize),
    /// The body is said to be something else than it must be.
    #[error("the body must be application/json")]
    MediaType,
    /// A service in which this operator has nothing to quote for.
    #[error("this operator serves no service {0} whose calls are paid one by one")]
    NoService(u64),
    /// A service that is paid in something this operator has no price in.
    #[error("this operator has no price in asset {0}, which the service is paid in")]
    NoPrice(Address),
    /// The job would be refused, or could not be done.
    #[error("{}", .0.message)]
    NotQuoted(Failure),
    /// It was not done to the sandbox.
    #[error("{}", .0.message)]
    NotDone(Failure),
    /// The node of the chain does not answer.
    #[error("the operator's node does not answer")]
    Chain(#[source] ReadError),
    /// The node of the chain, or the engine, takes too long to answer.
    #[error("the operator's {0} takes too long to answer")]
    TooSlow(&'static str),
    /// The process has not found its chain and its engine yet.
    #[error("the operator is starting")]
    Starting,
    /// The process is ending.
    #[error("the operator is ending")]
    NotReady,
    /// What is served in a sandbox broke off before it answered, or its way there did.
    #[error("the sandbox did not answer")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    /// What is served in a sandbox has not begun its answer.
    #[error("nothing came from inside the sandbox for {0} s")]
    Silent(u64),
    /// Nothing in the sandbox takes connections at the port.
    #[error("nothing in the sandbox listens at port {0}")]
    PortClosed(u16),
    /// A defect.
    #[error("the operator failed")]
    Internal(#[source] Box<dyn Error + Send + Sync>),
}

impl ApiError {
    const fn sorted(&self) -> (StatusCode, &'static str, bool) {
        match self {
            Self::NoRoute => (StatusCode::NOT_FOUND, "no_route", false),
            Self::NoMethod(_) => (StatusCode::METHOD_NOT_ALLOWED, "no_method", false),
            Self::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request", false),
            Self::Unauthorized(_) => (StatusCode::UNAUTHORIZED, "unauthorized", false),
            Self::NoScope(_) => (StatusCode::FORBIDDEN, "no_scope", false),
            Self::NoCall => (StatusCode::NOT_FOUND, "no_call", true),
            Self::NoBatch => (StatusCode::NOT_FOUND, "no_batch", true),
            Self::NoSandbox => (StatusCode::NOT_FOUND, "no_sandbox", false),
            Self::NoWorkflow => (StatusCode::NOT_FOUND, "no_workflow", true),
            Self::NoRun => (StatusCode::NOT_FOUND, "no_run", false),
            Self::Conflict(_) => (StatusCode::CONFLICT, "conflict", false),
            Self::NoSsh => (StatusCode::NOT_FOUND, "no_ssh", false),
            Self::NoToken => (StatusCode::NOT_FOUND, "no_token", false),
            Self::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, "busy", true),
            Self::TooFast { .. } => (StatusCode::TOO_MANY_REQUESTS, "too_fast", true),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large", false),
            Self::MediaType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "media_type", false),
            Self::NoService(_) => (StatusCode::NOT_FOUND, "no_service", false),
            Self::NoPrice(_) => (StatusCode::UNPROCESSABLE_ENTITY, "no_price", false),
            Self::NotQuoted(_) => (StatusCode::UNPROCESSABLE_ENTITY, "failure", false),
            Self::NotDone(failure) => match failure.code.outcome() {
                Outcome::Done | Outcome::Caller => (StatusCode::UNPROCESSABLE_ENTITY, "failure", false),
                Outcome::Operator => (StatusCode::SERVICE_UNAVAILABLE, "failure", false),
            },
            Self::Chain(_) => (StatusCode::SERVICE_UNAVAILABLE, "chain", true),
            Self::TooSlow(_) => (StatusCode::SERVICE_UNAVAILABLE, "too_slow", true),
            Self::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting", true),
            Self::NotReady => (StatusCode::SERVICE_UNAVAILABLE, "not_ready", true),
            Self::Unreachable(_) => (StatusCode::BAD_GATEWAY, "sandbox_unreachable", true),
            Self::Silent(_) => (StatusCode::GATEWAY_TIMEOUT, "sandbox_silent", true),
            Self::PortClosed(_) => (StatusCode::BAD_GATEWAY, "port_closed", true),
            Self::Internal(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal", true),
        }
    }

    fn body(&self) -> ErrorBody {
        let (_, code, retryable) = self.sorted();
        let body = ErrorBody { code: code.to_owned(), message: self.to_string(), retryable };
        match self {
            // A failure that the job would have come to, by its own code.
            Self::NotQuoted(failure) | Self::NotDone(failure) => {
                ErrorBody { code: failure.code.to_string(), retryable: failure.code.retryable(), ..body }
            }
            Self::Internal(cause) => {
                let reference = format!("{:08x}", rand::random::<u32>());
                tracing::error!(%reference, cause = %crate::error_chain(cause.as_ref()), "request failed");
                ErrorBody { message: format!("{}; reference {reference}", body.message), ..body }
            }
            Self::Unreachable(cause) => {
                tracing::debug!(cause = %crate::error_chain(cause.as_ref()), "a sandbox did not answer");
                body
            }
            Self::Chain(cause) => {
                tracing::warn!(cause = %crate::error_chain(cause), "a request waits for the node");
                body
            }
            _ => body,
        }
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        Self::NotQuoted(failure)
    }
}

impl From<RecordsError> for ApiError {
    fn from(error: RecordsError) -> Self {
        Self::Internal(Box::new(error))
    }
}

impl From<Unfinished> for ApiError {
    fn from(error: Unfinished) -> Self {
        match error {
            Unfinished::Failed(failure) if failure.code == FailureCode::SandboxLost => Self::NoSandbox,
            Unfinished::Failed(failure) => Self::NotDone(failure),
            Unfinished::Stopping => Self::NotReady,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, ..) = self.sorted();
        let mut response = (status, Json(self.body())).into_response();
        let headers = response.headers_mut();
        match self {
            Self::TooFast { retry_after_s } => drop(headers.insert(RETRY_AFTER, retry_after_s.into())),
            Self::Unauthorized(_) => {
                drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
            }
            _ if status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS => {
                drop(headers.insert(RETRY_AFTER, HeaderValue::from_static("1")));
            }
            _ => {}
        }
        response
    }
}
