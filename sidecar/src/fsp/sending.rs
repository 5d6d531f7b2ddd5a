//! A connection's way out: one task that writes, what waits for it bounded, and what answers a client before what tells
//! it of executions.

use std::time::{SystemTime, UNIX_EPOCH};

use futures::SinkExt as _;
use futures::stream::SplitSink;
use sandbox_process::websocket::Socket;
use sandbox_process::websocket::tungstenite::protocol::CloseFrame;
use sandbox_process::websocket::tungstenite::{self, Message};
use sandbox_protocol::fsp::{ServerMessage, encode_server};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::limits::{FSP_SEND_MAX, FSP_SENDS_WAITING_MAX};

/// Where messages wait to be sent. Clones share the room.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    answers: mpsc::Sender<Message>,
    tidings: mpsc::Sender<Message>,
}

/// Nothing is sent any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection is gone")]
pub(super) struct Gone;

/// The task's end of it.
pub(super) struct Sending {
    answers: mpsc::Receiver<Message>,
    tidings: mpsc::Receiver<Message>,
    sink: SplitSink<Socket, Message>,
}

impl Outgoing {
    pub(super) fn new(sink: SplitSink<Socket, Message>) -> (Self, Sending) {
        let (answers, to_answer) = mpsc::channel(FSP_SENDS_WAITING_MAX);
        let (tidings, to_tell) = mpsc::channel(FSP_SENDS_WAITING_MAX);
        (Self { answers, tidings }, Sending { answers: to_answer, tidings: to_tell, sink })
    }

    /// Answers what a client asked. One who asks and does not read waits for itself.
    pub(super) async fn answer(&self, message: &ServerMessage) -> Result<(), Gone> {
        self.answer_frame(text(message)).await
    }

    pub(super) async fn answer_frame(&self, frame: Message) -> Result<(), Gone> {
        self.answers.send(frame).await.map_err(|_| Gone)
    }

    /// Tells of an execution, in turn with others.
    pub(super) async fn tell(&self, frame: Message) -> Result<(), Gone> {
        self.tidings.send(frame).await.map_err(|_| Gone)
    }
}

impl Sending {
    /// Sends until everybody has let go of the other end, or the client of the connection; then says good-bye.
    pub(super) async fn run(mut self, farewell: impl Future<Output = Option<CloseFrame>>) {
        let sent = async {
            while let Some(frame) = self.next().await {
                timeout(FSP_SEND_MAX, self.send(frame)).await.map_err(|_| Ended::Slow)??;
            }
            Ok::<_, Ended>(())
        };
        match sent.await {
            Ok(()) => {
                let close = self.sink.send(Message::Close(farewell.await));
                if !matches!(timeout(FSP_SEND_MAX, close).await, Ok(Ok(()))) {
                    tracing::debug!("a client left without good-bye");
                }
            }
            Err(Ended::Slow) => tracing::info!("a client took too long to read"),
            Err(Ended::Broken(error)) => tracing::debug!(%error, "a client is gone"),
        }
    }

    async fn next(&mut self) -> Option<Message> {
        let (answers, tidings) = (&mut self.answers, &mut self.tidings);
        tokio::select! {
            biased;
            Some(frame) = answers.recv() => Some(frame),
            Some(frame) = tidings.recv() => Some(frame),
            else => None,
        }
    }

    /// What is gathered goes out once nothing more waits.
    async fn send(&mut self, frame: Message) -> Result<(), tungstenite::Error> {
        self.sink.feed(frame).await?;
        if self.answers.is_empty() && self.tidings.is_empty() {
            self.sink.flush().await?;
        }
        Ok(())
    }
}

/// Why sending ended early.
enum Ended {
    Slow,
    Broken(tungstenite::Error),
}

impl From<tungstenite::Error> for Ended {
    fn from(error: tungstenite::Error) -> Self {
        Self::Broken(error)
    }
}

/// A message as a frame, of this instant.
pub(super) fn text(message: &ServerMessage) -> Message {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Message::text(encode_server(message, u64::try_from(now.as_millis()).unwrap_or(u64::MAX)))
}
