//! The executions of one connection: what has come of each, and what may come next. No IO.

use std::collections::HashMap;
use std::sync::Arc;

use sandbox_protocol::fsp::{ClientMessage, ErrorCode, ServerBody, ServerMessage};
use tokio::time::Instant;

use super::feed::{Event, Feed};
use crate::error::FspError;
use crate::limits::{EXECUTIONS_MAX, MESSAGE_BYTES_MAX};

/// Executions that have not ended, by id.
#[derive(Debug, Default)]
pub(super) struct Book {
    entries: HashMap<String, Entry>,
}

/// How much of an execution is known: where it is taken up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Number of the last message; 0 for none.
    pub seq: u64,
    /// Bytes of output up to there, those that were lost among them.
    pub output_bytes: u64,
}

/// When an execution is given up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    /// Its own limit, which it should have kept.
    pub(super) limit_ms: u64,
}

#[derive(Debug)]
pub(super) struct Entry {
    feed: Arc<Feed>,
    /// What has come of it.
    place: Place,
    acked: bool,
    /// It was looked for after the link broke.
    attached_again: bool,
    /// What its user wished, which is kept over a broken link.
    wish: Wish,
    deadline: Option<Deadline>,
}

/// What is to become of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    GoOn,
    End,
    GoOnUnheard,
}

/// The sandbox broke the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Violation {
    #[error("message {found} came where {expected} was due")]
    Jump { expected: u64, found: u64 },
    #[error("the messages of an execution have no numbers")]
    Unnumbered,
    #[error("more output came than was granted")]
    Overrun,
}

impl Entry {
    /// One that is known up to a place.
    pub(super) fn new(feed: Arc<Feed>, place: Place, deadline: Option<Deadline>) -> Self {
        Self { feed, place, acked: place.seq > 0, attached_again: false, wish: Wish::GoOn, deadline }
    }

    /// Whether a message with this number is new. The numbers are contiguous, or a gap has said so before.
    fn is_new(&mut self, seq: u64) -> Result<bool, Violation> {
        let expected = self.place.seq + 1;
        if seq > expected {
            return Err(Violation::Jump { expected, found: seq });
        }
        let new = seq == expected;
        self.place.seq = self.place.seq.max(seq);
        Ok(new)
    }

    fn push(&self, event: Event) -> Result<(), Violation> {
        self.feed.push(event, self.place.seq).map_err(|_| Violation::Overrun)
    }
}

impl Book {
    /// Enters an execution; otherwise it fails and is not to be asked for.
    pub(super) fn enter(&mut self, id: String, entry: Entry) -> bool {
        if self.entries.contains_key(&id) {
            entry.feed.fail(FspError::IdInUse);
            return false;
        }
        if self.entries.len() >= EXECUTIONS_MAX {
            entry.feed.fail(FspError::TooMany);
            return false;
        }
        self.entries.insert(id, entry);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Hands a message to its execution. Answers with a feed that has no room for more. What belongs to no execution
    /// here came too late for it.
    pub(super) fn take(&mut self, message: ServerMessage, replay: bool) -> Result<Option<Arc<Feed>>, Violation> {
        let ServerMessage { id, seq, body } = message;
        let Some(id) = id else { return Ok(None) };
        let Some(entry) = self.entries.get_mut(&id) else { return Ok(None) };
        if let Some(seq) = seq.filter(|_| replay) {
            if !entry.is_new(seq)? {
                return Ok(None);
            }
        } else if replay && matches!(body, ServerBody::Status(_) | ServerBody::Output(..) | ServerBody::Result(_)) {
            return Err(Violation::Unnumbered);
        }
        let over = entry.apply(body)?;
        let feed = Arc::clone(&entry.feed);
        if over {
            self.entries.remove(&id);
        }
        Ok(feed.blocks().then_some(feed))
    }

    /// What is to be said on a new link, so that each execution goes on behind its last message.
    pub(super) fn attach_all(&mut self) -> Vec<ClientMessage> {
        let attach = |(id, entry): (&String, &mut Entry)| {
            entry.attached_again = true;
            let credit_bytes = entry.feed.fresh_credit();
            let attach = ClientMessage::Attach { id: id.clone(), after_seq: entry.place.seq, credit_bytes };
            let cancel = (entry.wish == Wish::End).then(|| ClientMessage::Cancel { id: id.clone() });
            [Some(attach), cancel]
        };
        self.entries.iter_mut().flat_map(attach).flatten().collect()
    }

    /// The user of an execution says this to the sandbox.
    pub(super) fn note(&mut self, said: &ClientMessage) {
        let (id, wish) = match said {
            ClientMessage::Cancel { id } => (id, Wish::End),
            ClientMessage::Detach { id } => (id, Wish::GoOnUnheard),
            ClientMessage::Execute(_)
            | ClientMessage::Ping
            | ClientMessage::Attach { .. }
            | ClientMessage::Credit { .. }
            | ClientMessage::Stdin { .. }
            | ClientMessage::Signal { .. } => return,
        };
        if let Some(entry) = self.entries.get_mut(id) {
            entry.wish = wish;
        }
    }

    /// The link broke.
    pub(super) fn link_broke(&mut self) {
        self.entries.values().for_each(|entry| entry.feed.link_broke());
        for (_, entry) in self.entries.extract_if(|_, entry| entry.wish == Wish::GoOnUnheard) {
            entry.feed.end(Event::Detached, entry.place.seq);
        }
    }

    /// What the consumer of an execution has taken since this was last asked.
    pub(super) fn grant(&self, id: &str) -> Option<u64> {
        self.entries.get(id).map(|entry| entry.feed.grant()).filter(|bytes| *bytes > 0)
    }

    /// Fails all of them, and answers with their ids.
    pub(super) fn fail_all(&mut self, error: &FspError) -> Vec<String> {
        let fail = |(id, entry): (String, Entry)| {
            entry.feed.fail(error.clone());
            id
        };
        self.entries.drain().map(fail).collect()
    }

    /// Strikes one out, if it is there.
    pub(super) fn strike(&mut self, id: &str) -> bool {
        self.entries.remove(id).is_some()
    }

    /// When the next deadline comes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.entries.values().filter_map(|entry| entry.deadline).map(|deadline| deadline.at).min()
    }

    /// Fails those whose time is over at `now`, and answers with their ids.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<String> {
        let over = |entry: &Entry| entry.deadline.filter(|deadline| deadline.at <= now);
        let expired: Vec<_> = self.entries.extract_if(|_, entry| over(entry).is_some()).collect();
        let fail = |(id, entry): (String, Entry)| {
            let limit_ms = entry.deadline.map_or(0, |deadline| deadline.limit_ms);
            entry.feed.fail(FspError::TimedOut { limit_ms });
            id
        };
        expired.into_iter().map(fail).collect()
    }
}

impl Entry {
    /// Whether it is over by this message.
    fn apply(&mut self, body: ServerBody) -> Result<bool, Violation> {
        match body {
            ServerBody::Ack => {
                self.acked = true;
                self.push(Event::Ack)?;
            }
            ServerBody::Status(status) => self.push(Event::Status(status))?,
            ServerBody::Output(stream, data) => {
                self.place.output_bytes += data.len() as u64;
                self.push(Event::Output(stream, data))?;
            }
            ServerBody::Result(ended) => {
                self.push(Event::Ended(ended))?;
                return Ok(true);
            }
            ServerBody::Error { code, message, retryable } => {
                self.feed.fail(self.failure(code, message, retryable));
                return Ok(true);
            }
            ServerBody::Attached { .. } => self.acked = true,
            ServerBody::Detached => {
                self.push(Event::Detached)?;
                return Ok(true);
            }
            ServerBody::Gap { from_seq, to_seq, bytes } => self.skip(from_seq, to_seq, bytes)?,
            ServerBody::StdinCredit { bytes } => self.feed.grant_stdin(bytes),
            ServerBody::Pong(_) => {}
        }
        Ok(false)
    }

    /// `bytes` are those of all output before the next message.
    fn skip(&mut self, from_seq: u64, to_seq: u64, bytes: u64) -> Result<(), Violation> {
        let expected = self.place.seq + 1;
        if from_seq > expected {
            return Err(Violation::Jump { expected, found: from_seq });
        }
        if to_seq < expected {
            return Ok(());
        }
        let lost = bytes.saturating_sub(self.place.output_bytes);
        self.place = Place { seq: to_seq, output_bytes: self.place.output_bytes + lost };
        self.push(Event::Gap { from_seq: expected, to_seq, bytes: lost })
    }

    fn failure(&self, code: ErrorCode, mut message: String, retryable: bool) -> FspError {
        if code == ErrorCode::UnknownExecution && self.attached_again {
            return FspError::Lost { acked: self.acked };
        }
        message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
        FspError::Server { code, message, retryable }
    }
}
