//! Why a channel is not opened. Status codes and wire words are chosen in `http::error`.

use std::io;

use nix::errno::Errno;

use crate::exec::{ExecError, Invalid};
use crate::limits::SOCKET_PATH_BYTES_MAX;

/// Everything that keeps a channel from being opened.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// There are as many of the kind as may be.
    #[error("as many are open as may be")]
    Full,
    /// The first frame is none that starts a program, or did not come in time.
    #[error("the first frame must say what is to be started")]
    NoStart,
    /// The program is refused as it stands.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The name in `TERM` is none.
    #[error("term: give a terminal's name")]
    Term,
    /// The program could not be started.
    #[error(transparent)]
    Start(#[from] ExecError),
    /// The kernel gives no pipe or terminal.
    #[error("there are no streams for the program")]
    Streams(#[source] io::Error),
    /// A socket's path is none that the kernel takes.
    #[error("path: give 1 to {SOCKET_PATH_BYTES_MAX} bytes, none of them NUL")]
    Path,
    /// Not exactly one thing to listen at was named.
    #[error("give one of port, path and private")]
    NotOne,
    /// The port belongs to the sidecar.
    #[error("port {0} is not for programs")]
    Reserved(u16),
    /// The port is taken, or not to be had.
    #[error("cannot listen at port {port}")]
    Port {
        /// Which.
        port: u16,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The agent cannot connect to the socket.
    #[error("nothing takes the agent's connections there: {}", .0.desc())]
    Closed(Errno),
    /// The agent cannot make the socket.
    #[error("the agent cannot listen there: {}", .0.desc())]
    Unusable(Errno),
    /// What opens sockets as the agent gave none, or took too long.
    #[error("the socket was not opened")]
    NotOpened(#[source] io::Error),
    /// Nothing that waits has this id.
    #[error("no connection of this id waits")]
    NoArrival,
}
