//! Connections that have left HTTP behind: what they do until they end, at the latest with the sidecar.

use bytes::Bytes;
use futures::stream::SplitStream;
use futures::{SinkExt as _, StreamExt as _};
use sandbox_process::websocket::Socket;
use sandbox_process::websocket::tungstenite::error::CapacityError;
use sandbox_process::websocket::tungstenite::protocol::CloseFrame;
use sandbox_process::websocket::tungstenite::{Error, Message, Utf8Bytes};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::SOCKET_CLOSE_MAX;

/// All upgraded connections. Clones share them; how many there are is bounded by what they are for.
#[derive(Debug, Clone)]
pub struct Upgraded {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Upgraded {
    /// None yet; all end after `stop`.
    pub fn new(stop: CancellationToken) -> Self {
        Self { stop, tasks: TaskTracker::new() }
    }

    /// Returns when, after the signal to stop, the last has ended.
    pub async fn closed(&self) {
        self.stop.cancelled().await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Goes on in the background with `connection`, which is given the signal to stop.
    pub(super) fn spawn<F>(&self, connection: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(connection(self.stop.clone()));
    }
}

/// The connection, once it has been upgraded; nothing where its client or the sidecar has gone before that.
pub(super) async fn opened<T>(
    stop: &CancellationToken,
    opening: impl Future<Output = Result<T, hyper::Error>>,
) -> Option<T> {
    let opened = stop.run_until_cancelled(opening).await?;
    opened.map_err(|error| tracing::debug!(error = &error as &dyn std::error::Error, "a client was gone at once")).ok()
}

/// Why a WebSocket ends: its close code.
pub(super) type CloseCode = u16;

/// What comes through a WebSocket.
pub(super) enum Came {
    /// A binary message.
    Bytes(Bytes),
    /// A text message.
    Text(Utf8Bytes),
    /// A ping or its answer: the other side is there.
    Life,
    /// Nothing more comes; `None` where the other side is gone.
    End(Option<CloseCode>),
}

/// Waits for what comes next; a message beyond the socket's bound ends it with `too_long`.
pub(super) async fn came(stream: &mut SplitStream<Socket>, too_long: CloseCode) -> Came {
    match stream.next().await {
        Some(Ok(Message::Binary(bytes))) => Came::Bytes(bytes),
        Some(Ok(Message::Text(text))) => Came::Text(text),
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Came::Life,
        Some(Err(Error::Capacity(CapacityError::MessageTooLong { .. }))) => Came::End(Some(too_long)),
        Some(Ok(Message::Close(_)) | Err(_)) | None => Came::End(None),
    }
}

/// Says why the WebSocket ends, and waits a little for the other side to have read it: what is closed while bytes wait
/// unread takes its last words along.
pub(super) async fn close(mut socket: Socket, code: CloseCode) {
    let frame = CloseFrame { code: code.into(), reason: Utf8Bytes::default() };
    let said = timeout(SOCKET_CLOSE_MAX, socket.send(Message::Close(Some(frame)))).await;
    if !matches!(said, Ok(Ok(()))) {
        return;
    }
    let answered = timeout(SOCKET_CLOSE_MAX, async {
        while let Some(Ok(message)) = socket.next().await {
            if message.is_close() {
                return;
            }
        }
        // Not understood any more, but read.
        if let Err(error) = tokio::io::copy(socket.get_mut(), &mut tokio::io::sink()).await {
            tracing::debug!(%error, "a WebSocket broke off at its end");
        }
    });
    if answered.await.is_err() {
        tracing::debug!("a WebSocket was not closed by its other side");
    }
}
