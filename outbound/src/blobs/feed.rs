//! A body that is sent while it is read: from the source through a bounded queue to an HTTP client.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::{TryFutureExt, stream};
use reqwest::{Body, RequestBuilder, Response};
use tokio::io::AsyncRead;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::Patience;
use super::error::{BlobError, Store};
use super::intake::{Flowed, Intake};
use crate::limits::{CHUNK_BYTES, CHUNKS_QUEUED_MAX};

/// Carries chunks, and nothing for the end.
type Queue = mpsc::Sender<Option<Bytes>>;

/// A body on its way to one store.
pub(super) struct Feed<'a, R> {
    pub store: Store,
    pub patience: Patience,
    /// What has been read already.
    pub head: BytesMut,
    /// For how long a refusal is waited for before the body is sent. Who refuses by the headers alone then closes,
    /// and its answer is lost to a client that is still sending.
    pub pause: Option<Duration>,
    pub intake: &'a mut Intake<R>,
}

/// Why the source is no longer read.
enum Stop {
    /// Nobody takes the body any more: the answer says why.
    Closed,
    Failed(BlobError),
}

impl<R: AsyncRead + Send + Unpin> Feed<'_, R> {
    /// Sends what `request` makes of the body. The answer may be a refusal given before the source was read, and then
    /// nothing has flowed to its end.
    pub(super) async fn send(
        mut self,
        request: impl FnOnce(Body) -> RequestBuilder,
    ) -> Result<(Response, Option<Flowed>), BlobError> {
        let (queue, chunks) = mpsc::channel(CHUNKS_QUEUED_MAX);
        let (store, limit) = (self.store, self.patience.answer_max);
        let answer = request(body(chunks)).send().map_err(|error| BlobError::of_client(store, limit, error));
        let mut answer = pin!(answer);
        let mut pump = pin!(self.pump(queue));
        let pumped = tokio::select! {
            biased;
            pumped = &mut pump => pumped,
            early = &mut answer => {
                let early = early?;
                if !early.status().is_success() {
                    return Ok((early, None));
                }
                // A server has the last byte a moment before the pump knows it.
                let pumped = timeout(limit, pump).await.map_err(|_| BlobError::TooSlow { store, limit })?;
                return Ok((early, flowed(pumped)?));
            }
        };
        let flowed = flowed(pumped)?;
        Ok((timeout(limit, answer).await.map_err(|_| BlobError::TooSlow { store, limit })??, flowed))
    }

    /// Moves the source into the queue. The last chunk follows only when the end has been seen, so that no server
    /// takes bytes for the whole that are less or more than announced.
    async fn pump(&mut self, queue: Queue) -> Result<Flowed, Stop> {
        if let Some(pause) = self.pause {
            sleep(pause).await;
        }
        let head = std::mem::take(&mut self.head).freeze();
        for start in (0..head.len()).step_by(CHUNK_BYTES) {
            let end = head.len().min(start + CHUNK_BYTES);
            self.hand_on(&queue, Some(head.slice(start..end))).await?;
        }
        let mut last = None;
        while let Some(chunk) = self.intake.chunk().await.map_err(Stop::Failed)? {
            if let Some(chunk) = last.replace(chunk) {
                self.hand_on(&queue, Some(chunk)).await?;
            }
        }
        if last.is_some() {
            self.hand_on(&queue, last).await?;
        }
        match self.hand_on(&queue, None).await {
            // A body of known length is over with its last byte.
            Ok(()) | Err(Stop::Closed) => Ok(self.intake.flowed()),
            Err(failed) => Err(failed),
        }
    }

    async fn hand_on(&self, queue: &Queue, chunk: Option<Bytes>) -> Result<(), Stop> {
        let limit = self.patience.stall_max;
        let sent = timeout(limit, queue.send(chunk)).await;
        sent.map_err(|_| Stop::Failed(BlobError::TooSlow { store: self.store, limit }))?.map_err(|_| Stop::Closed)
    }
}

fn flowed(pumped: Result<Flowed, Stop>) -> Result<Option<Flowed>, BlobError> {
    match pumped {
        Ok(flowed) => Ok(Some(flowed)),
        Err(Stop::Closed) => Ok(None),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// The client sends in a task of its own. A queue that closes without an end, because the source failed or nobody
/// waits any longer, must break the request off: to end it would make it whole.
fn body(chunks: mpsc::Receiver<Option<Bytes>>) -> Body {
    let chunks = stream::unfold(Some(chunks), async |chunks| {
        let mut chunks = chunks?;
        match chunks.recv().await {
            Some(Some(chunk)) => Some((Ok(chunk), Some(chunks))),
            Some(None) => None,
            None => Some((Err(io::Error::from(io::ErrorKind::UnexpectedEof)), None)),
        }
    });
    Body::wrap_stream(chunks)
}
