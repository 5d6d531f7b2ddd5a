//! A stream whose bytes are counted and held to the sandbox's rate.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::usage::{Pulse, Way};

/// Reading is the sandbox's way up, writing its way down.
pub(super) struct Metered<S> {
    stream: S,
    pulse: Arc<Pulse>,
    reading: Rest,
    writing: Rest,
}

/// The wait that one way has been told to take.
#[derive(Default)]
struct Rest(Option<Pin<Box<Sleep>>>);

impl Rest {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(sleep) = &mut self.0 {
            ready!(sleep.as_mut().poll(context));
            self.0 = None;
        }
        Poll::Ready(())
    }

    fn take(&mut self, until: Option<Instant>) {
        self.0 = until.map(|until| Box::pin(sleep_until(until)));
    }
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse, reading: Rest::default(), writing: Rest::default() }
    }

    fn wrote(&mut self, written: io::Result<usize>) -> Poll<io::Result<usize>> {
        if let Ok(bytes) = written {
            self.writing.take(self.pulse.moved(Way::Down, bytes));
        }
        Poll::Ready(written)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(this.reading.poll(context));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.reading.take(this.pulse.moved(Way::Up, buffer.filled().len() - before));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.writing.poll(context));
        let written = ready!(Pin::new(&mut this.stream).poll_write(context, bytes));
        this.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.writing.poll(context));
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, slices));
        this.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
