//! A connection that is not HTTP any more: bytes both ways as they are, so whatever they mean survives.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};

use super::lease::{Lease, Over};
use super::passage::{Flow, Passage};
use super::pulse::Kind;
use crate::api::seats::Seat;
use crate::limits::API_TUNNEL_BUFFER_BYTES;

/// A tunnel in the making: both ends have agreed.
pub(super) struct Tunnel {
    pub(super) client: OnUpgrade,
    pub(super) inside: OnUpgrade,
    pub(super) kind: Kind,
    pub(super) passage: Arc<Passage>,
    pub(super) lease: Lease,
    pub(super) seat: Seat,
}

/// How a tunnel ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("an end of it was gone before it stood")]
    Upgrade(#[source] hyper::Error),
    #[error("it broke")]
    Broken(#[source] io::Error),
    #[error(transparent)]
    Over(Over),
}

impl Tunnel {
    /// Passes on until both ends have said all, one of them is gone, or its time is over.
    pub(super) async fn run(self) {
        let Self { client, inside, kind, passage, lease, seat } = self;
        if let Err(ended) = pass((client, inside), kind, passage, lease).await {
            tracing::debug!(error = %crate::error_chain(&ended), "a tunnel ended");
        }
        drop(seat);
    }
}

async fn pass(
    (client, inside): (OnUpgrade, OnUpgrade),
    kind: Kind,
    passage: Arc<Passage>,
    mut lease: Lease,
) -> Result<(), Ended> {
    let (client, inside) = tokio::try_join!(client, inside).map_err(Ended::Upgrade)?;
    let mut client = Counted { inner: TokioIo::new(client), kind, passage };
    let mut inside = TokioIo::new(inside);
    let copied =
        copy_bidirectional_with_sizes(&mut client, &mut inside, API_TUNNEL_BUFFER_BYTES, API_TUNNEL_BUFFER_BYTES);
    tokio::select! {
        copied = copied => copied.map(drop).map_err(Ended::Broken),
        over = lease.over() => Err(Ended::Over(over)),
    }
}

/// The caller's end, where all bytes are counted.
struct Counted<S> {
    inner: S,
    kind: Kind,
    passage: Arc<Passage>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.inner).poll_read(context, buffer));
        self.passage.passed(Flow::Up, self.kind, &buffer.filled()[before..]);
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes));
        if let Ok(count) = written {
            self.passage.passed(Flow::Down, self.kind, &bytes[..count]);
        }
        Poll::Ready(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
