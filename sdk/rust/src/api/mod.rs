//! An operator's API for those who signed in: their sandboxes and calls, and what happens to them.
//!
//! What changes the chain's view of a sandbox is a job; what is done here is done at its operator alone.

mod events;
pub mod inside;
mod sign_in;
pub(crate) mod sse;
mod workflows;

use std::time::Duration;

use alloy::primitives::Address;
use reqwest::{Method, RequestBuilder, Response};
use sandbox_protocol::SandboxId;
use sandbox_protocol::batch::{BatchId, BatchReport, BatchStatus};
use sandbox_protocol::holdings::{
    CallsBody, CallsQuery, EventsQuery, ResumeBody, SandboxBody, SandboxesBody, SandboxesQuery, SnapshotBody,
    SnapshotRequest, SshBody, SshKeyQuery, SshKeyRequest, SshKeysBody,
};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::session::{TokenBody, TokensBody};
use serde::de::DeserializeOwned;

use crate::answers::client::{base_url, http, is_transient};
use crate::limits::{
    API_ACT_WITHIN, API_BODY_BYTES_MAX, API_PAGES_MAX, API_WITHIN, BATCH_REPORT_BODY_BYTES_MAX, SNAPSHOT_WITHIN,
};

pub use events::{Events, Heard};
pub use reqwest::Body as Upload;
pub use sign_in::sign_in;
pub use workflows::RunChanges;

/// A session with one operator.
#[derive(Debug, Clone)]
pub struct Session {
    http: reqwest::Client,
    url: String,
    token: TokenBody,
}

/// Why an operator's API did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The HTTP client could not be made.
    #[error("the HTTP client could not be made")]
    Client(#[source] reqwest::Error),
    /// The operator has no URL that can be used.
    #[error("operator {operator} has no usable API URL: {url:?}")]
    NoUrl {
        /// The operator.
        operator: Address,
        /// What it registered.
        url: String,
    },
    /// TLS could not be set up.
    #[error("TLS could not be set up")]
    Tls(#[source] sandbox_fsp::WebError),
    /// The sign-in message could not be signed.
    #[error("the sign-in message could not be signed")]
    Sign(#[source] alloy::signers::Error),
    /// The operator wants a signature that is good elsewhere. None was given.
    #[error("the operator at {url} asks for a signature for {wanted}; nothing was signed")]
    Elsewhere {
        /// Its URL.
        url: String,
        /// What it wanted.
        wanted: String,
    },
    /// The operator did not answer.
    #[error("the operator at {url} did not answer")]
    Unreachable {
        /// Its URL.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
    /// A connection to the operator could not be opened, or broke.
    #[error("the connection to {url} broke")]
    Broken {
        /// Its URL.
        url: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operator refused the request.
    #[error("the operator refused with status {status}: {error}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What it said.
        error: ErrorBody,
    },
    /// What the operator sent is no answer of ours.
    #[error("the operator at {url} sent something else than an answer: {why}")]
    Garbled {
        /// Its URL.
        url: String,
        /// What is wrong.
        why: String,
    },
}

impl ApiError {
    /// Whether asking again may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } => true,
            Self::Refused { status, error } => error.retryable || (is_transient(*status) && *status != 404),
            Self::Client(_)
            | Self::NoUrl { .. }
            | Self::Tls(_)
            | Self::Sign(_)
            | Self::Elsewhere { .. }
            | Self::Garbled { .. } => false,
        }
    }

    /// Whether the token is good no more: signing in again helps.
    pub const fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Refused { status: 401, .. })
    }
}

impl Session {
    /// The session of a token that `operator` gave, at the URL it has registered.
    ///
    /// # Errors
    /// [`ApiError::Client`], [`ApiError::NoUrl`].
    pub fn new(operator: Address, registered: &str, token: TokenBody) -> Result<Self, ApiError> {
        let url = url_of(operator, registered)?;
        Ok(Self { http: http().map_err(ApiError::Client)?, url, token })
    }

    /// Its token, to be kept for the next time.
    pub const fn token(&self) -> &TokenBody {
        &self.token
    }

    /// A page of one's sandboxes here.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn sandboxes(&self, query: &SandboxesQuery) -> Result<SandboxesBody, ApiError> {
        self.answer(self.request(Method::GET, "/v1/sandboxes").query(query)).await
    }

    /// All of one's sandboxes here that a query is for, page by page.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn all_sandboxes(&self, query: &SandboxesQuery) -> Result<Vec<SandboxBody>, ApiError> {
        let (mut query, mut all) = (query.clone(), Vec::new());
        for _ in 0..API_PAGES_MAX {
            let page = self.sandboxes(&query).await?;
            all.extend(page.sandboxes);
            match page.next {
                Some(next) => query.cursor = Some(next),
                None => return Ok(all),
            }
        }
        Err(self.garbled("pages without end"))
    }

    /// One of one's sandboxes.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn sandbox(&self, id: SandboxId) -> Result<SandboxBody, ApiError> {
        self.answer(self.request(Method::GET, &format!("/v1/sandboxes/{id}"))).await
    }

    /// Stops a sandbox; what is in it stays.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn stop(&self, id: SandboxId) -> Result<SandboxBody, ApiError> {
        let request = self.request(Method::POST, &format!("/v1/sandboxes/{id}/stop"));
        self.answer(request.timeout(API_ACT_WITHIN)).await
    }

    /// Starts a stopped sandbox again, with what a snapshot holds where one is named.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn resume(&self, id: SandboxId, body: &ResumeBody) -> Result<SandboxBody, ApiError> {
        let request = self.request(Method::POST, &format!("/v1/sandboxes/{id}/resume")).json(body);
        self.answer(request.timeout(API_ACT_WITHIN)).await
    }

    /// Deletes a sandbox and everything in it.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete(&self, id: SandboxId) -> Result<SandboxBody, ApiError> {
        let request = self.request(Method::DELETE, &format!("/v1/sandboxes/{id}"));
        self.answer(request.timeout(API_ACT_WITHIN)).await
    }

    /// Writes what is in a running sandbox to a place.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn snapshot(&self, id: SandboxId, body: &SnapshotRequest) -> Result<SnapshotBody, ApiError> {
        let request = self.request(Method::POST, &format!("/v1/sandboxes/{id}/snapshot")).json(body);
        self.answer(request.timeout(SNAPSHOT_WITHIN)).await
    }

    /// Where customers come over SSH, and the keys by which they know the host.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn ssh(&self) -> Result<SshBody, ApiError> {
        self.answer(self.request(Method::GET, "/v1/ssh")).await
    }

    /// The SSH keys that a sandbox has on record.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn ssh_keys(&self, id: SandboxId) -> Result<SshKeysBody, ApiError> {
        self.answer(self.request(Method::GET, &ssh_keys_of(id))).await
    }

    /// Has an SSH key open a sandbox; one that does already gets a new end.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn admit_ssh_key(&self, id: SandboxId, body: &SshKeyRequest) -> Result<SshKeysBody, ApiError> {
        self.answer(self.request(Method::PUT, &ssh_keys_of(id)).json(body)).await
    }

    /// Has an SSH key open a sandbox no more, and ends what it has opened.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn revoke_ssh_key(&self, id: SandboxId, fingerprint: &str) -> Result<SshKeysBody, ApiError> {
        let query = SshKeyQuery { fingerprint: fingerprint.to_owned() };
        self.answer(self.request(Method::DELETE, &ssh_keys_of(id)).query(&query)).await
    }

    /// A page of one's calls here, the newest first.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn calls(&self, query: &CallsQuery) -> Result<CallsBody, ApiError> {
        self.answer(self.request(Method::GET, "/v1/calls").query(query)).await
    }

    /// Where a batch of one's own is at this operator, as it is now; one that it has no part of is `unknown`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn batch(&self, service: u64, id: &BatchId) -> Result<BatchReport, ApiError> {
        let request = self.request(Method::GET, &format!("/v1/services/{service}/batches/{id}"));
        let report: BatchReport = match answer_within(&self.url, request, BATCH_REPORT_BODY_BYTES_MAX).await {
            Err(ApiError::Refused { status: 404, .. }) => {
                let (parts, others) = (Vec::new(), Vec::new());
                return Ok(BatchReport { batch_id: id.clone(), service, status: BatchStatus::Unknown, parts, others });
            }
            report => report?,
        };
        let is_of_it = report.service == service && report.batch_id == *id;
        if is_of_it { Ok(report) } else { Err(self.garbled("a report of another batch")) }
    }

    /// One's tokens here that are good now.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn tokens(&self) -> Result<TokensBody, ApiError> {
        self.answer(self.request(Method::GET, "/v1/auth/tokens")).await
    }

    /// Revokes a token of one's own, this one or another.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn revoke(&self, token: &str) -> Result<(), ApiError> {
        let request = self.request(Method::DELETE, &format!("/v1/auth/tokens/{token}"));
        body_of(&self.url, self.send(request).await?).await.map(drop)
    }

    /// What happens to one's sandboxes, from the query's place on.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn events(&self, query: EventsQuery) -> Result<Events, ApiError> {
        let request = self.request(Method::GET, "/v1/events").query(&query);
        // No bound on the whole: a stream is read as long as it lives.
        let response = self.send(request.timeout(Duration::MAX)).await?;
        if response.status().is_success() {
            return Ok(Events::new(self.url.clone(), response));
        }
        Err(body_of(&self.url, response).await.err().unwrap_or_else(|| self.garbled("no stream")))
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        request.bearer_auth(&self.token.token).timeout(API_WITHIN)
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ApiError> {
        send(&self.url, request).await
    }

    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ApiError> {
        answer(&self.url, request).await
    }

    fn garbled(&self, why: &str) -> ApiError {
        ApiError::Garbled { url: self.url.clone(), why: why.to_owned() }
    }
}

fn ssh_keys_of(id: SandboxId) -> String {
    format!("/v1/sandboxes/{id}/ssh-keys")
}

fn url_of(operator: Address, registered: &str) -> Result<String, ApiError> {
    base_url(registered).ok_or_else(|| ApiError::NoUrl { operator, url: registered.to_owned() })
}

async fn send(url: &str, request: RequestBuilder) -> Result<Response, ApiError> {
    request.send().await.map_err(|source| unreachable(url, source))
}

pub(crate) async fn answer<T: DeserializeOwned>(url: &str, request: RequestBuilder) -> Result<T, ApiError> {
    answer_within(url, request, API_BODY_BYTES_MAX).await
}

/// The answer, of at most so many bytes.
async fn answer_within<T: DeserializeOwned>(
    url: &str,
    request: RequestBuilder,
    bytes_max: usize,
) -> Result<T, ApiError> {
    let body = body_within(url, send(url, request).await?, bytes_max).await?;
    let garbled = |error: serde_json::Error| ApiError::Garbled { url: url.to_owned(), why: error.to_string() };
    serde_json::from_slice(&body).map_err(garbled)
}

/// The whole body of a good answer; the refusal in any other.
async fn body_of(url: &str, response: Response) -> Result<Vec<u8>, ApiError> {
    body_within(url, response, API_BODY_BYTES_MAX).await
}

async fn body_within(url: &str, mut response: Response, bytes_max: usize) -> Result<Vec<u8>, ApiError> {
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|source| unreachable(url, source))? {
        body.extend_from_slice(&chunk);
        if body.len() > bytes_max {
            let why = format!("more than {bytes_max} bytes");
            return Err(ApiError::Garbled { url: url.to_owned(), why });
        }
    }
    if status.is_success() {
        return Ok(body);
    }
    let unsaid = || ErrorBody { code: "unknown".into(), message: "without a reason".into(), retryable: false };
    let error = serde_json::from_slice(&body).unwrap_or_else(|_| unsaid());
    Err(ApiError::Refused { status: status.as_u16(), error })
}

fn unreachable(url: &str, source: reqwest::Error) -> ApiError {
    ApiError::Unreachable { url: url.to_owned(), source: source.without_url() }
}
