//! One client's connection: reads its messages in turn, does what they ask, answers.
//!
//! Reading never waits for a client to read what executions tell it, so a cancel always gets through.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::SplitStream;
use sandbox_process::websocket::Socket;
use sandbox_process::websocket::tungstenite::error::{CapacityError, ProtocolError};
use sandbox_process::websocket::tungstenite::protocol::CloseFrame;
use sandbox_process::websocket::tungstenite::protocol::frame::coding::CloseCode;
use sandbox_process::websocket::tungstenite::{Error, Message};
use sandbox_protocol::fsp::{
    ClientMessage, ErrorCode, Execute, Extension, Extensions, Frame, Kind, Refusal, ServerBody, ServerMessage, Signal,
    decode_client,
};
use sandbox_protocol::limits::{FSP_CREDIT_BYTES_DEFAULT, FSP_MESSAGE_BYTES_MAX};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::pump::{Credit, Pump};
use super::sending::{Gone, Outgoing};
use super::words;
use crate::exec::{Engine, ExecError, Execution, Keep, Mode, new_id};
use crate::limits::{FSP_ENDED_WAITING_MAX, FSP_FAREWELL_MAX, FSP_PING_PAUSE, FSP_SILENCE_MAX};

/// A connection, while it lives.
pub(super) struct Session<'a> {
    engine: &'a Engine,
    extensions: Extensions,
    /// By what the client calls them: those it is told of.
    living: HashMap<String, Living>,
    out: Outgoing,
    pumps: TaskTracker,
    ended: mpsc::Sender<(String, u64)>,
    pumps_ever: u64,
    /// Cancelled at the connection's end: nobody reads any more.
    cut: CancellationToken,
}

struct Living {
    execution: Arc<Execution>,
    credit: Option<Credit>,
    detached: CancellationToken,
    pump: u64,
}

/// Why a connection ended.
enum End {
    /// The client left, or its way broke.
    Left,
    /// The sidecar stops.
    Stopped,
    /// It did what cannot be answered.
    Cut(CloseCode, &'static str),
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Left
    }
}

impl<'a> Session<'a> {
    /// Speaks with a client until either side leaves.
    pub(super) async fn run(engine: &'a Engine, socket: Socket, extensions: Extensions, stop: &CancellationToken) {
        let (sink, source) = socket.split();
        let (out, sending) = Outgoing::new(sink);
        let (say_farewell, farewell) = oneshot::channel();
        let (ended, endings) = mpsc::channel(FSP_ENDED_WAITING_MAX);
        let (living, pumps, cut) = (HashMap::new(), TaskTracker::new(), CancellationToken::new());
        let mut session = Session { engine, extensions, living, out, pumps, ended, pumps_ever: 0, cut };
        let broken = session.cut.clone();
        let sent = async {
            sending.run(async { farewell.await.unwrap_or_default() }).await;
            broken.cancel();
        };
        let spoken = async move {
            let end = session.converse(source, endings, stop).await;
            // One who hears nothing any more needs no good-bye.
            say_farewell.send(session.leave(end).await).unwrap_or_default();
        };
        tokio::join!(sent, spoken);
    }

    async fn converse(
        &mut self,
        mut source: SplitStream<Socket>,
        mut endings: mpsc::Receiver<(String, u64)>,
        stop: &CancellationToken,
    ) -> End {
        let mut heard = Instant::now();
        let mut asked = heard;
        let cut = self.cut.clone();
        loop {
            let frame = tokio::select! {
                biased;
                () = stop.cancelled() => return End::Stopped,
                () = cut.cancelled() => return End::Left,
                Some((id, pump)) = endings.recv() => {
                    self.forget(&id, pump);
                    continue;
                }
                frame = source.next() => frame,
                () = sleep_until(heard + FSP_SILENCE_MAX) => return End::Left,
                () = sleep_until(asked + FSP_PING_PAUSE) => {
                    asked = Instant::now();
                    match self.out.answer_frame(Message::Ping(Bytes::new())).await {
                        Ok(()) => continue,
                        Err(Gone) => return End::Left,
                    }
                }
            };
            heard = Instant::now();
            asked = heard;
            let Some(frame) = frame else { return End::Left };
            if let Err(end) = self.hear(frame).await {
                return end;
            }
        }
    }

    async fn hear(&mut self, frame: Result<Message, Error>) -> Result<(), End> {
        match frame {
            Ok(Message::Text(text)) if text.len() > FSP_MESSAGE_BYTES_MAX => self.too_long(text.len()).await?,
            Ok(Message::Binary(bytes)) if bytes.len() > FSP_MESSAGE_BYTES_MAX => self.too_long(bytes.len()).await?,
            Ok(Message::Text(text)) => {
                let done = match decode_client(&text, &self.extensions) {
                    Ok(message) => self.act(message).await,
                    Err(refusal) => Err(refusal),
                };
                self.unless_done(done).await?;
            }
            Ok(Message::Binary(bytes)) => {
                let done = self.take_binary(&bytes);
                self.unless_done(done).await?;
            }
            // What is read answers it; what is sent takes the answer along.
            Ok(Message::Ping(_)) => self.out.answer_frame(Message::Pong(Bytes::new())).await?,
            Ok(Message::Pong(_) | Message::Frame(_)) => {}
            Ok(Message::Close(_)) => return Err(End::Left),
            Err(Error::Capacity(CapacityError::MessageTooLong { .. })) => {
                return Err(End::Cut(CloseCode::Size, "a message of this length is not read"));
            }
            Err(Error::Utf8(_)) => return Err(End::Cut(CloseCode::Invalid, "text is UTF-8")),
            Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) | Err(Error::Io(_)) => {
                return Err(End::Left);
            }
            Err(Error::Protocol(_)) => return Err(End::Cut(CloseCode::Protocol, "not a WebSocket's frame")),
            Err(_) => return Err(End::Left),
        }
        Ok(())
    }

    async fn too_long(&self, bytes: usize) -> Result<(), Gone> {
        let message = format!("a message of {bytes} bytes; at most {FSP_MESSAGE_BYTES_MAX}");
        self.out.answer(&words::refusal(Refusal::invalid(None, message))).await
    }

    /// Answers what was refused. An id under which something lives here is left out: it goes on.
    async fn unless_done(&self, done: Result<(), Refusal>) -> Result<(), Gone> {
        let Err(mut refusal) = done else { return Ok(()) };
        if let Some(id) = refusal.id.take_if(|id| self.living.contains_key(id)) {
            refusal.message = format!("{id}: {}", refusal.message);
        }
        self.out.answer(&words::refusal(refusal)).await
    }

    async fn act(&mut self, message: ClientMessage) -> Result<(), Refusal> {
        match message {
            ClientMessage::Ping => {
                let body = ServerBody::Pong(self.engine.load());
                // A connection that is gone is noticed where it is read.
                self.out.answer(&ServerMessage { id: None, seq: None, body }).await.unwrap_or_default();
                Ok(())
            }
            ClientMessage::Execute(execute) => self.execute(*execute),
            ClientMessage::Cancel { id } => self.cancel(&id),
            ClientMessage::Attach { id, after_seq, credit_bytes } => self.attach(id, after_seq, credit_bytes),
            ClientMessage::Detach { id } => match self.living.get(&id) {
                Some(living) => {
                    living.detached.cancel();
                    Ok(())
                }
                None => Err(unknown(&id)),
            },
            ClientMessage::Credit { id, bytes } => {
                // For one that has ended meanwhile it comes too late, which is nobody's fault.
                if let Some(credit) = self.living.get(&id).and_then(|living| living.credit.as_ref()) {
                    credit.grant(bytes);
                }
                Ok(())
            }
            ClientMessage::Stdin { id, data, eof } => self.stdin(&id, data, eof),
            ClientMessage::Signal { id, signal } => self.signal(&id, signal),
        }
    }

    fn take_binary(&self, bytes: &Bytes) -> Result<(), Refusal> {
        let agreed = self.extensions.has(Extension::Binary) && self.extensions.has(Extension::Stdin);
        match Frame::decode(bytes).filter(|_| agreed) {
            Some(Frame { kind: Kind::Stdin { eof }, id, data, .. }) => self.stdin(&id, data, eof),
            Some(Frame { kind: Kind::Output(_), .. }) | None => {
                Err(Refusal::invalid(None, "a binary message that is none of this connection's"))
            }
        }
    }

    fn execute(&mut self, execute: Execute) -> Result<(), Refusal> {
        let id = execute.id.clone();
        if self.living.contains_key(&id) {
            return Err(Refusal::invalid(Some(&id), "an execution of this id runs on this connection"));
        }
        let (detach, credit) = (execute.extra.detach, self.credit(execute.extra.credit_bytes));
        let order = self.engine.order(execute).map_err(|error| Refusal::invalid(Some(&id), error.to_string()))?;
        // Without replay an id is the connection's own, and nobody else's to find.
        let (key, keep) = match self.extensions.has(Extension::Replay) {
            true => (id.clone(), Keep::Yes),
            false => (new_id(), Keep::No),
        };
        let begun = self.engine.begin(&key, order, Mode::Start, keep).map_err(|error| refused(&id, &error))?;
        let detached = self.pump(id, (begun.execution, 0), credit, ServerBody::Ack);
        if detach {
            detached.cancel();
        }
        Ok(())
    }

    fn attach(&mut self, id: String, after_seq: u64, credit_bytes: Option<u64>) -> Result<(), Refusal> {
        if self.living.contains_key(&id) {
            return Err(Refusal::invalid(Some(&id), "this connection is told of it already"));
        }
        let execution = self.find(&id)?;
        let next_seq = after_seq.min(execution.last_seq()) + 1;
        let credit = self.credit(credit_bytes);
        self.pump(id, (execution, after_seq), credit, ServerBody::Attached { next_seq });
        Ok(())
    }

    fn cancel(&self, id: &str) -> Result<(), Refusal> {
        match self.living.get(id) {
            Some(living) => living.execution.cancel(),
            None => {
                let execution = self.find(id)?;
                if execution.standing().over_at.is_some() {
                    return Err(unknown(id));
                }
                execution.cancel();
            }
        }
        Ok(())
    }

    fn stdin(&self, id: &str, data: Bytes, eof: bool) -> Result<(), Refusal> {
        let living = self.living.get(id).ok_or_else(|| unknown(id))?;
        living.execution.send_stdin(data, eof).map_err(|error| Refusal::invalid(Some(id), error.to_string()))
    }

    fn signal(&self, id: &str, signal: Signal) -> Result<(), Refusal> {
        let sent = match self.living.get(id) {
            Some(living) => living.execution.signal(signal),
            None => self.find(id)?.signal(signal),
        };
        sent.map_err(|error| Refusal::invalid(Some(id), error.to_string()))
    }

    /// One that this connection is not told of, where others may be found at all.
    fn find(&self, id: &str) -> Result<Arc<Execution>, Refusal> {
        if !self.extensions.has(Extension::Replay) {
            return Err(unknown(id));
        }
        self.engine.find(id).map_err(|error| refused(id, &error))
    }

    fn credit(&self, bytes: Option<u64>) -> Option<Credit> {
        self.extensions.has(Extension::Credit).then(|| Credit::of(bytes.unwrap_or(FSP_CREDIT_BYTES_DEFAULT)))
    }

    /// Has the client told of an execution; what is given back ends that.
    fn pump(
        &mut self,
        id: String,
        (execution, after): (Arc<Execution>, u64),
        credit: Option<Credit>,
        first: ServerBody,
    ) -> CancellationToken {
        self.pumps_ever += 1;
        let (number, detached) = (self.pumps_ever, CancellationToken::new());
        let pump = Pump {
            id: id.clone(),
            reader: execution.reader(after),
            execution: Arc::clone(&execution),
            credit: credit.clone(),
            extensions: self.extensions.clone(),
            out: self.out.clone(),
            detached: detached.clone(),
        };
        let living = Living { execution, credit, detached: detached.clone(), pump: number };
        self.living.insert(id.clone(), living);
        let (cut, ended) = (self.cut.clone(), self.ended.clone());
        self.pumps.spawn(async move {
            let told = cut.run_until_cancelled(pump.run(first)).await;
            if told == Some(Ok(())) {
                // A session that is over forgets everything by itself.
                ended.send((id, number)).await.unwrap_or_default();
            }
        });
        detached
    }

    fn forget(&mut self, id: &str, pump: u64) {
        if self.living.get(id).is_some_and(|living| living.pump == pump) {
            self.living.remove(id);
        }
    }

    /// Lets go of everything, and says how to leave. What only this client knew of, ends with it.
    async fn leave(self, end: End) -> Option<CloseFrame> {
        let Session { living, out, pumps, cut, ended, .. } = self;
        drop((out, ended));
        let close = match end {
            End::Left => None,
            End::Cut(code, reason) => Some(CloseFrame { code, reason: reason.into() }),
            End::Stopped => {
                // Executions end with the sidecar, and their clients are told.
                told_within(&pumps, FSP_FAREWELL_MAX).await;
                Some(CloseFrame { code: CloseCode::Away, reason: "the sidecar stops".into() })
            }
        };
        cut.cancel();
        for Living { execution, .. } in living.into_values() {
            if execution.keep() == Keep::No {
                execution.cancel();
            }
        }
        pumps.close();
        pumps.wait().await;
        close
    }
}

async fn told_within(pumps: &TaskTracker, bound: Duration) {
    pumps.close();
    if timeout(bound, pumps.wait()).await.is_err() {
        tracing::debug!("a client does not hear how its executions ended");
    }
}

fn unknown(id: &str) -> Refusal {
    Refusal {
        id: Some(id.to_owned()),
        code: ErrorCode::UnknownExecution,
        message: "no execution of this id is known here".to_owned(),
    }
}

fn refused(id: &str, error: &ExecError) -> Refusal {
    Refusal { id: Some(id.to_owned()), code: words::code(error), message: error.to_string() }
}
