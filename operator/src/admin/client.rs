//! The commands' side of the socket.

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::{CallLine, CallsQuery, DrainBody, Drained, NodeState, RECORDS_HEADER, SOCKET_FILE, SandboxLine};
use crate::limits::{ADMIN_REPLY_BYTES_MAX, ADMIN_TIMEOUT};

/// The running node of a state directory.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    socket: PathBuf,
}

/// Why the running node did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    /// The socket is there and takes nobody in.
    #[error("cannot connect to the running node at {}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The request cannot be made.
    #[error("the request to the running node cannot be made")]
    Request(#[source] hyper::http::Error),
    /// The exchange broke off.
    #[error("the running node broke off")]
    Exchange(#[source] hyper::Error),
    /// The answer was not read.
    #[error("the answer of the running node was not read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer is not what it should be: perhaps another version answers.
    #[error("the answer of the running node is not understood")]
    Json(#[source] serde_json::Error),
    /// What was received cannot be written.
    #[error("cannot write what the running node sent")]
    Write(#[source] io::Error),
    /// It did not answer in time.
    #[error("the running node did not answer within {} s", ADMIN_TIMEOUT.as_secs())]
    TimedOut,
    /// It refused.
    #[error("the running node: {0}")]
    Refused(String),
}

impl Node {
    /// The node that runs on this state directory, if one does.
    pub(crate) async fn running(data_dir: &Path) -> Result<Option<Self>, AdminError> {
        let socket = data_dir.join(SOCKET_FILE);
        match UnixStream::connect(&socket).await {
            Ok(_) => Ok(Some(Self { socket })),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(source) => Err(AdminError::Connect { socket, source }),
        }
    }

    pub(crate) async fn state(&self) -> Result<NodeState, AdminError> {
        self.json(Method::GET, "/state", Bytes::new()).await
    }

    pub(crate) async fn sandboxes(&self) -> Result<Vec<SandboxLine>, AdminError> {
        self.json(Method::GET, "/sandboxes", Bytes::new()).await
    }

    pub(crate) async fn calls(&self, query: CallsQuery) -> Result<Vec<CallLine>, AdminError> {
        self.json(Method::GET, &format!("/calls?open={}", query.open), Bytes::new()).await
    }

    pub(crate) async fn drain(&self, drain: bool) -> Result<Drained, AdminError> {
        let body = serde_json::to_vec(&DrainBody { drain }).map_err(AdminError::Json)?;
        self.json(Method::POST, "/drain", body.into()).await
    }

    pub(crate) async fn adopt(&self) -> Result<Vec<SandboxLine>, AdminError> {
        self.json(Method::POST, "/adopt", Bytes::new()).await
    }

    /// Writes a copy of the node's records; gives their number.
    pub(crate) async fn backup(&self, mut out: impl AsyncWrite + Unpin) -> Result<u64, AdminError> {
        let receiving = async {
            let response = self.ask(Method::GET, "/backup", Bytes::new()).await?;
            let count = response.headers().get(RECORDS_HEADER).and_then(|count| count.to_str().ok()?.parse().ok());
            let mut body = response.into_body();
            while let Some(frame) = body.frame().await {
                if let Ok(bytes) = frame.map_err(AdminError::Exchange)?.into_data() {
                    out.write_all(&bytes).await.map_err(AdminError::Write)?;
                }
            }
            out.flush().await.map_err(AdminError::Write)?;
            count.ok_or_else(|| AdminError::Refused("it did not say how many records it sent".into()))
        };
        tokio::time::timeout(ADMIN_TIMEOUT, receiving).await.map_err(|_| AdminError::TimedOut)?
    }

    async fn json<T: DeserializeOwned>(&self, method: Method, path: &str, body: Bytes) -> Result<T, AdminError> {
        let asking = async {
            let response = self.ask(method, path, body).await?;
            serde_json::from_slice(&read(response).await?).map_err(AdminError::Json)
        };
        tokio::time::timeout(ADMIN_TIMEOUT, asking).await.map_err(|_| AdminError::TimedOut)?
    }

    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Response<Incoming>, AdminError> {
        let connect = |source| AdminError::Connect { socket: self.socket.clone(), source };
        let stream = UnixStream::connect(&self.socket).await.map_err(connect)?;
        let (mut sender, connection) =
            http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await.map_err(AdminError::Exchange)?;
        // It ends with the answer; what goes wrong on it, the answer shows.
        tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header(HOST, "operator");
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::from(body));
        let response =
            sender.send_request(request.map_err(AdminError::Request)?).await.map_err(AdminError::Exchange)?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let reason = read(response).await?;
        Err(AdminError::Refused(String::from_utf8_lossy(&reason).into_owned()))
    }
}

async fn read(response: Response<Incoming>) -> Result<Bytes, AdminError> {
    let body = Limited::new(response.into_body(), ADMIN_REPLY_BYTES_MAX);
    Ok(body.collect().await.map_err(AdminError::Body)?.to_bytes())
}
