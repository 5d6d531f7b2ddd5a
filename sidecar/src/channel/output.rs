//! What a program writes, on its way to the operator: from a pipe into one buffer behind a frame's head, and out.
//!
//! The buffer is there while bytes flow, and as large as they ask for; so is the room that the kernel's pipe has. A
//! program that is silent costs neither.

use std::io;
use std::os::fd::AsFd;
use std::pin::pin;

use bytes::{BufMut as _, BytesMut};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use sandbox_protocol::channel::{FRAME_HEAD_BYTES, FromProgram};
use sandbox_protocol::limits::CHANNEL_FRAME_BYTES_MAX;
use tokio::io::{AsyncWrite, AsyncWriteExt as _, WriteHalf};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::limits::{
    CHANNEL_IDLE, CHANNEL_PIPE_BYTES, CHANNEL_READ_BYTES_MIN, DRAIN_MAX, PIPE_BYTES, PTY_CLOSED_PAUSE,
};

/// Writes a stream's frame head.
pub(super) type Head = fn(usize) -> [u8; FRAME_HEAD_BYTES];

/// The way to the operator, for one frame at a time.
#[derive(Debug)]
pub(super) struct Teller<S>(Mutex<WriteHalf<S>>);

impl<S: AsyncWrite> Teller<S> {
    pub(super) fn new(writer: WriteHalf<S>) -> Self {
        Self(Mutex::new(writer))
    }

    pub(super) async fn tell(&self, frame: &FromProgram) -> io::Result<()> {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        self.send(&bytes).await
    }

    pub(super) async fn close(&self) -> io::Result<()> {
        self.0.lock().await.shutdown().await
    }

    async fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.lock().await.write_all(frame).await
    }
}

/// Gives a pipe room for what flows, where the kernel allows that to this user; a terminal's is what it is.
pub(super) fn resize(pipe: impl AsFd, bytes: usize) {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    if let Err(errno) = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(bytes)) {
        tracing::trace!(bytes, %errno, "a pipe keeps its size");
    }
}

/// A stream that a program writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) pipe: &'a Receiver,
    pub(super) head: Head,
    pub(super) closes: Closes,
}

/// What it means that no process has a stream open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closes {
    /// Nothing more comes: it is a pipe.
    ForGood,
    /// The program, whose terminal it is, can open it again.
    ForNow,
}

/// Passes on what comes from `source` until it is closed, or the program has `ended` and what it wrote has been passed
/// on. Others may hold the stream open and write to it; they are listened to for [`DRAIN_MAX`] more.
pub(super) async fn pump<S: AsyncWrite>(
    source: Source<'_>,
    teller: &Teller<S>,
    ended: &CancellationToken,
) -> io::Result<()> {
    let mut flow = Flow::new(source);
    let mut over = pin!(async {
        ended.cancelled().await;
        sleep(DRAIN_MAX).await;
    });
    loop {
        match flow.read_now() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::select! {
                biased;
                () = &mut over => break,
                readable = flow.readable() => readable?,
            },
            Ok(0) if source.closes == Closes::ForGood => return Ok(()),
            closed if is_closed(&closed) => {
                if ended.run_until_cancelled(sleep(PTY_CLOSED_PAUSE)).await.is_none() {
                    return Ok(());
                }
            }
            read => {
                read?;
                teller.send(flow.frame()).await?;
            }
        }
        if ended.is_cancelled() && futures::poll!(over.as_mut()).is_ready() {
            break;
        }
    }
    flow.drain(teller).await
}

/// Whether this is what a terminal says that no process has open.
fn is_closed(read: &io::Result<usize>) -> bool {
    match read {
        Ok(bytes) => *bytes == 0,
        Err(error) => error.raw_os_error() == Some(Errno::EIO as i32),
    }
}

/// A stream, and what it takes while bytes flow.
struct Flow<'a> {
    source: Source<'a>,
    /// A frame's head and bytes.
    buffer: Option<BytesMut>,
    /// Bytes that the next read may bring.
    wanted: usize,
    /// The kernel's pipe has been given more room.
    grown: bool,
}

impl<'a> Flow<'a> {
    fn new(source: Source<'a>) -> Self {
        Self { source, buffer: None, wanted: CHANNEL_READ_BYTES_MIN, grown: false }
    }

    /// What is there, as far as the runtime knows of it.
    fn read_now(&mut self) -> io::Result<usize> {
        let (pipe, wanted) = (self.source.pipe, self.wanted);
        let read = pipe.try_read_buf(&mut self.room().limit(wanted));
        self.have_read(read)
    }

    /// What is there.
    fn read_at_once(&mut self) -> io::Result<usize> {
        let (pipe, wanted) = (self.source.pipe, self.wanted);
        let room = self.room();
        room.put_bytes(0, wanted);
        let read = rustix::io::read(pipe, &mut room[FRAME_HEAD_BYTES..]);
        room.truncate(FRAME_HEAD_BYTES + read.unwrap_or(0));
        self.have_read(read.map_err(io::Error::from))
    }

    /// The buffer, with a head and nothing else in it.
    fn room(&mut self) -> &mut BytesMut {
        let bytes = FRAME_HEAD_BYTES + self.wanted;
        let room = self.buffer.take().filter(|buffer| buffer.capacity() >= bytes);
        let room = self.buffer.insert(room.unwrap_or_else(|| BytesMut::with_capacity(bytes)));
        room.clear();
        room.put_bytes(0, FRAME_HEAD_BYTES);
        room
    }

    /// Gives the frame its head, and what follows more room where this was filled.
    fn have_read(&mut self, read: io::Result<usize>) -> io::Result<usize> {
        let bytes = read?;
        if let Some(buffer) = &mut self.buffer {
            buffer[..FRAME_HEAD_BYTES].copy_from_slice(&(self.source.head)(bytes));
        }
        if bytes == self.wanted {
            self.wanted = CHANNEL_FRAME_BYTES_MAX;
        }
        if bytes >= PIPE_BYTES && !self.grown {
            resize(self.source.pipe, CHANNEL_PIPE_BYTES);
            self.grown = true;
        }
        Ok(bytes)
    }

    fn frame(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }

    /// Waits for more, and after a while without the memory that more would take.
    async fn readable(&mut self) -> io::Result<()> {
        if self.buffer.is_some() || self.grown {
            if let Ok(readable) = timeout(CHANNEL_IDLE, self.source.pipe.readable()).await {
                return readable;
            }
            self.release();
        }
        self.source.pipe.readable().await
    }

    fn release(&mut self) {
        (self.buffer, self.wanted) = (None, CHANNEL_READ_BYTES_MIN);
        if std::mem::take(&mut self.grown) {
            resize(self.source.pipe, PIPE_BYTES);
        }
    }

    /// Passes on what is left: no more than a pipe holds, since others may go on writing.
    async fn drain<S: AsyncWrite>(&mut self, teller: &Teller<S>) -> io::Result<()> {
        let mut left = CHANNEL_PIPE_BYTES;
        while left > 0 {
            // It is closed or empty; what a terminal says then is an error.
            let Ok(bytes @ 1..) = self.read_at_once() else { break };
            teller.send(self.frame()).await?;
            left = left.saturating_sub(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use nix::fcntl::OFlag;
    use nix::unistd::{pipe2, write};
    use sandbox_protocol::channel::stdout_head;
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex, split};
    use tokio::time::interval;

    use super::*;

    /// Fills the pipe, and waits until all of that has come.
    async fn filled(pipe: &OwnedFd, operator: &mut DuplexStream) {
        let mut left = write(pipe, &[7; PIPE_BYTES]).unwrap();
        assert_eq!(left, PIPE_BYTES);
        while left > 0 {
            let mut head = [0; FRAME_HEAD_BYTES];
            operator.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes(head[1..].try_into().unwrap()) as usize;
            operator.read_exact(&mut vec![0; length]).await.unwrap();
            left -= length;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pipe_has_more_room_while_much_flows_and_gives_it_back_when_it_is_silent() {
        let (reading, writing) = pipe2(OFlag::O_CLOEXEC).unwrap();
        let (ours, mut operator) = duplex(2 * PIPE_BYTES);
        let (pipe, teller) = (Receiver::from_owned_fd(reading).unwrap(), Teller::new(split(ours).1));
        let source = Source { pipe: &pipe, head: stdout_head, closes: Closes::ForGood };
        let room = |pipe: &OwnedFd| fcntl(pipe, FcntlArg::F_GETPIPE_SZ).unwrap() as usize;
        let watching = async {
            filled(&writing, &mut operator).await;
            filled(&writing, &mut operator).await;
            assert_eq!(room(&writing), CHANNEL_PIPE_BYTES);
            let mut look = interval(CHANNEL_IDLE);
            while room(&writing) != PIPE_BYTES {
                look.tick().await;
            }
            drop(writing);
        };
        let ended = CancellationToken::new();
        let (pumped, ()) = tokio::join!(pump(source, &teller, &ended), watching);
        pumped.unwrap();
    }
}
