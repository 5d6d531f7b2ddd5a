//! What is in a sandbox as a stream, out of its sidecar and into it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt};
use http_body_util::{BodyExt as _, BodyStream, Empty, Limited, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use sandbox_fleet::sandbox::Instance;
use sandbox_process::link::{Driver, link};
use sandbox_protocol::exec::{BEARER, SidecarRefusal};
use sandbox_protocol::snapshot::{ExportQuery, MEDIA_TYPE, ROUTE, Sha256, SnapshotErrorBody, SnapshotRefusal};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::{ReaderStream, StreamReader};

use super::SocketSidecars;
use crate::limits::{SIDECAR_ERROR_BYTES_MAX, SNAPSHOT_CHUNK_BYTES};

type Fault = Box<dyn std::error::Error + Send + Sync>;
type Bytestream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send + Sync>>;

/// Why a snapshot was not made or taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SnapshotError {
    /// The sidecar does not take it.
    #[error("refused: {}", .0.error)]
    Refused(SnapshotErrorBody),
    /// The sandbox's disk is too small for it.
    #[error("no room: {}", .0.error)]
    Full(SnapshotErrorBody),
    /// The sidecar is of an older release, which knows no snapshots.
    #[error("the sidecar is of an older release")]
    Outdated,
    /// There is another one under way.
    #[error("another snapshot is under way")]
    Busy,
    /// What it was to be read from failed.
    #[error("the snapshot cannot be read to its end")]
    Source(#[source] io::Error),
    /// The exchange with the sidecar failed.
    #[error("the exchange with the sidecar failed")]
    Exchange(#[source] Fault),
}

/// A snapshot as it is made. Dropping it tells the sidecar to leave off.
pub(crate) struct Export {
    reader: StreamReader<Bytestream, Bytes>,
    _connection: Driver,
}

impl AsyncRead for Export {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buffer)
    }
}

impl SocketSidecars {
    /// Begins to read what is in a sandbox. A stream that fails is no snapshot; one that ends well is whole.
    pub(crate) async fn export(&self, instance: &Instance, query: ExportQuery) -> Result<Export, SnapshotError> {
        let ExportQuery { workspace, state } = query;
        let request = asked(instance, Method::GET, &format!("{ROUTE}?workspace={workspace}&state={state}"));
        let request = request.body(Empty::<Bytes>::new()).map_err(exchange)?;
        let (mut sender, connection) = self.link(instance).await?;
        let response = sender.send_request(request).await.map_err(exchange)?;
        let response = accepted(response).await?;
        let frames = TryStreamExt::map_err(BodyStream::new(response.into_body()), io::Error::other);
        let bytes: Bytestream = Box::pin(frames.try_filter_map(|frame| std::future::ready(Ok(frame.into_data().ok()))));
        Ok(Export { reader: StreamReader::new(bytes), _connection: connection })
    }

    /// Puts a snapshot in place of what is in a sandbox.
    pub(crate) async fn restore(
        &self,
        instance: &Instance,
        sha256: Sha256,
        source: impl AsyncRead + Send + 'static,
    ) -> Result<(), SnapshotError> {
        let broken = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&broken);
        let chunks = ReaderStream::with_capacity(source, SNAPSHOT_CHUNK_BYTES).map(move |chunk| {
            chunk.map(Frame::data).map_err(|error| {
                *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                io::Error::from(io::ErrorKind::UnexpectedEof)
            })
        });
        let request = asked(instance, Method::PUT, &format!("{ROUTE}?sha256={sha256}"));
        let request = request.header(CONTENT_TYPE, MEDIA_TYPE);
        let request = request.body(StreamBody::new(Box::pin(chunks))).map_err(exchange)?;
        let (mut sender, _connection) = self.link(instance).await?;
        let sent = sender.send_request(request).await;
        if let Some(error) = broken.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(SnapshotError::Source(error));
        }
        accepted(sent.map_err(exchange)?).await.map(drop)
    }

    /// A connection of its own, driven until it is dropped.
    async fn link<B>(&self, instance: &Instance) -> Result<(SendRequest<B>, Driver), SnapshotError>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Fault>,
    {
        link(self.dial(instance).await.map_err(exchange)?).await.map_err(exchange)
    }
}

fn asked(instance: &Instance, method: Method, uri: &str) -> hyper::http::request::Builder {
    let bearer = format!("{BEARER} {}", instance.token.reveal());
    Request::builder().method(method).uri(uri).header(HOST, "sidecar").header(AUTHORIZATION, bearer)
}

/// The answer, unless it is a refusal.
async fn accepted(response: Response<Incoming>) -> Result<Response<Incoming>, SnapshotError> {
    if response.status() == StatusCode::OK {
        return Ok(response);
    }
    let body = Limited::new(response.into_body(), SIDECAR_ERROR_BYTES_MAX);
    let body = body.collect().await.map_err(SnapshotError::Exchange)?.to_bytes();
    let refused: SnapshotErrorBody = serde_json::from_slice(&body).map_err(exchange)?;
    Err(match SnapshotRefusal::from_code(&refused.error.code) {
        Some(SnapshotRefusal::DiskFull) => SnapshotError::Full(refused),
        Some(
            SnapshotRefusal::ArchiveRefused
            | SnapshotRefusal::HashMismatch
            | SnapshotRefusal::CutOff
            | SnapshotRefusal::TooSlow
            | SnapshotRefusal::Unavailable,
        ) => SnapshotError::Refused(refused),
        None => match SidecarRefusal::from_code(&refused.error.code) {
            Some(SidecarRefusal::Busy) => SnapshotError::Busy,
            Some(SidecarRefusal::NotFound | SidecarRefusal::MethodNotAllowed) => SnapshotError::Outdated,
            Some(_) | None => SnapshotError::Exchange(refused.error.into()),
        },
    })
}

fn exchange(error: impl Into<Fault>) -> SnapshotError {
    SnapshotError::Exchange(error.into())
}
