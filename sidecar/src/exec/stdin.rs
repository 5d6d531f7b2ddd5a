//! What a program is to read: what came with its order, and what is streamed after it, within a window.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use sandbox_protocol::limits::FSP_STDIN_WINDOW_BYTES;
use tokio::io::AsyncWriteExt as _;
use tokio::process::ChildStdin;
use tokio::sync::{Notify, mpsc};

/// Messages that wait for a program that does not read; their bytes are bounded by the window.
const MESSAGES_MAX: usize = 1_024;

/// Where stdin is streamed to.
#[derive(Debug)]
pub(super) struct Inlet {
    sender: mpsc::Sender<Piece>,
    /// Bytes that may still be sent.
    window: AtomicU64,
    /// Bytes that were taken and that nobody has been told of.
    taken: AtomicU64,
    took: Notify,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Piece {
    data: Bytes,
    eof: bool,
}

/// The end that the program's pipe is fed from.
#[derive(Debug)]
pub(super) struct Pieces(mpsc::Receiver<Piece>);

/// Why bytes were not taken; none of them was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// They are more than was granted.
    #[error("stdin: more bytes than were granted; wait for stdin_credit")]
    BeyondWindow,
    /// Stdin was not asked to be streamed, or has ended.
    #[error("stdin: not open")]
    Closed,
}

impl Inlet {
    pub(super) fn new() -> (Self, Pieces) {
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        let inlet = Self {
            sender,
            window: AtomicU64::new(FSP_STDIN_WINDOW_BYTES),
            taken: AtomicU64::new(0),
            took: Notify::new(),
            closed: AtomicBool::new(false),
        };
        (inlet, Pieces(receiver))
    }

    /// Hands over `data`, and with `eof` that nothing follows it.
    pub(super) fn send(&self, data: Bytes, eof: bool) -> Result<(), NotTaken> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(NotTaken::Closed);
        }
        let bytes = data.len() as u64;
        let left = self.window.load(Ordering::Relaxed).checked_sub(bytes).ok_or(NotTaken::BeyondWindow)?;
        self.sender.try_send(Piece { data, eof }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotTaken::BeyondWindow,
            mpsc::error::TrySendError::Closed(_) => NotTaken::Closed,
        })?;
        // Messages of a program come from one connection at a time; where two race, the window is only narrower.
        self.window.store(left, Ordering::Relaxed);
        self.closed.fetch_or(eof, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes that the program's pipe took since the last call, as soon as there are any: granted anew.
    pub(super) async fn granted(&self) -> u64 {
        loop {
            let took = self.took.notified();
            let taken = self.taken.swap(0, Ordering::Relaxed);
            if taken > 0 {
                self.window.fetch_add(taken, Ordering::Relaxed);
                return taken;
            }
            took.await;
        }
    }

    fn taken(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        self.took.notify_waiters();
    }
}

/// Writes `first`, then what is streamed, until the end of it or of the program's interest.
pub(super) async fn feed(mut pipe: ChildStdin, first: Bytes, streamed: Option<(&Inlet, Pieces)>) {
    if let Err(error) = pipe.write_all(&first).await {
        return tracing::debug!(%error, "a program did not take all of its stdin");
    }
    let Some((inlet, mut pieces)) = streamed else { return };
    while let Some(Piece { data, eof }) = pieces.0.recv().await {
        if let Err(error) = pipe.write_all(&data).await {
            return tracing::debug!(%error, "a program did not take all of its stdin");
        }
        inlet.taken(data.len());
        if eof {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_window_full_is_taken_and_a_byte_more_only_once_some_was_read() {
        let (inlet, mut pieces) = Inlet::new();
        let window = Bytes::from(vec![0; usize::try_from(FSP_STDIN_WINDOW_BYTES).unwrap()]);
        inlet.send(window.clone(), false).unwrap();
        assert_eq!(inlet.send(Bytes::from_static(b"x"), false), Err(NotTaken::BeyondWindow));
        let piece = pieces.0.recv().await.unwrap();
        inlet.taken(piece.data.len());
        assert_eq!(inlet.granted().await, FSP_STDIN_WINDOW_BYTES);
        inlet.send(window, true).unwrap();
        assert_eq!(inlet.send(Bytes::new(), false), Err(NotTaken::Closed));
    }

    #[test]
    fn messages_are_bounded_as_their_bytes_are() {
        let (inlet, _pieces) = Inlet::new();
        for _ in 0..MESSAGES_MAX {
            inlet.send(Bytes::from_static(b"x"), false).unwrap();
        }
        assert_eq!(inlet.send(Bytes::from_static(b"x"), false), Err(NotTaken::BeyondWindow));
    }
}
