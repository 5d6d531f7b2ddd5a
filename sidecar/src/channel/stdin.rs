//! What an operator sends a program to read, within a window: what it has not taken yet waits here, and nothing else
//! waits behind it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Buf as _, Bytes, BytesMut};
use sandbox_protocol::channel::FromProgram;
use sandbox_protocol::limits::CHANNEL_WINDOW_BYTES;
use tokio::io::AsyncWrite;
use tokio::net::unix::pipe::Sender;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::output::{Teller, resize};
use crate::limits::{CHANNEL_FRAME_BYTES_MIN, CHANNEL_IDLE, CHANNEL_PIPE_BYTES, PIPE_BYTES};

/// Taken bytes of which the operator is told at once.
const TOLD_BYTES: usize = CHANNEL_WINDOW_BYTES / 4;

/// The operator sent more than it was let, or after the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more bytes for a program than it was told to take")]
pub(super) struct Overrun;

/// What waits to be taken.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    grew: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    parts: VecDeque<Bytes>,
    /// Short frames, after all parts: single ones would take more than they hold.
    tail: BytesMut,
    /// Bytes that were sent and that the operator does not know to be taken.
    untold: usize,
    ended: bool,
}

impl Queue {
    /// Adds what came.
    pub(super) fn push(&self, bytes: Bytes) -> Result<(), Overrun> {
        let mut waiting = self.waiting();
        if waiting.ended || waiting.untold + bytes.len() > CHANNEL_WINDOW_BYTES {
            return Err(Overrun);
        }
        waiting.untold += bytes.len();
        waiting.add(bytes);
        drop(waiting);
        self.grew.notify_one();
        Ok(())
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.waiting().ended = true;
        self.grew.notify_one();
    }

    /// What is to be taken next, once it is there; `None` at the end.
    async fn next(&self) -> Option<Bytes> {
        loop {
            {
                let mut waiting = self.waiting();
                if let Some(part) = waiting.take() {
                    return Some(part);
                }
                if waiting.ended {
                    return None;
                }
            }
            self.grew.notified().await;
        }
    }

    /// The operator is about to be told of so many bytes.
    fn told(&self, bytes: usize) {
        let mut waiting = self.waiting();
        waiting.untold = waiting.untold.saturating_sub(bytes);
    }

    /// No code panics while it holds the lock, so what a poisoned one guards is whole.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn add(&mut self, bytes: Bytes) {
        let is_first = self.parts.is_empty() && self.tail.is_empty();
        if bytes.len() < CHANNEL_FRAME_BYTES_MIN && !is_first {
            self.tail.extend_from_slice(&bytes);
            return;
        }
        if !self.tail.is_empty() {
            self.parts.push_back(self.tail.split().freeze());
        }
        if !bytes.is_empty() {
            self.parts.push_back(bytes);
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        let part = self.parts.pop_front().or_else(|| (!self.tail.is_empty()).then(|| self.tail.split().freeze()));
        if self.parts.is_empty() && self.tail.is_empty() {
            // Where nothing waits, nothing is held.
            (self.parts, self.tail) = (VecDeque::new(), BytesMut::new());
        }
        part
    }
}

/// Passes on what is in `queue` to the program, and tells the operator what it has taken, until all has been. What a
/// program does not read any more counts as taken.
///
/// # Errors
/// The operator is gone.
pub(super) async fn feed<S: AsyncWrite>(program: &Sender, queue: &Queue, teller: &Teller<S>) -> io::Result<()> {
    let mut inlet = Inlet { program, closed: false, grown: false };
    let mut taken = 0;
    while let Some(mut part) = inlet.next(queue).await {
        while !part.is_empty() {
            let written = inlet.write(&part).await;
            part.advance(written);
            taken += written;
            if taken >= TOLD_BYTES {
                queue.told(taken);
                teller.tell(&FromProgram::Taken(u32::try_from(taken).unwrap_or(u32::MAX))).await?;
                taken = 0;
            }
        }
    }
    Ok(())
}

/// A program's stdin, and what it takes while bytes flow.
struct Inlet<'a> {
    program: &'a Sender,
    /// The program reads no more.
    closed: bool,
    /// The kernel's pipe has been given more room.
    grown: bool,
}

impl Inlet<'_> {
    /// The next bytes; the room goes back while there are none.
    async fn next(&mut self, queue: &Queue) -> Option<Bytes> {
        if self.grown {
            if let Ok(next) = timeout(CHANNEL_IDLE, queue.next()).await {
                return next;
            }
            self.grown = false;
            resize(self.program, PIPE_BYTES);
        }
        queue.next().await
    }

    /// Waits until the program takes some, and tells how many.
    async fn write(&mut self, bytes: &[u8]) -> usize {
        while !self.closed {
            match self.program.try_write(bytes) {
                Ok(written) => return written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if bytes.len() >= PIPE_BYTES && !self.grown {
                        self.grown = true;
                        resize(self.program, CHANNEL_PIPE_BYTES);
                    }
                    self.closed = self.program.writable().await.is_err();
                }
                Err(_) => self.closed = true,
            }
        }
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bytes: usize) -> Bytes {
        vec![7; bytes].into()
    }

    #[test]
    fn a_window_is_filled_and_not_overrun_and_opens_as_it_is_told() {
        let queue = Queue::default();
        queue.push(part(CHANNEL_WINDOW_BYTES - 1)).unwrap();
        queue.push(part(1)).unwrap();
        assert_eq!(queue.push(part(1)), Err(Overrun));
        queue.push(part(0)).unwrap();
        queue.told(TOLD_BYTES);
        queue.push(part(TOLD_BYTES)).unwrap();
        assert_eq!(queue.push(part(1)), Err(Overrun));
    }

    #[tokio::test]
    async fn what_came_is_taken_in_its_order_however_short_its_parts_are() {
        let queue = Queue::default();
        let mut sent = Vec::new();
        for round in 0..64_u8 {
            for bytes in [1, CHANNEL_FRAME_BYTES_MIN - 1, CHANNEL_FRAME_BYTES_MIN, 0, 2] {
                let part = vec![round; bytes.min(4_096)];
                sent.extend_from_slice(&part);
                queue.push(part.into()).unwrap();
            }
        }
        queue.end();
        assert_eq!(queue.push(part(1)), Err(Overrun));
        let (mut got, mut parts) = (Vec::new(), 0);
        while let Some(part) = queue.next().await {
            got.extend_from_slice(&part);
            parts += 1;
        }
        assert!(got == sent && parts <= 2 + sent.len() / CHANNEL_FRAME_BYTES_MIN * 2, "{parts}");
    }
}
