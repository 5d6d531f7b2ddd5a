//! The sidecar as this process sees it: HTTP and the execution protocol over a socket.

use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName};
use hyper::{Method, Request, StatusCode};
use sandbox_fsp::{Endpoint, Pool, PoolSettings, Token, UnixSocket};
use sandbox_process::link::link;
use sandbox_protocol::agent::Secret;
use sandbox_protocol::exec::BEARER;
use sandbox_protocol::fsp::Extensions;
use tokio::net::UnixStream;

use crate::backends::PROGRAM_EXTENSIONS;
use crate::limits::FILE_ANSWER_MAX;

/// The sidecar. Clones share connections.
#[derive(Debug, Clone)]
pub struct Sidecar {
    socket: PathBuf,
    token: Secret,
    pool: Pool,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody is there.
    #[error("the sidecar cannot be reached")]
    Connect(#[source] io::Error),
    /// The request cannot be made.
    #[error("the request cannot be made")]
    Request(#[source] hyper::http::Error),
    /// The connection broke.
    #[error("the connection to the sidecar broke")]
    Exchange(#[source] hyper::Error),
    /// The answer is longer than is read, or broke off.
    #[error("the sidecar's answer cannot be read")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No answer in time.
    #[error("the sidecar did not answer in time")]
    TimedOut,
}

impl Sidecar {
    /// The one that serves at `socket`.
    pub fn new(socket: PathBuf, token: Secret) -> Self {
        let wanted = PROGRAM_EXTENSIONS.into_iter().collect::<Extensions>();
        let endpoint = Endpoint::new(UnixSocket::new(&socket), Token::fixed(token.reveal()), wanted);
        Self { socket, token, pool: Pool::new(endpoint, PoolSettings::default()) }
    }

    /// Connections of the execution protocol.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Asks once, and reads an answer of at most `bytes_max`.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn ask(&self, asked: Asked, bytes_max: usize) -> Result<Answered, AskError> {
        let mut request = Request::builder().method(asked.method).uri(asked.target).header(HOST, "sidecar");
        for (name, value) in asked.headers {
            request = request.header(name, value);
        }
        let request = request.header(AUTHORIZATION, format!("{BEARER} {}", self.token.reveal()));
        let request = request.body(Full::new(asked.body)).map_err(AskError::Request)?;
        let asking = async {
            let stream = UnixStream::connect(&self.socket).await.map_err(AskError::Connect)?;
            let (mut sender, _driver) = link(stream).await.map_err(AskError::Exchange)?;
            let (parts, body) = sender.send_request(request).await.map_err(AskError::Exchange)?.into_parts();
            let body = Limited::new(body, bytes_max).collect().await.map_err(AskError::Answer)?.to_bytes();
            Ok(Answered { status: parts.status, headers: parts.headers, body })
        };
        tokio::time::timeout(FILE_ANSWER_MAX, asking).await.map_err(|_| AskError::TimedOut)?
    }
}

/// A request of the sidecar.
#[derive(Debug)]
pub(super) struct Asked {
    method: Method,
    target: String,
    headers: Vec<(HeaderName, String)>,
    body: Bytes,
}

impl Asked {
    /// Without a body.
    pub(super) fn new(method: Method, target: String) -> Self {
        Self { method, target, headers: Vec::new(), body: Bytes::new() }
    }

    /// The same, with one header more.
    pub(super) fn with(mut self, name: HeaderName, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The same, with this body.
    pub(super) fn of(self, body: Bytes) -> Self {
        Self { body, ..self }
    }
}

/// Its answer.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}
