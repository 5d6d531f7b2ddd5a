//! A client's socket as russh is given it: acknowledged at once, read no faster than what came is passed on, and cut
//! when it is to end.
//!
//! russh says goodbye and then reads until the peer has closed its side too, however long that takes. So reading ends a
//! little after the last word.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::backlog::Backlog;
use crate::limits::{FAREWELL_MAX, READ_BYTES};

pub(crate) struct Transport {
    socket: TcpStream,
    /// Read, and not wanted yet. Nothing is held while nothing comes.
    ahead: BytesMut,
    backlog: Backlog,
    pause: Option<BoxFuture<'static, ()>>,
    /// Reading and writing are polled by one task each at a time, so each has its own.
    cut: [Pin<Box<WaitForCancellationFutureOwned>>; 2],
    paused: bool,
    /// Until when the peer may close its side, once this one is closed.
    leaving: Option<Pin<Box<Sleep>>>,
}

impl Transport {
    /// Speaks over `socket` until `cut`.
    pub(crate) fn new(socket: TcpStream, backlog: Backlog, cut: &CancellationToken) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        let waiting = || Box::pin(cut.clone().cancelled_owned());
        Ok(Self {
            socket,
            ahead: BytesMut::new(),
            backlog,
            pause: None,
            cut: [waiting(), waiting()],
            paused: false,
            leaving: None,
        })
    }

    fn poll_cut(&mut self, which: usize, context: &mut Context<'_>) -> io::Result<()> {
        match self.cut[which].as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }

    /// Whether the time is over in which the peer may close its side.
    fn has_left(&mut self, context: &mut Context<'_>) -> bool {
        self.leaving.as_mut().is_some_and(|leaving| leaving.as_mut().poll(context).is_ready())
    }

    /// Waits a little where a channel's other side is behind.
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.pause.is_none()
            && !self.paused
            && let Some(pause) = self.backlog.pause()
        {
            let backlog = self.backlog.clone();
            let pausing = async move { timeout(pause, backlog.caught_up()).await };
            self.pause = Some(Box::pin(pausing.map(drop)));
            self.paused = true;
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(context));
            self.pause = None;
        }
        Poll::Ready(())
    }

    fn poll_fill(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.socket.poll_read_ready(context))?;
            let direct = buffer.remaining() >= READ_BYTES / 4;
            let read = if direct {
                self.socket.try_read(buffer.initialize_unfilled())
            } else {
                self.ahead.resize(READ_BYTES, 0);
                let read = self.socket.try_read(&mut self.ahead);
                self.ahead.truncate(*read.as_ref().unwrap_or(&0));
                read
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.ahead = BytesMut::new(),
                Err(error) => return Poll::Ready(Err(error)),
                Ok(count) => {
                    if direct {
                        buffer.advance(count);
                    }
                    self.acknowledge();
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// Has the kernel acknowledge at once: a client that gathers small writes waits for it, and the kernel for a reply to
    /// send it with. The option does not last.
    fn acknowledge(&self) {
        #[cfg(target_os = "linux")]
        if let Err(error) = self.socket.set_quickack(true) {
            tracing::trace!(%error, "acknowledgements are late");
        }
    }

    fn give(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead[..count]);
        self.ahead.advance(count);
        if self.ahead.is_empty() {
            self.ahead = BytesMut::new();
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.poll_cut(0, context)?;
        if this.has_left(context) {
            return Poll::Ready(Ok(()));
        }
        if this.ahead.is_empty() {
            ready!(this.poll_pause(context));
            ready!(this.poll_fill(context, buffer))?;
            this.paused = false;
        }
        this.give(buffer);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.poll_cut(1, context)?;
        Pin::new(&mut this.socket).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.leaving.get_or_insert_with(|| Box::pin(sleep(FAREWELL_MAX)));
        Pin::new(&mut this.socket).poll_shutdown(context)
    }
}
