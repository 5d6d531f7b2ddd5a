//! The handles of one execution: who takes its events, and who steers it.

use std::sync::Arc;

use bytes::Bytes;
use sandbox_protocol::fsp::{ClientMessage, Extension, Extensions, Signal};
use sandbox_protocol::limits::FSP_CHUNK_BYTES_MAX;
use tokio::sync::mpsc;

use super::Command;
use super::book::Place;
use super::driver::Dropped;
use super::feed::{Event, Feed};
use crate::accumulate::{Accumulator, Outcome};
use crate::error::FspError;

/// An execution, for who takes its events. Dropped before its end, it is cancelled; with `replay`, it goes on without a
/// listener.
#[derive(Debug)]
pub struct Execution {
    control: Control,
    dropped: Arc<Dropped>,
    place: Place,
    over: bool,
}

/// An execution, for who steers it.
#[derive(Debug, Clone)]
pub struct Control {
    id: Arc<str>,
    feed: Arc<Feed>,
    commands: mpsc::Sender<Command>,
    granted: Arc<Extensions>,
}

impl Execution {
    pub(super) fn new(control: Control, dropped: Arc<Dropped>, place: Place) -> Self {
        Self { control, dropped, place, over: false }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.control.id
    }

    /// How much of it was handed out: where another client may take it up.
    pub fn place(&self) -> Place {
        self.place
    }

    /// A handle to steer it with.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// The next event; `None` after [`Event::Ended`] or [`Event::Detached`]. Nothing is lost if this is not awaited to
    /// its end.
    ///
    /// # Errors
    /// It ended without a result, or the way to it did.
    pub async fn next(&mut self) -> Result<Option<Event>, FspError> {
        let Control { id, feed, commands, .. } = &self.control;
        if feed.grant_is_due() {
            // A driver that is gone has said so to the feed.
            commands.send(Command::Grant(id.to_string())).await.ok();
        }
        match feed.take().await {
            Ok(Some((event, seq))) => {
                self.place.seq = self.place.seq.max(seq);
                match &event {
                    Event::Output(_, data) => self.place.output_bytes += data.len() as u64,
                    Event::Gap { bytes, .. } => self.place.output_bytes += bytes,
                    Event::Ended(_) | Event::Detached => self.over = true,
                    Event::Ack | Event::Status(_) => {}
                }
                Ok(Some(event))
            }
            over => {
                self.over = true;
                over.map(|_| None)
            }
        }
    }

    /// Waits for its end, and keeps at most `bytes_max` of each stream.
    ///
    /// # Errors
    /// As [`next`](Self::next); [`FspError::Ended`] where it was detached from.
    pub async fn outcome(mut self, bytes_max: usize) -> Result<Outcome, FspError> {
        let mut accumulator = Accumulator::new(bytes_max);
        while let Some(event) = self.next().await? {
            accumulator.add(event);
        }
        accumulator.outcome().ok_or(FspError::Ended)
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        if !self.over {
            self.control.feed.abandon();
            self.dropped.add(self.id().to_owned());
        }
    }
}

impl Control {
    pub(super) fn new(id: String, feed: Arc<Feed>, commands: mpsc::Sender<Command>, granted: Arc<Extensions>) -> Self {
        Self { id: id.into(), feed, commands, granted }
    }

    /// Ends it, with all that it started. What became of it comes as its events.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn cancel(&self) -> Result<(), FspError> {
        self.say(ClientMessage::Cancel { id: self.id.to_string() }).await
    }

    /// Sends a signal to its process group.
    ///
    /// # Errors
    /// `signal` was not granted, or the connection is closed.
    pub async fn signal(&self, signal: Signal) -> Result<(), FspError> {
        self.needs(Extension::Signal)?;
        self.say(ClientMessage::Signal { id: self.id.to_string(), signal }).await
    }

    /// Sends bytes to its stdin, as fast as the sandbox takes them, and closes it after them if `eof`.
    ///
    /// # Errors
    /// `stdin` was not granted, the execution has ended, or the link broke with bytes under way.
    pub async fn stdin(&self, mut data: Bytes, eof: bool) -> Result<(), FspError> {
        self.needs(Extension::Stdin)?;
        loop {
            let chunk = data.split_to(data.len().min(FSP_CHUNK_BYTES_MAX));
            self.feed.stdin_room(chunk.len() as u32).await?;
            let last = data.is_empty();
            self.say(ClientMessage::Stdin { id: self.id.to_string(), data: chunk, eof: eof && last }).await?;
            if last {
                return Ok(());
            }
        }
    }

    /// Lets it go on without a listener. Its last event is [`Event::Detached`].
    ///
    /// # Errors
    /// `replay` was not granted, or the connection is closed.
    pub async fn detach(&self) -> Result<(), FspError> {
        self.needs(Extension::Replay)?;
        self.say(ClientMessage::Detach { id: self.id.to_string() }).await
    }

    fn needs(&self, extension: Extension) -> Result<(), FspError> {
        if self.granted.has(extension) { Ok(()) } else { Err(FspError::NotGranted(extension)) }
    }

    async fn say(&self, message: ClientMessage) -> Result<(), FspError> {
        self.commands.send(Command::Say(message)).await.map_err(|_| FspError::Disconnected { source: None })
    }
}
