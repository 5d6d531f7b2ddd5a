//! Connections handed from the sidecar to its worker, over a pair of sockets that nobody else has an end of.
//!
//! No name, no path, no listener: a process that is not the worker cannot take its place, and one that is not the
//! sidecar cannot ask.

use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::task::{Context, Poll, ready};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::UnixStream;
use tokio_util::net::Listener;
use tokio_util::sync::CancellationToken;

/// What goes along with a descriptor, since something must; and the first that comes back on it.
const MARK: &[u8] = b".";

/// Gives the other side one end of a new connection, and hands back the other.
///
/// # Errors
/// The other side is gone, or takes nothing.
pub(super) fn hand_over(channel: &UnixStream) -> io::Result<UnixStream> {
    let (own, other) = StdUnixStream::pair()?;
    own.set_nonblocking(true)?;
    let descriptors = [other.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(channel, &[IoSlice::new(MARK)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    UnixStream::from_std(own)
}

/// Waits until the other side has taken `stream`: what is written to it then was not lost with a process that had
/// ended before.
///
/// # Errors
/// The other side is gone.
pub(super) async fn taken(mut stream: UnixStream) -> io::Result<UnixStream> {
    stream.read_exact(&mut [0; MARK.len()]).await?;
    Ok(stream)
}

/// Where the worker takes its connections from.
#[derive(Debug)]
pub struct Handed {
    channel: UnixStream,
    closed: CancellationToken,
}

impl Handed {
    /// Takes connections from `channel`. When its other end is closed, so is `closed`.
    ///
    /// # Errors
    /// It is no socket.
    pub fn new(channel: OwnedFd, closed: CancellationToken) -> io::Result<Self> {
        let channel = StdUnixStream::from(channel);
        channel.set_nonblocking(true)?;
        Ok(Self { channel: UnixStream::from_std(channel)?, closed })
    }

    /// The next connection; `None` at the end.
    fn take(&self) -> io::Result<Option<UnixStream>> {
        let mut mark = [0; MARK.len()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = self.channel.try_io(Interest::READABLE, || {
            let message =
                recvmsg(&self.channel, &mut [IoSliceMut::new(&mut mark)], &mut control, RecvFlags::CMSG_CLOEXEC);
            message.map_err(io::Error::from)
        })?;
        let handed = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        if let Some(descriptor) = handed {
            let mut stream = StdUnixStream::from(descriptor);
            stream.set_nonblocking(true)?;
            // Nothing was written to it before, so there is room; a side that is gone is found when it is read.
            stream.write_all(MARK).ok();
            return UnixStream::from_std(stream).map(Some);
        }
        if received.bytes == 0 { Ok(None) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

impl Listener for Handed {
    type Io = UnixStream;
    type Addr = ();

    fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<io::Result<(UnixStream, ())>> {
        loop {
            ready!(self.channel.poll_read_ready(context))?;
            match self.take() {
                Ok(Some(stream)) => return Poll::Ready(Ok((stream, ()))),
                Ok(None) => {
                    self.closed.cancel();
                    return Poll::Pending;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn local_addr(&self) -> io::Result<()> {
        Ok(())
    }
}
