//! Unix sockets at paths that are the agent's to say: opened by a process that is the agent.
//!
//! The process is this program once more, told [`OpenSocket`]. It hands what it opened to the sidecar through the socket
//! that is its stdin, and ends. It runs as the agent, so what comes may be anything that the agent has: it is used only
//! where it is a socket of the kind that was asked for.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use nix::errno::Errno;
use nix::sys::stat::{Mode, umask};
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketType, bind, listen, recvmsg, sendmsg, socket,
};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::Settings;
use super::error::ChannelError;
use crate::exec;
use crate::limits::{LISTEN_BACKLOG, OPEN_SOCKET_MAX, SOCKET_PATH_BYTES_MAX};

/// Where sockets are made whose path the sidecar chooses.
const SCRATCH: &str = "/tmp";
/// Bytes of an error number, nought where a socket comes with it.
const ANSWER_BYTES: usize = 4;
const DIRECTORY_MODE: u32 = 0o700;

/// Opens a Unix socket and hands it over, or removes one.
#[derive(Debug, Clone, clap::Args)]
pub struct OpenSocket {
    /// What is to be done.
    #[arg(value_enum)]
    action: Action,
    /// At which path; a relative one starts at the working directory.
    path: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    /// Connect to what listens there.
    Connect,
    /// Listen there, where nothing is.
    Listen,
    /// The same, in a directory that is made for it.
    ListenApart,
    /// Remove the socket that is there.
    Remove,
    /// Remove it with its directory.
    RemoveApart,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Listen => "listen",
            Self::ListenApart => "listen-apart",
            Self::Remove => "remove",
            Self::RemoveApart => "remove-apart",
        }
    }
}

impl OpenSocket {
    /// Does it, and tells through stdin.
    pub fn run(&self) -> ExitCode {
        let (errno, opened) = match self.open() {
            Ok(opened) => (0, opened),
            Err(error) => (error.raw_os_error().unwrap_or(Errno::EIO as i32), None),
        };
        let told = hand_over(errno, opened.as_ref().map(|opened| opened.as_fd()));
        if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let path = &self.path;
        match self.action {
            Action::Connect => StdUnixStream::connect(path).map(|stream| Some(stream.into())),
            Action::Listen => listening(path).map(Some),
            Action::ListenApart => {
                let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
                DirBuilder::new().mode(DIRECTORY_MODE).create(directory)?;
                listening(path).inspect_err(|_| fs::remove_dir(directory).unwrap_or_default()).map(Some)
            }
            Action::Remove => removed(path).map(|()| None),
            Action::RemoveApart => {
                removed(path)?;
                path.parent().map_or(Ok(()), fs::remove_dir).map(|()| None)
            }
        }
    }
}

/// A socket that only its owner can connect to.
fn listening(path: &Path) -> io::Result<OwnedFd> {
    umask(Mode::from_bits_truncate(0o177));
    let made = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    bind(&made, &SocketAddrUnix::new(path)?)?;
    listen(&made, LISTEN_BACKLOG)?;
    Ok(made)
}

/// What has taken the socket's place since is left alone.
fn removed(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path)?.file_type().is_socket() { fs::remove_file(path) } else { Ok(()) }
}

fn hand_over(errno: i32, opened: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = errno.to_ne_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(opened.as_slice())) && opened.is_some() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(rustix::stdio::stdin(), &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A connection to the socket at `path`.
pub(super) async fn connect(path: &str, settings: &Settings) -> Result<UnixStream, ChannelError> {
    let path = checked_path(path)?;
    let opened = open(Action::Connect, path, settings).await?.map_err(ChannelError::Closed)?;
    let usable = || -> io::Result<UnixStream> {
        let opened = of_kind(opened.ok_or(io::ErrorKind::InvalidData)?, Listens::No)?;
        let stream = StdUnixStream::from(opened);
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    };
    usable().map_err(ChannelError::NotOpened)
}

/// A socket with a path of the agent's, which goes with [`Bound::remove`].
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) listener: UnixListener,
    path: PathBuf,
    removal: Action,
}

impl Bound {
    /// Listens at `path`, where nothing may be yet.
    pub(super) async fn at(path: &str, settings: &Settings) -> Result<Self, ChannelError> {
        Self::open(Action::Listen, checked_path(path)?, settings).await
    }

    /// Listens at a path that only the agent can reach.
    pub(super) async fn apart(settings: &Settings) -> Result<Self, ChannelError> {
        let path = Path::new(SCRATCH).join(format!("ssh-{:016x}", rand::random::<u64>())).join("agent");
        Self::open(Action::ListenApart, &path, settings).await
    }

    async fn open(action: Action, path: &Path, settings: &Settings) -> Result<Self, ChannelError> {
        let removal = if action == Action::ListenApart { Action::RemoveApart } else { Action::Remove };
        let opened = open(action, path, settings).await?.map_err(ChannelError::Unusable)?;
        let usable = || -> io::Result<UnixListener> {
            let opened = of_kind(opened.ok_or(io::ErrorKind::InvalidData)?, Listens::Yes)?;
            let listener = StdUnixListener::from(opened);
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener)
        };
        Ok(Self { listener: usable().map_err(ChannelError::NotOpened)?, path: path.to_owned(), removal })
    }

    /// Where it is, absolute.
    pub(super) fn path(&self, settings: &Settings) -> PathBuf {
        settings.workspace.join(&self.path)
    }

    /// Stops listening, and removes its path.
    pub(super) async fn remove(self, settings: &Settings) {
        let Self { listener, path, removal } = self;
        drop(listener);
        match open(removal, &path, settings).await {
            Ok(Ok(_)) => {}
            // The agent may have removed it first.
            Ok(Err(errno)) => tracing::debug!(path = %path.display(), %errno, "a socket was not removed"),
            Err(error) => {
                tracing::warn!(path = %path.display(), error = &error as &dyn std::error::Error, "a socket was not removed");
            }
        }
    }
}

fn checked_path(path: &str) -> Result<&Path, ChannelError> {
    let fits = (1..=SOCKET_PATH_BYTES_MAX).contains(&path.len()) && !path.contains('\0');
    if fits { Ok(Path::new(path)) } else { Err(ChannelError::Path) }
}

/// Has `action` done by a process that is the agent, or hears from it why not.
async fn open(
    action: Action,
    path: &Path,
    settings: &Settings,
) -> Result<Result<Option<OwnedFd>, Errno>, ChannelError> {
    let done = timeout(OPEN_SOCKET_MAX, async {
        let (ours, theirs) = StdUnixStream::pair().map_err(ChannelError::NotOpened)?;
        let mut child = helper(action, path, theirs, settings).await?;
        let received = async {
            ours.set_nonblocking(true)?;
            receive(&UnixStream::from_std(ours)?).await
        };
        let received = received.await.map_err(ChannelError::NotOpened)?;
        child.wait().await.map_err(ChannelError::NotOpened)?;
        Ok(received)
    });
    done.await.unwrap_or_else(|late| Err(ChannelError::NotOpened(late.into())))
}

async fn helper(action: Action, path: &Path, stdin: StdUnixStream, settings: &Settings) -> Result<Child, ChannelError> {
    let mut command = Command::new(&settings.program);
    command
        .arg0("sandbox-sidecar")
        .args([OsStr::new("open-socket"), OsStr::new(action.name()), OsStr::new("--"), path.as_os_str()])
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(stdin)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    Ok(exec::start(command, &settings.workspace, settings.identity).await?)
}

async fn receive(channel: &UnixStream) -> io::Result<Result<Option<OwnedFd>, Errno>> {
    let mut bytes = [0; ANSWER_BYTES];
    let (received, opened) = loop {
        channel.readable().await?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = channel.try_io(Interest::READABLE, || {
            let message = recvmsg(channel, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
            message.map_err(io::Error::from)
        });
        match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            received => {
                let opened = control.drain().find_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
                    _ => None,
                });
                break (received?.bytes, opened);
            }
        }
    };
    match i32::from_ne_bytes(bytes) {
        _ if received != ANSWER_BYTES => Err(io::ErrorKind::UnexpectedEof.into()),
        0 => Ok(Ok(opened)),
        errno => Ok(Err(Errno::from_raw(errno))),
    }
}

/// Whether a socket is one that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listens {
    Yes,
    No,
}

fn of_kind(opened: OwnedFd, listens: Listens) -> io::Result<OwnedFd> {
    let fits = socket_domain(&opened)? == AddressFamily::UNIX
        && socket_type(&opened)? == SocketType::STREAM
        && socket_acceptconn(&opened)? == (listens == Listens::Yes);
    if fits { Ok(opened) } else { Err(io::ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_as_long_as_the_kernel_takes() {
        assert!(checked_path(&"p".repeat(SOCKET_PATH_BYTES_MAX)).is_ok());
        for path in ["", "a\0b", &"p".repeat(SOCKET_PATH_BYTES_MAX + 1)] {
            assert!(checked_path(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn only_a_socket_of_the_kind_that_was_asked_for_is_used() {
        let (stream, _other) = StdUnixStream::pair().unwrap();
        assert!(of_kind(stream.try_clone().unwrap().into(), Listens::No).is_ok());
        assert!(of_kind(stream.into(), Listens::Yes).is_err());
        let file = fs::File::open("/dev/null").unwrap();
        let packets = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for other in [OwnedFd::from(file), packets.into(), tcp.into()] {
            assert!(of_kind(other.try_clone().unwrap(), Listens::No).is_err());
            assert!(of_kind(other, Listens::Yes).is_err());
        }
    }
}
