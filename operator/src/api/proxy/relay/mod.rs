//! A connection of the execution protocol: messages pass unread, but for the few words that begin and end executions.
//!
//! An execution without `replay` is over when the connection is that it runs on. So where the way between operator and
//! sandbox breaks, and the client is still there, each one that lives is ended here with the error that is true of it.
//! With `replay` they live on, and the client is told to come back.
//!
//! In each direction there is one message on its way; the next is read when that one has been taken.

mod follow;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sandbox_fleet::Fleet;
use sandbox_fleet::ports::Sidecars;
use sandbox_process::websocket::tungstenite::error::CapacityError;
use sandbox_process::websocket::tungstenite::protocol::frame::coding::CloseCode;
use sandbox_process::websocket::tungstenite::protocol::{CloseFrame, Role};
use sandbox_process::websocket::tungstenite::{Error, Message};
use sandbox_process::websocket::{Socket, bounds};
use sandbox_protocol::SandboxId;
use sandbox_protocol::fsp::{ErrorCode, ServerBody, ServerMessage, encode_server};
use tokio::time::{sleep, timeout};

use super::lease::{Lease, Over};
use super::passage::{Flow, Passage};
use crate::api::now_ms;
use crate::api::seats::Seat;
use crate::limits::{API_RELAY_FAREWELL_MAX, API_RELAY_MESSAGE_BYTES_MAX, SIDECAR_LOOK_MAX};

use follow::{Followed, Said};

type Tx = SplitSink<Socket, Message>;
type Rx = SplitStream<Socket>;

/// A relay in the making: both ends have agreed.
pub(super) struct Relay {
    pub(super) client: OnUpgrade,
    pub(super) inside: OnUpgrade,
    pub(super) fate: Fate,
    pub(super) sandbox: Inquiry,
    pub(super) passage: Arc<Passage>,
    pub(super) lease: Lease,
    pub(super) seat: Seat,
}

/// What becomes of executions whose connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// They are over.
    End,
    /// They live on, and are replayed.
    Replay,
}

/// Finds out what became of a sandbox that broke off.
pub(super) struct Inquiry {
    pub(super) id: SandboxId,
    pub(super) fleet: Fleet,
    pub(super) sidecars: Arc<dyn Sidecars>,
}

/// Why a relay ends.
#[derive(Debug)]
enum End {
    /// The client is gone.
    Gone,
    /// The client ends the connection, and perhaps says why.
    Left(Option<CloseFrame>),
    /// The client breaks the rules of WebSockets.
    Foul(CloseCode),
    /// The sandbox ends the connection, and says why.
    Closed(CloseFrame),
    /// The way to the sandbox broke.
    Broken,
    /// Its time is over.
    Over(Over),
}

/// What is told of an end.
struct Farewell {
    /// To each execution that lives.
    error: Option<(ErrorCode, &'static str)>,
    /// To the connection.
    close: CloseFrame,
}

impl Relay {
    /// Passes on until one of the ends is gone, or its time is over; then says what is to be said.
    pub(super) async fn run(self) {
        let Self { client, inside, fate, sandbox, passage, mut lease, seat } = self;
        let (client, inside) = match tokio::try_join!(client, inside) {
            Ok(ends) => ends,
            Err(error) => return tracing::debug!(error = %crate::error_chain(&error), "a relay never stood"),
        };
        let config = Some(bounds(API_RELAY_MESSAGE_BYTES_MAX));
        let client = Socket::from_raw_socket(TokioIo::new(client), Role::Server, config).await;
        let inside = Socket::from_raw_socket(TokioIo::new(inside), Role::Client, config).await;
        let (mut client_tx, mut client_rx) = client.split();
        let (mut inside_tx, mut inside_rx) = inside.split();
        let pass = Pass { followed: Mutex::new(Followed::new(fate, passage.activity().clone())), passage };
        let end = tokio::select! {
            end = pass.up(&mut client_rx, &mut inside_tx) => end,
            end = pass.down(&mut inside_rx, &mut client_tx) => end,
            over = lease.over() => End::Over(over),
        };
        tracing::debug!(?end, sandbox = %sandbox.id, "a relay ends");
        let close = match &end {
            End::Left(frame) => Some(Message::Close(frame.clone())),
            End::Foul(code) => Some(Message::Close(Some(frame(*code, "")))),
            End::Gone | End::Closed(_) | End::Broken | End::Over(_) => None,
        };
        let bye = async {
            if let Some(farewell) = sandbox.farewell(end, fate, &lease).await {
                pass.part(farewell, &mut client_tx).await?;
            }
            if let Some(close) = close {
                inside_tx.send(close).await?;
            }
            // One that is cut with words of the other end unread takes back what it said last.
            while client_rx.next().await.is_some_and(|said| said.is_ok()) {}
            Ok::<_, Error>(())
        };
        match timeout(API_RELAY_FAREWELL_MAX, bye).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "a client was gone before it was told"),
            Err(_) => tracing::debug!("a client did not take what it was told"),
        }
        drop(seat);
    }
}

/// What both directions share.
struct Pass {
    followed: Mutex<Followed>,
    passage: Arc<Passage>,
}

impl Pass {
    async fn up(&self, from: &mut Rx, to: &mut Tx) -> End {
        loop {
            let message = match from.next().await {
                None => return End::Gone,
                Some(Err(error)) => return foul(&error),
                Some(Ok(Message::Close(frame))) => return End::Left(frame),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => message,
            };
            // Noted first: if the way breaks now, it is told of.
            let said = match &message {
                Message::Text(text) => self.followed().client_says(text),
                _ => Said::Anything,
            };
            self.note(Flow::Up, said, message.len());
            if to.send(message).await.is_err() {
                // What the sandbox said before is still to be read, and with it that this is the end.
                sleep(API_RELAY_FAREWELL_MAX).await;
                return End::Broken;
            }
        }
    }

    async fn down(&self, from: &mut Rx, to: &mut Tx) -> End {
        loop {
            let message = match from.next().await {
                None | Some(Err(_) | Ok(Message::Close(None))) => return End::Broken,
                Some(Ok(Message::Close(Some(frame)))) => return End::Closed(frame),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => message,
            };
            let (kept, length) = (message.clone(), message.len());
            if to.feed(message).await.is_err() {
                return End::Gone;
            }
            // In the same breath: an ending that is on its way is not told again, and one that is not is.
            let said = match &kept {
                Message::Text(text) => self.followed().sandbox_says(text),
                _ => Said::Anything,
            };
            self.note(Flow::Down, said, length);
            if to.flush().await.is_err() {
                return End::Gone;
            }
        }
    }

    fn note(&self, flow: Flow, said: Said, bytes: usize) {
        self.passage.counted(flow, bytes);
        match said {
            Said::SignOfLife => {}
            Said::Anything => self.passage.activity().touch(),
        }
    }

    /// The last words.
    async fn part(&self, farewell: Farewell, to: &mut Tx) -> Result<(), Error> {
        if let Some((code, message)) = farewell.error {
            let ids: Vec<String> = self.followed().ids().map(str::to_owned).collect();
            for id in ids {
                let body = ServerBody::Error { code, message: message.to_owned(), retryable: code.retryable() };
                let error = ServerMessage { id: Some(id), seq: None, body };
                to.feed(Message::text(encode_server(&error, now_ms()))).await?;
            }
        }
        to.send(Message::Close(Some(farewell.close))).await
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inquiry {
    /// What a client is told that is still there.
    async fn farewell(&self, end: End, fate: Fate, lease: &Lease) -> Option<Farewell> {
        let network = |message| (ErrorCode::NetworkError, message);
        let (error, close) = match end {
            End::Gone | End::Left(_) => return None,
            End::Foul(code) => return Some(Farewell { error: None, close: frame(code, "") }),
            End::Closed(said) if said.code != CloseCode::Away => return Some(Farewell { error: None, close: said }),
            End::Closed(said) => (SANDBOX_ENDED, said),
            End::Over(Over::Sandbox) => (SANDBOX_ENDED, frame(CloseCode::Away, SANDBOX_ENDED.1)),
            End::Over(Over::Token) => {
                (network("the token opens nothing any more; sign in"), frame(CloseCode::Policy, "sign in"))
            }
            End::Over(Over::Operator) => {
                (network("the operator is ending"), frame(CloseCode::Restart, "the operator is ending"))
            }
            End::Broken if self.lives(lease).await => (network(WAY_BROKE), frame(CloseCode::Restart, WAY_BROKE)),
            End::Broken => (SANDBOX_ENDED, frame(CloseCode::Restart, SANDBOX_ENDED.1)),
        };
        Some(Farewell { error: (fate == Fate::End).then_some(error), close })
    }

    /// Whether the sandbox runs, and its sidecar answers. One that does not is looked after.
    async fn lives(&self, lease: &Lease) -> bool {
        let answers = timeout(SIDECAR_LOOK_MAX, self.sidecars.ready(&lease.stay.instance)).await;
        let answers = matches!(answers, Ok(Ok(())));
        if !answers {
            self.fleet.check(self.id).await;
        }
        answers && lease.stay.lasts()
    }
}

const WAY_BROKE: &str = "the way to the sandbox broke";
const SANDBOX_ENDED: (ErrorCode, &str) = (ErrorCode::InternalError, "the sandbox does not run any more");

/// What an error of a client's WebSocket means.
fn foul(error: &Error) -> End {
    match error {
        Error::Capacity(CapacityError::MessageTooLong { .. }) => End::Foul(CloseCode::Size),
        Error::Protocol(_) => End::Foul(CloseCode::Protocol),
        Error::Utf8(_) => End::Foul(CloseCode::Invalid),
        _ => End::Gone,
    }
}

fn frame(code: CloseCode, reason: &'static str) -> CloseFrame {
    CloseFrame { code, reason: reason.into() }
}
