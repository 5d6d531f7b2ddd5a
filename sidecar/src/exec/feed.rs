//! What an execution tells, in order and numbered from 1: kept for those who come later, held back for those who listen.
//!
//! A feed holds so many bytes. When it is full, its writer waits for its readers; what none
//! of them still wants is let go, oldest first, and a reader that comes for it is told of the gap. Of a feed that
//! is not kept, nothing stays that its reader has taken.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use sandbox_protocol::fsp::{Ended, Status, Stream};
use sandbox_protocol::limits::FSP_CHUNK_BYTES_MAX;
use tokio::sync::Notify;

use super::error::ExecError;
use crate::limits::{FEED_BYTES_MAX, FEED_BYTES_MIN, FEEDS_BYTES_MAX, UNKEPT_FEED_BYTES_MAX};

/// What an item takes besides its bytes.
const ITEM_BYTES: usize = 96;

/// Something that an execution tells.
#[derive(Debug, Clone)]
pub enum Event {
    /// It has come to this state.
    Status(Status),
    /// It wrote this: whole characters, as far as they are any.
    Output(Stream, Bytes),
    /// It has ended; the last event.
    Result(Ended),
    /// It has no result; the last event.
    Failed(ExecError),
}

/// What a reader gets.
#[derive(Debug, Clone)]
pub enum Told {
    /// The next event.
    Event {
        /// Its number.
        seq: u64,
        /// Itself.
        event: Event,
    },
    /// These are not kept any more.
    Gap {
        /// Number of the first of them.
        from_seq: u64,
        /// Number of the last of them.
        to_seq: u64,
        /// Bytes of output before the next event, from the beginning.
        bytes: u64,
    },
}

/// Whether events stay for readers to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// As many as there is room for.
    Yes,
    /// None: they are for the reader that is there.
    No,
}

/// Bytes that all feeds of an engine hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Budget(Arc<AtomicUsize>);

/// The events of an execution. Clones are the same feed.
#[derive(Debug, Clone)]
pub(super) struct Feed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    keep: Keep,
    budget: Budget,
    log: Mutex<Log>,
    grew: Notify,
    shrank: Notify,
}

#[derive(Debug, Default)]
struct Log {
    items: VecDeque<Item>,
    /// Number of the first item, less one.
    gone: u64,
    /// Bytes of output of what is gone.
    gone_bytes: u64,
    /// Weight of the items.
    weight: usize,
    /// Number of the last event that anybody was given.
    given: u64,
    ended: bool,
    readers: Vec<Position>,
    readers_ever: u64,
}

#[derive(Debug)]
enum Item {
    /// Output that nobody has been given and that more may be added to.
    Growing(Stream, BytesMut),
    Fixed(Event),
}

#[derive(Debug)]
struct Position {
    reader: u64,
    /// Number of the last event that the reader took.
    after: u64,
}

/// Reads a feed from somewhere on. Dropping it lets go of what it held.
#[derive(Debug)]
pub struct Reader {
    feed: Feed,
    reader: u64,
    after: u64,
}

impl Feed {
    pub(super) fn new(keep: Keep, budget: Budget) -> Self {
        let (log, grew, shrank) = (Mutex::default(), Notify::new(), Notify::new());
        Self(Arc::new(Inner { keep, budget, log, grew, shrank }))
    }

    /// Adds what is no output. After a last event nothing is added.
    pub(super) fn tell(&self, event: Event) {
        let mut log = self.0.log();
        if log.ended {
            return;
        }
        log.ended = matches!(event, Event::Result(_) | Event::Failed(_));
        self.0.add(&mut log, Item::Fixed(event));
        drop(log);
        self.0.grew.notify_waiters();
    }

    /// Adds output, once there is room for it.
    pub(super) async fn write(&self, stream: Stream, bytes: Bytes) {
        loop {
            let shrank = self.0.shrank.notified();
            tokio::pin!(shrank);
            shrank.as_mut().enable();
            if self.0.write(stream, &bytes) {
                self.0.grew.notify_waiters();
                return;
            }
            shrank.await;
        }
    }

    /// A reader of what came after the event of this number. It misses nothing from here on: the writer waits for it.
    pub(super) fn reader(&self, after: u64) -> Reader {
        let mut log = self.0.log();
        log.readers_ever += 1;
        let reader = log.readers_ever;
        let after = after.min(log.last());
        log.readers.push(Position { reader, after });
        Reader { feed: self.clone(), reader, after }
    }

    /// Number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.0.log().last()
    }

    /// Bytes that it holds.
    pub(super) fn weight(&self) -> usize {
        self.0.log().weight
    }
}

impl Inner {
    /// No code panics while it holds the lock, so what a poisoned one guards is whole.
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self) -> usize {
        match self.keep {
            Keep::No => UNKEPT_FEED_BYTES_MAX,
            Keep::Yes if self.budget.0.load(Ordering::Relaxed) > FEEDS_BYTES_MAX => FEED_BYTES_MIN,
            Keep::Yes => FEED_BYTES_MAX,
        }
    }

    /// Whether there was room.
    fn write(&self, stream: Stream, bytes: &Bytes) -> bool {
        let mut log = self.log();
        if log.ended {
            return true;
        }
        let weight = bytes.len() + ITEM_BYTES;
        while log.weight + weight > self.room() {
            if !log.may_let_go() {
                return false;
            }
            self.let_go(&mut log);
        }
        if log.grow(stream, bytes) {
            log.weight += bytes.len();
            self.budget.0.fetch_add(bytes.len(), Ordering::Relaxed);
        } else if bytes.len() < FSP_CHUNK_BYTES_MAX / 2 {
            self.add(&mut log, Item::Growing(stream, BytesMut::from(&bytes[..])));
        } else {
            self.add(&mut log, Item::Fixed(Event::Output(stream, bytes.clone())));
        }
        true
    }

    fn add(&self, log: &mut Log, item: Item) {
        log.weight += item.weight();
        self.budget.0.fetch_add(item.weight(), Ordering::Relaxed);
        log.items.push_back(item);
    }

    fn let_go(&self, log: &mut Log) {
        let Some(item) = log.items.pop_front() else { return };
        log.gone += 1;
        log.gone_bytes += item.output_bytes() as u64;
        log.weight -= item.weight();
        self.budget.0.fetch_sub(item.weight(), Ordering::Relaxed);
    }

    /// The next event for a reader that has all up to `after`; `None` when there is none yet.
    fn next(&self, reader: u64, after: u64) -> Option<Told> {
        let mut log = self.log();
        if after < log.gone {
            let told = Told::Gap { from_seq: after + 1, to_seq: log.gone, bytes: log.gone_bytes };
            let gone = log.gone;
            log.advance(reader, gone);
            return Some(told);
        }
        let index = usize::try_from(after - log.gone).ok()?;
        let event = log.items.get_mut(index)?.fixed();
        let seq = after + 1;
        log.given = log.given.max(seq);
        log.advance(reader, seq);
        if self.keep == Keep::No {
            while log.may_let_go() && log.gone < seq {
                self.let_go(&mut log);
            }
        }
        Some(Told::Event { seq, event })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let weight = self.log().weight;
        self.budget.0.fetch_sub(weight, Ordering::Relaxed);
    }
}

impl Log {
    fn last(&self) -> u64 {
        self.gone + self.items.len() as u64
    }

    /// Whether the oldest item is there and no reader wants it.
    fn may_let_go(&self) -> bool {
        let oldest = self.gone + 1;
        !self.items.is_empty() && self.readers.iter().all(|position| position.after >= oldest)
    }

    /// Adds to the last item, where that is output of the same stream, short, and known to nobody yet.
    fn grow(&mut self, stream: Stream, bytes: &Bytes) -> bool {
        if self.last() <= self.given {
            return false;
        }
        match self.items.back_mut() {
            Some(Item::Growing(of, buffer)) if *of == stream && buffer.len() + bytes.len() <= FSP_CHUNK_BYTES_MAX => {
                buffer.extend_from_slice(bytes);
                true
            }
            _ => false,
        }
    }

    fn advance(&mut self, reader: u64, after: u64) {
        if let Some(position) = self.readers.iter_mut().find(|position| position.reader == reader) {
            position.after = after;
        }
    }
}

impl Item {
    fn output_bytes(&self) -> usize {
        match self {
            Self::Growing(_, buffer) => buffer.len(),
            Self::Fixed(Event::Output(_, bytes)) => bytes.len(),
            Self::Fixed(Event::Status(_) | Event::Result(_) | Event::Failed(_)) => 0,
        }
    }

    fn weight(&self) -> usize {
        ITEM_BYTES + self.output_bytes()
    }

    fn fixed(&mut self) -> Event {
        if let Self::Growing(stream, buffer) = self {
            *self = Self::Fixed(Event::Output(*stream, std::mem::take(buffer).freeze()));
        }
        match self {
            Self::Fixed(event) => event.clone(),
            Self::Growing(stream, _) => Event::Output(*stream, Bytes::new()),
        }
    }
}

impl Reader {
    /// The next event; `None` after the last. Loses nothing when it is dropped.
    pub async fn next(&mut self) -> Option<Told> {
        let inner = &self.feed.0;
        loop {
            let grew = inner.grew.notified();
            tokio::pin!(grew);
            grew.as_mut().enable();
            if let Some(told) = inner.next(self.reader, self.after) {
                self.after = match &told {
                    Told::Event { seq, .. } => *seq,
                    Told::Gap { to_seq, .. } => *to_seq,
                };
                inner.shrank.notify_waiters();
                return Some(told);
            }
            if inner.log().is_over(self.after) {
                return None;
            }
            grew.await;
        }
    }

    /// Number of the last event that was read.
    pub fn after(&self) -> u64 {
        self.after
    }
}

impl Log {
    fn is_over(&self, after: u64) -> bool {
        self.ended && after >= self.last()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.feed.0.log().readers.retain(|position| position.reader != self.reader);
        self.feed.0.shrank.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
