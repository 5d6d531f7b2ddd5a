//! What has come for one execution and waits for its consumer.
//!
//! With `credit` the sandbox sends no more than there is room for. Without, a full feed stops the reading of the whole
//! connection, and the sandbox meets a full socket.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use sandbox_protocol::fsp::{Ended, Status, Stream};
use sandbox_protocol::limits::FSP_STDIN_WINDOW_BYTES;
use tokio::sync::{Notify, Semaphore};

use crate::error::FspError;
use crate::limits::{COPIED_BYTES_MAX, FEED_BYTES_MAX, FEED_EVENTS_MAX, JOINED_BYTES_MAX};

/// What a consumer is told of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The sandbox has it.
    Ack,
    /// It has come to this state.
    Status(Status),
    /// It wrote this.
    Output(Stream, Bytes),
    /// These messages are lost.
    Gap {
        /// Number of the first.
        from_seq: u64,
        /// Number of the last.
        to_seq: u64,
        /// Bytes of output before the next message, from the execution's beginning.
        bytes: u64,
    },
    /// It has ended. Nothing comes after this.
    Ended(Ended),
    /// It goes on, and no more is told of it. Nothing comes after this.
    Detached,
}

#[derive(Debug)]
pub(super) struct Feed {
    credit: bool,
    queue: Mutex<Queue>,
    /// Something has come.
    arrived: Notify,
    /// Something was taken.
    taken: Notify,
    /// Bytes of stdin that the sandbox has room for.
    stdin: Semaphore,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<(Event, u64)>,
    bytes: u64,
    /// Taken, and not yet granted to the sandbox again.
    owed: u64,
    /// The last event, or failure, is known.
    end: Option<Result<(), FspError>>,
    abandoned: bool,
}

/// The sandbox sent more than it was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overrun;

impl Feed {
    pub(super) fn new(credit: bool) -> Self {
        Self {
            credit,
            queue: Mutex::default(),
            arrived: Notify::new(),
            taken: Notify::new(),
            stdin: Semaphore::new(FSP_STDIN_WINDOW_BYTES as usize),
        }
    }

    /// Adds an event, whose last message has the number `seq` (0 where they have none).
    pub(super) fn push(&self, event: Event, seq: u64) -> Result<(), Overrun> {
        let mut queue = self.queue();
        if queue.abandoned || queue.end.is_some() {
            return Ok(());
        }
        match &event {
            Event::Ended(_) | Event::Detached => queue.end = Some(Ok(())),
            Event::Output(_, data) => queue.bytes += data.len() as u64,
            Event::Ack | Event::Status(_) | Event::Gap { .. } => {}
        }
        let overrun = self.credit && queue.bytes > overrun_bytes();
        queue.add(event, seq);
        if queue.end.is_some() {
            self.stdin.close();
        }
        drop(queue);
        self.arrived.notify_one();
        if overrun { Err(Overrun) } else { Ok(()) }
    }

    /// Adds the last event.
    pub(super) fn end(&self, event: Event, seq: u64) {
        // One event holds no output that could be too much.
        self.push(event, seq).ok();
    }

    /// Nothing more comes, for this reason. What has come is still handed out before it.
    pub(super) fn fail(&self, error: FspError) {
        self.queue().end.get_or_insert(Err(error));
        self.stdin.close();
        self.arrived.notify_one();
    }

    /// Whether nothing may be read of the connection until the consumer takes something.
    pub(super) fn blocks(&self) -> bool {
        let queue = self.queue();
        !self.credit && !queue.abandoned && (queue.bytes >= FEED_BYTES_MAX || queue.events.len() >= FEED_EVENTS_MAX)
    }

    /// Waits until it [`blocks`](Self::blocks) no more.
    pub(super) async fn room(&self) {
        while self.blocks() {
            self.taken.notified().await;
        }
    }

    /// Waits for an event, and its number. `Ok(None)` after the last.
    pub(super) async fn take(&self) -> Result<Option<(Event, u64)>, FspError> {
        loop {
            if let Some(taken) = self.try_take() {
                return taken;
            }
            self.arrived.notified().await;
        }
    }

    fn try_take(&self) -> Option<Result<Option<(Event, u64)>, FspError>> {
        let mut queue = self.queue();
        let Some((event, seq)) = queue.events.pop_front() else {
            return queue.end.clone().map(|end| end.map(|()| None));
        };
        if let Event::Output(_, data) = &event {
            queue.bytes -= data.len() as u64;
            queue.owed += data.len() as u64;
        }
        drop(queue);
        self.taken.notify_one();
        Some(Ok(Some((event, seq))))
    }

    /// Whether so much was taken that the sandbox should be granted it again.
    pub(super) fn grant_is_due(&self) -> bool {
        let queue = self.queue();
        self.credit && queue.end.is_none() && queue.owed >= FEED_BYTES_MAX / 2
    }

    /// What is to be granted; it counts as granted then.
    pub(super) fn grant(&self) -> u64 {
        std::mem::take(&mut self.queue().owed)
    }

    /// Credit for a link that has none yet: what there is room for.
    pub(super) fn fresh_credit(&self) -> Option<u64> {
        let mut queue = self.queue();
        queue.owed = 0;
        self.credit.then(|| FEED_BYTES_MAX.saturating_sub(queue.bytes))
    }

    /// Nobody takes anything any more.
    pub(super) fn abandon(&self) {
        let mut queue = self.queue();
        queue.abandoned = true;
        queue.events.clear();
        queue.bytes = 0;
        drop(queue);
        self.taken.notify_one();
    }

    /// The sandbox has room for so many more bytes of stdin.
    pub(super) fn grant_stdin(&self, bytes: u64) {
        let room = (FSP_STDIN_WINDOW_BYTES as usize).saturating_sub(self.stdin.available_permits());
        self.stdin.add_permits(usize::try_from(bytes).unwrap_or(usize::MAX).min(room));
    }

    /// Waits until so many bytes of stdin may be sent.
    pub(super) async fn stdin_room(&self, bytes: u32) -> Result<(), FspError> {
        match self.stdin.acquire_many(bytes).await {
            Ok(permit) => {
                permit.forget();
                Ok(())
            }
            Err(_) if self.queue().end.is_some() => Err(FspError::Ended),
            Err(_) => Err(FspError::StdinBroken),
        }
    }

    /// The link broke: bytes of stdin that the sandbox has not spoken of may be lost.
    pub(super) fn link_broke(&self) {
        if self.stdin.available_permits() < FSP_STDIN_WINDOW_BYTES as usize {
            self.stdin.close();
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Three times the credit, since a byte that is no text may come as U+FFFD, and is not counted as that by every sandbox.
const fn overrun_bytes() -> u64 {
    FEED_BYTES_MAX * 3
}

impl Queue {
    fn add(&mut self, event: Event, seq: u64) {
        let Event::Output(stream, data) = event else {
            return self.events.push_back((event, seq));
        };
        if let Some((Event::Output(last_stream, last), last_seq)) = self.events.back_mut()
            && *last_stream == stream
            && last.len() + data.len() <= JOINED_BYTES_MAX
        {
            let mut joined = std::mem::take(last).try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            joined.extend_from_slice(&data);
            (*last, *last_seq) = (joined.freeze(), seq);
            return;
        }
        let data = if data.len() <= COPIED_BYTES_MAX { Bytes::copy_from_slice(&data) } else { data };
        self.events.push_back((Event::Output(stream, data), seq));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(text: &'static str) -> Event {
        Event::Output(Stream::Stdout, Bytes::from(text))
    }

    #[tokio::test]
    async fn small_output_is_joined_and_keeps_the_number_of_its_last_message() {
        let feed = Feed::new(true);
        for (seq, text) in [(1, "ab"), (2, "cd"), (3, "e")] {
            feed.push(output(text), seq).unwrap();
        }
        feed.push(Event::Output(Stream::Stderr, Bytes::from("x")), 4).unwrap();
        assert_eq!(feed.take().await.unwrap(), Some((output("abcde"), 3)));
        assert_eq!(feed.take().await.unwrap(), Some((Event::Output(Stream::Stderr, Bytes::from("x")), 4)));
    }

    #[tokio::test]
    async fn what_came_before_a_failure_is_handed_out_before_it() {
        let feed = Feed::new(false);
        feed.push(output("a"), 0).unwrap();
        feed.fail(FspError::IdInUse);
        feed.push(output("late"), 0).unwrap();
        assert_eq!(feed.take().await.unwrap(), Some((output("a"), 0)));
        assert!(matches!(feed.take().await, Err(FspError::IdInUse)));
        assert!(matches!(feed.stdin_room(1).await, Err(FspError::Ended)));
    }

    #[test]
    fn a_feed_without_credit_blocks_exactly_when_it_is_full() {
        let full = Bytes::from(vec![0; FEED_BYTES_MAX as usize - 1]);
        let feed = Feed::new(false);
        feed.push(Event::Output(Stream::Stdout, full.clone()), 0).unwrap();
        assert!(!feed.blocks());
        feed.push(Event::Output(Stream::Stdout, Bytes::from("x")), 0).unwrap();
        assert!(feed.blocks());
        feed.abandon();
        assert!(!feed.blocks());
    }

    #[test]
    fn a_sandbox_that_overdraws_its_credit_is_found_out() {
        let feed = Feed::new(true);
        let chunk = Bytes::from(vec![0; FEED_BYTES_MAX as usize]);
        for _ in 0..3 {
            assert_eq!(feed.push(Event::Output(Stream::Stdout, chunk.clone()), 0), Ok(()));
        }
        assert_eq!(feed.push(output("x"), 0), Err(Overrun));
        assert!(!feed.blocks());
    }

    #[tokio::test]
    async fn credit_is_due_at_half_the_window() {
        let feed = Feed::new(true);
        let half = FEED_BYTES_MAX / 2;
        feed.push(Event::Output(Stream::Stdout, Bytes::from(vec![0; half as usize - 1])), 0).unwrap();
        feed.push(Event::Output(Stream::Stderr, Bytes::from("x")), 0).unwrap();
        feed.take().await.unwrap();
        assert!(!feed.grant_is_due());
        feed.take().await.unwrap();
        assert!(feed.grant_is_due());
        assert_eq!((feed.grant(), feed.grant()), (half, 0));
    }

    #[tokio::test]
    async fn stdin_under_way_is_not_sent_again_after_a_break() {
        let feed = Feed::new(true);
        feed.link_broke();
        feed.stdin_room(1).await.unwrap();
        feed.link_broke();
        assert!(matches!(feed.stdin_room(1).await, Err(FspError::StdinBroken)));
    }
}
