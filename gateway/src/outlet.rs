//! The way to a client, channel by channel.
//!
//! russh takes what it is given in order, and what does not fit a channel's window holds up every other channel. So no
//! more is given to it than the client takes. It keeps a window that can be looked at in small pieces only; the first
//! time that a client widens one, its size can be told exactly from what was passed on by then ([`Counted`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use russh::ChannelId;
use russh::server::{Handle, Msg};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::backlog::Backlog;
use crate::limits::SENT_BYTES;

/// What the other end of a channel is called that stderr goes over, in RFC 4254.
pub(crate) const STDERR: u32 = 1;

/// The connection has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone")]
pub(crate) struct Gone;

/// Where bytes for a client go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Data,
    Stderr,
}

/// How much a client takes on a channel. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Window {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    counts: Mutex<Counts>,
    wider: Notify,
    /// Bytes that russh has passed on.
    passed: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    /// Bytes that the client has let be sent in all; unknown until it has widened the window once.
    granted: Option<u64>,
    handed: u64,
}

impl Window {
    /// Of a channel whose window is known from its beginning.
    pub(crate) fn known(bytes: u32) -> Self {
        let window = Self::default();
        window.counts().granted = Some(u64::from(bytes));
        window
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client has widened the window, which is `size` now for what russh has not passed on.
    pub(crate) fn widened(&self, size: u32) {
        let passed = self.shared.passed.load(Ordering::Acquire);
        self.counts().granted = Some(passed + u64::from(size));
        self.shared.wider.notify_waiters();
    }

    /// Bytes that were sent in all.
    pub(crate) fn total(&self) -> u64 {
        self.counts().handed
    }

    /// So many of `wanted` bytes as may be sent, at least one; `None` where russh has to be asked piece by piece.
    async fn reserve(&self, wanted: usize, backlog: &Backlog) -> Option<usize> {
        let mut starved = None;
        loop {
            let mut wider = std::pin::pin!(self.shared.wider.notified());
            wider.as_mut().enable();
            {
                let mut counts = self.counts();
                let granted = counts.granted?;
                let left = usize::try_from(granted.saturating_sub(counts.handed)).unwrap_or(usize::MAX);
                let count = left.min(wanted);
                if count > 0 {
                    counts.handed += count as u64;
                    return Some(count);
                }
            }
            // The client's word comes with what it sends, which must not be held up then.
            starved.get_or_insert_with(|| backlog.starve());
            wider.await;
        }
    }

    fn counted(&self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Counted { bytes, window: self.clone() })
    }
}

/// Bytes on their way through russh, which lets go of them once they are on their way to the client.
struct Counted {
    bytes: Bytes,
    window: Window,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.window.shared.passed.fetch_add(self.bytes.len() as u64, Ordering::AcqRel);
    }
}

/// One channel's way to its client.
pub(crate) struct Outlet {
    handle: Handle,
    half: russh::ChannelWriteHalf<Msg>,
    window: Window,
    backlog: Backlog,
    closed: CancellationToken,
}

impl Outlet {
    /// Until `closed`.
    pub(crate) fn new(
        handle: Handle,
        half: russh::ChannelWriteHalf<Msg>,
        window: Window,
        (backlog, closed): (Backlog, CancellationToken),
    ) -> Self {
        Self { handle, half, window, backlog, closed }
    }

    fn id(&self) -> ChannelId {
        self.half.id()
    }

    /// Sends all of `bytes`, as fast as the client takes them.
    ///
    /// # Errors
    /// [`Gone`], also where only the channel is.
    pub(crate) async fn send(&self, stream: Stream, bytes: Bytes) -> Result<(), Gone> {
        self.closed.run_until_cancelled(self.send_all(stream, bytes)).await.unwrap_or(Err(Gone))
    }

    async fn send_all(&self, stream: Stream, mut bytes: Bytes) -> Result<(), Gone> {
        while !bytes.is_empty() {
            match self.window.reserve(bytes.len().min(SENT_BYTES), &self.backlog).await {
                Some(count) => {
                    let piece = self.window.counted(bytes.split_to(count));
                    let sent = match stream {
                        Stream::Data => self.handle.data(self.id(), piece).await,
                        Stream::Stderr => self.handle.extended_data(self.id(), STDERR, piece).await,
                    };
                    sent.map_err(|_| Gone)?;
                }
                None => {
                    let count = self.half.writable_packet_size().await.clamp(1, bytes.len());
                    let piece = self.window.counted(bytes.split_to(count));
                    self.window.counts().handed += count as u64;
                    let sent = match stream {
                        Stream::Data => self.half.data_bytes(piece).await,
                        Stream::Stderr => self.half.extended_data_bytes(STDERR, piece).await,
                    };
                    sent.map_err(|_| Gone)?;
                }
            }
        }
        Ok(())
    }

    /// Nothing more is sent.
    pub(crate) async fn end(&self) -> Result<(), Gone> {
        self.handle.eof(self.id()).await.map_err(|()| Gone)
    }

    /// The channel is over.
    pub(crate) async fn close(&self) -> Result<(), Gone> {
        self.handle.close(self.id()).await.map_err(|()| Gone)
    }

    /// The program ended with this status.
    pub(crate) async fn exited(&self, status: u32) -> Result<(), Gone> {
        self.handle.exit_status_request(self.id(), status).await.map_err(|()| Gone)
    }

    /// A signal ended the program.
    pub(crate) async fn killed(&self, signal: russh::Sig, core_dumped: bool) -> Result<(), Gone> {
        let told = self.handle.exit_signal_request(self.id(), signal, core_dumped, String::new(), String::new());
        told.await.map_err(|()| Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_known_window_is_used_up_and_goes_on_when_it_is_widened() {
        let window = Window::known(10);
        assert_eq!(window.reserve(7, &Backlog::default()).await, Some(7));
        assert_eq!(window.reserve(7, &Backlog::default()).await, Some(3));
        drop(window.counted(Bytes::from_static(&[0; 7])));
        // Three bytes are on their way still: of seven that the client takes beyond those passed on, four are left.
        window.widened(7);
        assert_eq!(window.reserve(7, &Backlog::default()).await, Some(4));
        assert_eq!(window.total(), 14);
    }

    #[tokio::test]
    async fn whoever_waits_for_a_window_goes_on_when_it_is_widened() {
        let window = Window::known(0);
        let (backlog, widening) = (Backlog::default(), async { window.widened(5) });
        let (reserved, ()) = tokio::join!(window.reserve(9, &backlog), widening);
        assert_eq!(reserved, Some(5));
    }

    #[tokio::test]
    async fn an_unknown_window_is_known_once_it_was_widened() {
        let window = Window::default();
        assert_eq!(window.reserve(1, &Backlog::default()).await, None);
        window.widened(3);
        assert_eq!(window.reserve(9, &Backlog::default()).await, Some(3));
    }
}
