//! The task that owns a connection's socket and its book.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use sandbox_protocol::fsp::{
    ClientMessage, Extension, Extensions, Frame, Kind, Load, ServerBody, ServerMessage, decode_server, encode_client,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};
use tokio_util::task::AbortOnDropHandle;

use super::book::Book;
use super::feed::Feed;
use super::{Command, State};
use crate::error::FspError;
use crate::handshake::{Endpoint, Socket};
use crate::limits::{CLOSE_TIMEOUT_MS, LOGGED_BYTES_MAX, OUTGOING_MAX, SILENCE_MS};

/// Ids of executions whose consumers are gone.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    ids: Mutex<Vec<String>>,
    added: Notify,
}

impl Dropped {
    pub(super) fn add(&self, id: String) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        self.added.notify_one();
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.ids.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An open link. Writing has a task of its own, so that a sandbox that does not read cannot keep us from reading.
struct Link {
    messages: SplitStream<Socket>,
    outgoing: mpsc::Sender<Message>,
    writer: AbortOnDropHandle<()>,
    granted: Extensions,
    /// When something was last heard.
    heard: Instant,
    /// Whether the silence since then was asked about.
    asked: bool,
}

pub(super) struct Driver {
    endpoint: Endpoint,
    commands: mpsc::Receiver<Command>,
    dropped: Arc<Dropped>,
    shown: watch::Sender<State>,
    book: Book,
    /// Still to be said, before any other command is taken.
    unsaid: VecDeque<ClientMessage>,
    /// Who waits for a `pong`, in order; nobody for our own.
    pings: VecDeque<Option<oneshot::Sender<Load>>>,
    /// The feed that has no room, so that nothing more is read.
    full: Option<Arc<Feed>>,
}

/// Why a link is not served any more.
enum Left {
    /// It broke.
    Broken(FspError),
    /// The sandbox broke the protocol.
    Malformed(FspError),
    /// Nobody holds the connection.
    Unused,
}

type Step = ControlFlow<Left>;

impl Driver {
    pub(super) fn new(
        endpoint: Endpoint,
        commands: mpsc::Receiver<Command>,
        dropped: Arc<Dropped>,
        shown: watch::Sender<State>,
    ) -> Self {
        Self {
            endpoint,
            commands,
            dropped,
            shown,
            book: Book::default(),
            unsaid: VecDeque::new(),
            pings: VecDeque::new(),
            full: None,
        }
    }

    pub(super) async fn run(mut self, socket: Socket, granted: Extensions) {
        let mut link = Link::new(socket, granted);
        let error = loop {
            let broken = match self.serve(&mut link).await {
                Left::Broken(error) => error,
                Left::Malformed(error) => {
                    self.unsaid.extend(self.book.fail_all(&error).into_iter().map(|id| ClientMessage::Cancel { id }));
                    self.close(link).await;
                    break error;
                }
                Left::Unused => {
                    self.close(link).await;
                    break FspError::Disconnected { source: None };
                }
            };
            tracing::debug!(error = &broken as &dyn std::error::Error, "the link to a sandbox broke");
            let replay = link.granted.has(Extension::Replay);
            drop(link);
            match self.reconnect(broken, replay).await {
                Ok(opened) => link = opened,
                Err(error) => break error,
            }
        };
        self.shown.send_replace(State::Closed);
        self.end(&error);
    }

    /// Fails what waits, and what comes until the last handle has heard of it.
    fn end(mut self, error: &FspError) {
        self.book.fail_all(error);
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Open { id, entry, .. } = command {
                self.book.enter(id, entry);
            }
        }
        // These were never sent.
        self.book.fail_all(&FspError::Disconnected { source: None });
    }

    /// Serves a link until it is left.
    async fn serve(&mut self, link: &mut Link) -> Left {
        loop {
            if let ControlFlow::Break(left) = self.step(link).await {
                return left;
            }
        }
    }

    async fn step(&mut self, link: &mut Link) -> Step {
        let (full, deadline, silence) = (self.full.clone(), self.book.next_deadline(), link.silence());
        let reads = full.is_none();
        tokio::select! {
            permit = link.outgoing.reserve(), if !self.unsaid.is_empty() => match (permit, self.unsaid.pop_front()) {
                (Ok(permit), Some(message)) => permit.send(written(message, &link.granted)),
                _ => return Step::Break(Left::Broken(FspError::Disconnected { source: None })),
            },
            command = self.commands.recv(), if self.unsaid.is_empty() => match command {
                Some(command) => self.obey(command),
                None => return Step::Break(Left::Unused),
            },
            message = link.messages.next(), if reads => {
                (link.heard, link.asked) = (Instant::now(), false);
                return self.hear(message, &link.granted);
            }
            () = room(full) => {
                self.full = None;
                link.heard = Instant::now();
            }
            () = until(deadline) => self.expire(),
            () = self.dropped.added.notified() => self.forget_dropped(link.granted.has(Extension::Replay)),
            () = tokio::time::sleep_until(silence), if reads && !self.book.is_empty() => {
                return self.ask(std::mem::replace(&mut link.asked, true));
            }
        }
        Step::Continue(())
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Open { id, entry, opening } => {
                if self.book.enter(id, entry) {
                    self.unsaid.push_back(opening);
                }
            }
            Command::Say(message) => {
                self.book.note(&message);
                self.unsaid.push_back(message);
            }
            Command::Grant(id) => {
                if let Some(bytes) = self.book.grant(&id) {
                    self.unsaid.push_back(ClientMessage::Credit { id, bytes });
                }
            }
            Command::Ping(answer) => {
                self.pings.push_back(Some(answer));
                self.unsaid.push_back(ClientMessage::Ping);
            }
        }
    }

    fn hear(&mut self, message: Option<Result<Message, SocketError>>, granted: &Extensions) -> Step {
        let decoded = match message {
            Some(Ok(Message::Text(text))) => decode_server(&text).map_err(|error| malformed(text.as_bytes(), &error)),
            Some(Ok(Message::Binary(bytes))) => match Frame::decode(&bytes) {
                Some(Frame { kind: Kind::Output(stream), id, seq, data }) if granted.has(Extension::Binary) => {
                    Ok(ServerMessage { id: Some(id), seq, body: ServerBody::Output(stream, data) })
                }
                _ => Err(malformed(&bytes, &"not a binary frame that was agreed upon")),
            },
            Some(Ok(Message::Close(_))) | None => {
                return Step::Break(Left::Broken(FspError::Disconnected { source: None }));
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => return Step::Continue(()),
            Some(Err(error @ (SocketError::Capacity(_) | SocketError::Protocol(_) | SocketError::Utf8(_)))) => {
                match error {
                    SocketError::Protocol(
                        tokio_tungstenite::tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
                    ) => return Step::Break(Left::Broken(FspError::broken(error))),
                    error => Err(malformed(&[], &error)),
                }
            }
            Some(Err(error)) => return Step::Break(Left::Broken(FspError::broken(error))),
        };
        match decoded {
            Ok(message) => self.take(message, granted.has(Extension::Replay)),
            Err(error) => Step::Break(Left::Malformed(error)),
        }
    }

    fn take(&mut self, message: ServerMessage, replay: bool) -> Step {
        match message {
            ServerMessage { body: ServerBody::Pong(load), .. } => {
                if let Some(Some(waiting)) = self.pings.pop_front() {
                    // Who asked may have stopped waiting.
                    waiting.send(load).ok();
                }
            }
            ServerMessage { id: None, body: ServerBody::Error { code, message, .. }, .. } => {
                tracing::warn!(?code, message, "a sandbox did not take a message");
            }
            message => match self.book.take(message, replay) {
                Ok(full) => self.full = full,
                Err(violation) => return Step::Break(Left::Malformed(malformed(&[], &violation))),
            },
        }
        Step::Continue(())
    }

    /// Gives up what did not end in its time, and asks for its end.
    fn expire(&mut self) {
        let expired = self.book.expire(Instant::now());
        self.unsaid.extend(expired.into_iter().map(|id| ClientMessage::Cancel { id }));
    }

    /// With `replay`, an execution without a listener goes on; otherwise nobody could ever hear of it again.
    fn forget_dropped(&mut self, replay: bool) {
        for id in self.dropped.take() {
            if self.book.strike(&id) {
                self.unsaid.push_back(if replay { ClientMessage::Detach { id } } else { ClientMessage::Cancel { id } });
            }
        }
    }

    /// Nothing was heard for long: asks, and gives the link up when that was not answered either.
    fn ask(&mut self, again: bool) -> Step {
        if again {
            return Step::Break(Left::Broken(FspError::Disconnected { source: None }));
        }
        self.pings.push_back(None);
        self.unsaid.push_back(ClientMessage::Ping);
        Step::Continue(())
    }

    /// A new link for the broken one, where executions can go on on it.
    async fn reconnect(&mut self, broken: FspError, replay: bool) -> Result<Link, FspError> {
        self.pings.clear();
        self.unsaid.clear();
        self.full = None;
        self.forget_dropped(replay);
        self.unsaid.clear();
        self.book.link_broke();
        if !replay || self.book.is_empty() {
            return Err(broken);
        }
        self.shown.send_replace(State::Reconnecting);
        let endpoint = self.endpoint.clone();
        let mut opening = std::pin::pin!(endpoint.again(broken));
        let (socket, granted) = loop {
            let deadline = self.book.next_deadline();
            tokio::select! {
                opened = &mut opening => break opened?,
                () = until(deadline) => self.expire(),
                () = self.dropped.added.notified() => self.forget_dropped(replay),
            }
            if self.book.is_empty() && self.commands.is_closed() {
                return Err(FspError::Disconnected { source: None });
            }
        };
        if !granted.has(Extension::Replay) {
            return Err(FspError::NotGranted(Extension::Replay));
        }
        self.unsaid.extend(self.book.attach_all());
        self.shown.send_replace(State::Live);
        Ok(Link::new(socket, granted))
    }

    /// Says what is left to say, and closes.
    async fn close(&mut self, link: Link) {
        self.forget_dropped(link.granted.has(Extension::Replay));
        let Link { outgoing, writer, granted, messages: _messages, .. } = link;
        let unsaid = std::mem::take(&mut self.unsaid);
        let said = async move {
            for message in unsaid {
                if outgoing.send(written(message, &granted)).await.is_err() {
                    return;
                }
            }
            drop(outgoing);
            // Once its queue is empty, the writer closes the socket and ends.
            writer.await.ok();
        };
        if tokio::time::timeout(Duration::from_millis(CLOSE_TIMEOUT_MS), said).await.is_err() {
            tracing::debug!("a sandbox did not take the end of its connection in time");
        }
    }
}

impl Link {
    fn new(socket: Socket, granted: Extensions) -> Self {
        let (sink, messages) = socket.split();
        let (outgoing, queue) = mpsc::channel(OUTGOING_MAX);
        let writer = AbortOnDropHandle::new(tokio::spawn(write(sink, queue)));
        Self { messages, outgoing, writer, granted, heard: Instant::now(), asked: false }
    }

    /// When its silence has lasted too long.
    fn silence(&self) -> Instant {
        let times = if self.asked { 2 } else { 1 };
        self.heard + Duration::from_millis(SILENCE_MS * times)
    }
}

/// Writes messages until there are no more, or the socket is broken, which the reader hears as well.
async fn write(mut sink: SplitSink<Socket, Message>, mut queue: mpsc::Receiver<Message>) {
    while let Some(message) = queue.recv().await {
        if sink.feed(message).await.is_err() {
            return;
        }
        if queue.is_empty() && sink.flush().await.is_err() {
            return;
        }
    }
    // Nobody is left to be told.
    sink.close().await.ok();
}

/// A message as it is sent, by what was agreed upon.
fn written(message: ClientMessage, granted: &Extensions) -> Message {
    match message {
        ClientMessage::Stdin { id, data, eof } if granted.has(Extension::Binary) => {
            Message::Binary(Frame { kind: Kind::Stdin { eof }, id, seq: None, data }.encode())
        }
        message => Message::text(encode_client(&message, now_ms())),
    }
}

/// Logs what was said, and makes an error of it.
fn malformed(said: &[u8], reason: &dyn std::fmt::Display) -> FspError {
    let said = String::from_utf8_lossy(&said[..said.len().min(LOGGED_BYTES_MAX)]);
    tracing::error!(%reason, %said, "a sandbox broke the protocol");
    FspError::malformed(reason)
}

async fn room(full: Option<Arc<Feed>>) {
    match full {
        Some(feed) => feed.room().await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
