//! What clients have sent and sandboxes have not taken yet.
//!
//! russh widens a channel's window by itself when half of it has come, whether or not the bytes were passed on, and a
//! handler that waits holds up the whole connection in both directions. So nothing waits here: bytes are queued per
//! channel. While one's queue is longish, the connection is read with short pauses, in which a program that reads at all
//! catches up; unless a program cannot go on before its client has widened a window, since that word comes by the same
//! way. Where a queue is long, windows are widened by two bytes at a time, which is as good as nothing. That is one width
//! for all channels, so a channel beside it gets small windows in between, and now and then the other takes one of these.
//! Where so much has come that way that the connection may hold no more, the channel that hoards is ended.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use crate::limits::{
    BACKLOG_BYTES_MAX, BUSY_BYTES, BUSY_PAUSE, KEEPS_UP_BYTES, STALLED_BYTES, STALLED_PAUSE,
    WINDOW_BESIDE_STALLED_BYTES, WINDOW_BYTES_MAX, WINDOW_START_BYTES,
};

/// The window of a channel that is not to be widened: russh widens below half of it, so when it is used up.
const NO_WINDOW: u32 = 2;

/// All that waits in one connection. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Backlog {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    bytes: AtomicUsize,
    /// Channels with a queue that is longish, or long.
    busy: AtomicUsize,
    /// Channels with a queue that is long.
    stalled: AtomicUsize,
    /// Channels to the client that wait for a window.
    starved: AtomicUsize,
    less: Notify,
    /// A window was made for a channel that keeps up, and another may take it.
    made: AtomicBool,
}

impl Backlog {
    /// For how long the connection is not to be read, at most.
    pub(crate) fn pause(&self) -> Option<Duration> {
        let count = |of: &AtomicUsize| of.load(Ordering::Relaxed);
        match (count(&self.shared.stalled), count(&self.shared.busy), count(&self.shared.starved)) {
            (1.., _, _) => Some(STALLED_PAUSE),
            (0, 1.., 0) => Some(BUSY_PAUSE),
            _ => None,
        }
    }

    /// Returns when it may be read again earlier than that.
    pub(crate) async fn caught_up(&self) {
        loop {
            let mut less = std::pin::pin!(self.shared.less.notified());
            less.as_mut().enable();
            if self.pause().is_none() {
                return;
            }
            less.await;
        }
    }

    /// A channel to the client waits for a window, until this is dropped.
    pub(crate) fn starve(&self) -> Starved {
        self.shared.starved.fetch_add(1, Ordering::Relaxed);
        self.shared.less.notify_waiters();
        Starved { backlog: self.clone() }
    }

    fn is_stalled(&self) -> bool {
        self.shared.stalled.load(Ordering::Relaxed) > 0
    }

    fn is_full(&self) -> bool {
        self.shared.bytes.load(Ordering::Relaxed) > BACKLOG_BYTES_MAX
    }

    fn add(&self, bytes: usize) {
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, bytes: usize) {
        self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// See [`Backlog::starve`].
#[derive(Debug)]
pub(crate) struct Starved {
    backlog: Backlog,
}

impl Drop for Starved {
    fn drop(&mut self) {
        self.backlog.shared.starved.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes that are not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotTaken {
    /// The client sent more than it may.
    #[error("{sent} bytes on a channel that takes {window}")]
    Overrun {
        /// So many.
        sent: usize,
        /// Instead of so many.
        window: usize,
    },
    /// The connection may hold no more, and this is the channel, or one of those, that it holds too much of.
    #[error("what was sent is not read, and {} MiB of it wait", BACKLOG_BYTES_MAX >> 20)]
    Hoarded,
}

/// What came on one channel, in order, for whoever [takes](Self::next) it. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Intake {
    queue: Arc<Queue>,
}

#[derive(Debug)]
struct Queue {
    waiting: Mutex<Waiting>,
    news: Notify,
    backlog: Backlog,
}

#[derive(Debug)]
struct Waiting {
    bytes: BytesMut,
    /// Taken, but not passed on.
    in_hand: usize,
    ended: bool,
    /// Nobody takes what comes.
    closed: bool,
    busy: bool,
    stalled: bool,
    came: u64,
    /// What the client may send still.
    window: usize,
    /// What it may send after the packet that is being looked at, where russh has said so.
    widened: Option<usize>,
}

impl Waiting {
    fn held(&self) -> usize {
        self.bytes.len() + self.in_hand
    }
}

impl Intake {
    pub(crate) fn new(backlog: &Backlog) -> Self {
        let waiting = Waiting {
            bytes: BytesMut::new(),
            in_hand: 0,
            ended: false,
            closed: false,
            busy: false,
            stalled: false,
            came: 0,
            window: WINDOW_START_BYTES as usize,
            widened: None,
        };
        Self { queue: Arc::new(Queue { waiting: Mutex::new(waiting), news: Notify::new(), backlog: backlog.clone() }) }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.queue.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues what came.
    ///
    /// # Errors
    /// [`NotTaken`]
    pub(crate) fn came(&self, bytes: &[u8]) -> Result<(), NotTaken> {
        let mut waiting = self.waiting();
        if bytes.len() > waiting.window {
            return Err(NotTaken::Overrun { sent: bytes.len(), window: waiting.window });
        }
        waiting.window = waiting.widened.take().unwrap_or(waiting.window - bytes.len());
        waiting.came += bytes.len() as u64;
        if waiting.closed {
            return Ok(());
        }
        if self.queue.backlog.is_full() && waiting.held() > KEEPS_UP_BYTES {
            return Err(NotTaken::Hoarded);
        }
        waiting.bytes.extend_from_slice(bytes);
        self.queue.backlog.add(bytes.len());
        self.weigh(&mut waiting);
        drop(waiting);
        self.queue.news.notify_one();
        Ok(())
    }

    /// Nothing more comes.
    pub(crate) fn end(&self) {
        self.waiting().ended = true;
        self.queue.news.notify_one();
    }

    /// Nobody takes what comes from now on.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting();
        waiting.closed = true;
        let dropped = waiting.held();
        waiting.bytes = BytesMut::new();
        waiting.in_hand = 0;
        self.queue.backlog.remove(dropped);
        self.weigh(&mut waiting);
    }

    /// What came next, at most so much; `None` at the end. What was taken the time before has been passed on.
    pub(crate) async fn next(&self, bytes_max: usize) -> Option<Bytes> {
        loop {
            {
                let mut waiting = self.waiting();
                let passed = std::mem::take(&mut waiting.in_hand);
                if passed > 0 {
                    self.queue.backlog.remove(passed);
                    self.weigh(&mut waiting);
                }
                if !waiting.bytes.is_empty() {
                    let count = waiting.bytes.len().min(bytes_max);
                    let bytes = waiting.bytes.split_to(count).freeze();
                    if waiting.bytes.is_empty() {
                        // So that nothing is held while nothing comes.
                        waiting.bytes = BytesMut::new();
                    }
                    waiting.in_hand = count;
                    return Some(bytes);
                }
                if waiting.ended || waiting.closed {
                    return None;
                }
            }
            self.queue.news.notified().await;
        }
    }

    /// Bytes that came in all.
    pub(crate) fn total(&self) -> u64 {
        self.waiting().came
    }

    /// The window that russh is to use from now on, after it has widened this channel's to `granted`.
    pub(crate) fn widened(&self, granted: u32) -> u32 {
        let mut waiting = self.waiting();
        waiting.widened = Some(granted as usize);
        let made = &self.queue.backlog.shared.made;
        match (waiting.stalled, self.queue.backlog.is_stalled()) {
            // This one took the window; once, it is left for the one that it was made for.
            (true, _) if made.swap(false, Ordering::Relaxed) => granted,
            (true, _) => NO_WINDOW,
            (false, true) if granted == NO_WINDOW => {
                made.store(true, Ordering::Relaxed);
                WINDOW_BESIDE_STALLED_BYTES
            }
            (false, true) => {
                made.store(false, Ordering::Relaxed);
                NO_WINDOW
            }
            (false, false) if waiting.held() > KEEPS_UP_BYTES => granted.max(WINDOW_START_BYTES),
            (false, false) => granted.max(WINDOW_START_BYTES / 2).saturating_mul(2).min(WINDOW_BYTES_MAX),
        }
    }

    fn weigh(&self, waiting: &mut Waiting) {
        let shared = &self.queue.backlog.shared;
        let held = waiting.held();
        let was_busy = waiting.busy;
        count(&shared.busy, &mut waiting.busy, held > BUSY_BYTES);
        count(&shared.stalled, &mut waiting.stalled, held > STALLED_BYTES);
        if was_busy && !waiting.busy {
            shared.less.notify_waiters();
        }
    }
}

/// Counts one that has become so, or is so no more.
fn count(all: &AtomicUsize, was: &mut bool, is: bool) {
    match (std::mem::replace(was, is), is) {
        (false, true) => all.fetch_add(1, Ordering::Relaxed),
        (true, false) => all.fetch_sub(1, Ordering::Relaxed),
        (true, true) | (false, false) => return,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    #[tokio::test]
    async fn what_came_is_taken_in_order_up_to_the_end() {
        let backlog = Backlog::default();
        let intake = Intake::new(&backlog);
        intake.came(b"abc").unwrap();
        intake.came(b"def").unwrap();
        intake.end();
        assert_eq!(intake.next(4).await.as_deref(), Some(&b"abcd"[..]));
        assert_eq!(intake.next(4).await.as_deref(), Some(&b"ef"[..]));
        assert_eq!(intake.next(4).await, None);
        assert_eq!(intake.total(), 6);
    }

    #[test]
    fn a_client_may_use_its_window_up_and_not_more() {
        let intake = Intake::new(&Backlog::default());
        let window = WINDOW_START_BYTES as usize;
        intake.came(&vec![0; window - 1]).unwrap();
        intake.came(&[0]).unwrap();
        assert_eq!(intake.came(&[0]), Err(NotTaken::Overrun { sent: 1, window: 0 }));
        let intake = Intake::new(&Backlog::default());
        assert!(intake.came(&vec![0; window + 1]).is_err());
    }

    #[test]
    fn a_channel_that_keeps_up_is_widened_and_one_that_does_not_is_not() {
        let intake = Intake::new(&Backlog::default());
        assert_eq!(intake.widened(WINDOW_START_BYTES), 2 * WINDOW_START_BYTES);
        assert_eq!(intake.widened(WINDOW_BYTES_MAX), WINDOW_BYTES_MAX);
        intake.came(&vec![0; KEEPS_UP_BYTES]).unwrap();
        assert_eq!(intake.widened(WINDOW_START_BYTES), 2 * WINDOW_START_BYTES);
        intake.came(&[0]).unwrap();
        assert_eq!(intake.widened(WINDOW_START_BYTES), WINDOW_START_BYTES);
        intake.came(&[0]).unwrap();
        intake.widened(WINDOW_BYTES_MAX);
        intake.came(&[0]).unwrap();
        intake.came(&vec![0; STALLED_BYTES - KEEPS_UP_BYTES - 3]).unwrap();
        assert_eq!(intake.widened(WINDOW_BYTES_MAX), WINDOW_BYTES_MAX);
        intake.came(&[0]).unwrap();
        assert_eq!(intake.widened(WINDOW_BYTES_MAX), NO_WINDOW);
        intake.close();
        assert_eq!(intake.widened(NO_WINDOW), WINDOW_START_BYTES);
    }

    #[test]
    fn beside_a_stalled_channel_another_is_widened_a_little() {
        let backlog = Backlog::default();
        let (stalled, other) = (Intake::new(&backlog), Intake::new(&backlog));
        stalled.widened(WINDOW_BYTES_MAX);
        stalled.came(&[0]).unwrap();
        stalled.came(&vec![0; STALLED_BYTES]).unwrap();
        assert_eq!(other.widened(WINDOW_BYTES_MAX), NO_WINDOW);
        assert_eq!(other.widened(NO_WINDOW), WINDOW_BESIDE_STALLED_BYTES);
        assert_eq!(stalled.widened(WINDOW_BESIDE_STALLED_BYTES), WINDOW_BESIDE_STALLED_BYTES);
        assert_eq!(stalled.widened(WINDOW_BESIDE_STALLED_BYTES), NO_WINDOW);
        assert_eq!(other.widened(NO_WINDOW), WINDOW_BESIDE_STALLED_BYTES);
        assert_eq!(other.widened(WINDOW_BESIDE_STALLED_BYTES), NO_WINDOW);
        assert_eq!(stalled.widened(NO_WINDOW), NO_WINDOW);
    }

    #[tokio::test]
    async fn a_connection_is_read_slowly_while_a_channel_is_behind_and_its_client_has_nothing_to_say() {
        let backlog = Backlog::default();
        let intake = Intake::new(&backlog);
        intake.came(&vec![0; BUSY_BYTES]).unwrap();
        assert_eq!(backlog.pause(), None);
        intake.widened(WINDOW_BYTES_MAX);
        intake.came(&[0]).unwrap();
        assert_eq!(backlog.pause(), Some(BUSY_PAUSE));
        let starved = backlog.starve();
        assert_eq!(backlog.pause(), None);
        drop(starved);
        assert_eq!(backlog.pause(), Some(BUSY_PAUSE));
        let taking = async {
            intake.next(1).await.unwrap();
            intake.next(1).await.unwrap();
        };
        tokio::join!(backlog.caught_up(), taking);
        intake.came(&vec![0; STALLED_BYTES]).unwrap();
        let _starved = backlog.starve();
        assert_eq!(backlog.pause(), Some(STALLED_PAUSE));
    }

    #[test]
    fn a_connection_holds_so_much_and_then_ends_the_channel_that_hoards() {
        let backlog = Backlog::default();
        let (hoarder, other) = (Intake::new(&backlog), Intake::new(&backlog));
        while !backlog.is_full() {
            hoarder.widened(WINDOW_BYTES_MAX);
            hoarder.came(&[0; 64 * KIB]).unwrap();
        }
        assert_eq!(hoarder.came(&[0]), Err(NotTaken::Hoarded));
        other.came(&[0; KEEPS_UP_BYTES]).unwrap();
        hoarder.close();
        other.came(&[0]).unwrap();
        assert!(!backlog.is_full());
    }
}
