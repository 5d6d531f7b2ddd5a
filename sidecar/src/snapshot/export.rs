//! The archive as a body: it has an end only where the process has come to its own.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::HeaderMap;
use hyper::body::{Body, Bytes, Frame};
use hyper::header::HeaderValue;
use sandbox_protocol::snapshot::{ExportReport, REPORT_TRAILER};
use tokio::io::AsyncReadExt as _;
use tokio::process::ChildStdout;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::SnapshotError;
use super::worker::Worker;
use crate::archive::Told;
use crate::limits::{EXPORT_CHUNK_BYTES, EXPORT_CHUNKS_MAX, SNAPSHOT_MAX};

/// An archive on its way out. The process ends when this is dropped.
#[derive(Debug)]
pub struct Export {
    pieces: mpsc::Receiver<Piece>,
    ended: bool,
}

/// The archive has no end: what came of it is worth nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the archive broke off")]
pub struct CutOff;

#[derive(Debug)]
enum Piece {
    Data(Bytes),
    End(ExportReport),
}

/// Waits for the first bytes, so that what fails before has a status of its own.
pub(super) async fn begin(
    mut worker: Worker,
    permit: OwnedSemaphorePermit,
    stop: CancellationToken,
    tasks: &TaskTracker,
) -> Result<Export, SnapshotError> {
    let deadline = Instant::now() + SNAPSHOT_MAX;
    let Some(mut stdout) = worker.stdout() else { return Err(SnapshotError::Lost) };
    let first = tokio::select! {
        first = chunk(&mut stdout) => first.map_err(|_| SnapshotError::Lost)?,
        () = stop.cancelled() => return Err(SnapshotError::Interrupted),
        () = sleep_until(deadline) => return Err(SnapshotError::TooSlow),
    };
    if first.is_empty() {
        return Err(match worker.end().await? {
            Told::Failed(failed) => SnapshotError::Failed(failed),
            Told::Exported(_) | Told::Restored(_) | Told::Recovered => SnapshotError::Lost,
        });
    }
    let (send, pieces) = mpsc::channel(EXPORT_CHUNKS_MAX);
    tasks.spawn(async move {
        let why = tokio::select! {
            passed = pass_on(first, &mut stdout, &mut worker, &send) => passed.err(),
            () = send.closed() => Some(SnapshotError::CutOff),
            () = stop.cancelled() => Some(SnapshotError::Interrupted),
            () = sleep_until(deadline) => Some(SnapshotError::TooSlow),
        };
        if let Some(error) = why {
            tracing::warn!(error = &error as &dyn std::error::Error, "a snapshot broke off");
            worker.kill().await;
        }
        drop(permit);
    });
    Ok(Export { pieces, ended: false })
}

async fn pass_on(
    first: Bytes,
    stdout: &mut ChildStdout,
    worker: &mut Worker,
    send: &mpsc::Sender<Piece>,
) -> Result<(), SnapshotError> {
    let mut bytes = first;
    while !bytes.is_empty() {
        send.send(Piece::Data(bytes)).await.map_err(|_| SnapshotError::CutOff)?;
        bytes = chunk(stdout).await.map_err(|_| SnapshotError::Lost)?;
    }
    match worker.end().await? {
        Told::Exported(report) => send.send(Piece::End(report)).await.map_err(|_| SnapshotError::CutOff),
        Told::Failed(failed) => Err(SnapshotError::Failed(failed)),
        Told::Restored(_) | Told::Recovered => Err(SnapshotError::Lost),
    }
}

async fn chunk(stdout: &mut ChildStdout) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(EXPORT_CHUNK_BYTES);
    stdout.read_buf(&mut bytes).await?;
    Ok(bytes.into())
}

impl Body for Export {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(match ready!(self.pieces.poll_recv(context)) {
            Some(Piece::Data(bytes)) => Ok(Frame::data(bytes)),
            Some(Piece::End(report)) => {
                self.ended = true;
                trailers(&report).map(Frame::trailers).ok_or(CutOff)
            }
            None => Err(CutOff),
        }))
    }
}

fn trailers(report: &ExportReport) -> Option<HeaderMap> {
    let text = serde_json::to_string(report).ok()?;
    Some(HeaderMap::from_iter([(REPORT_TRAILER.parse().ok()?, HeaderValue::from_str(&text).ok()?)]))
}
