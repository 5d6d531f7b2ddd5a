//! What ends a session, and why a request is refused. Only here do error numbers become the protocol's status codes.

use std::io;

use nix::errno::Errno;

use super::wire::{Malformed, Status};

/// What ends the session.
#[derive(Debug, thiserror::Error)]
pub enum SftpError {
    /// The workspace cannot be the working directory.
    #[error("cannot enter the workspace")]
    Workspace(#[source] io::Error),
    /// The input fails.
    #[error("cannot read requests")]
    Read(#[source] io::Error),
    /// The output fails; the client is gone.
    #[error("cannot write answers")]
    Write(#[source] io::Error),
    /// The input ends within a packet.
    #[error("the input ends within a packet")]
    CutOff,
    /// A packet is empty or longer than one may be.
    #[error("a packet of {bytes} bytes")]
    Length {
        /// What the packet says of itself.
        bytes: usize,
    },
    /// A packet's content is not what its type says.
    #[error("a packet that cannot be read")]
    Malformed(#[from] Malformed),
    /// The first packet is not the client's version.
    #[error("a request before the client's version")]
    NotGreeted,
}

/// Why a request is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The kernel's reason.
    Kernel(Errno),
    /// There is no more to read.
    EndOfFile,
    /// The request is not known.
    Unsupported,
    /// The request itself is the reason.
    Said(Status, &'static str),
}

impl Refusal {
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Kernel(errno) => match errno {
                Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP => Status::NoSuchFile,
                Errno::EPERM | Errno::EACCES | Errno::EROFS => Status::PermissionDenied,
                Errno::ENOSYS | Errno::EOPNOTSUPP => Status::Unsupported,
                _ => Status::Failure,
            },
            Self::EndOfFile => Status::EndOfFile,
            Self::Unsupported => Status::Unsupported,
            Self::Said(status, _) => *status,
        }
    }

    pub(super) const fn is_full_disk(&self) -> bool {
        matches!(self, Self::Kernel(Errno::ENOSPC | Errno::EDQUOT))
    }

    pub(super) fn message(&self) -> &'static str {
        match self {
            Self::Kernel(errno) => errno.desc(),
            Self::EndOfFile => "End of file",
            Self::Unsupported => "Operation unsupported",
            Self::Said(_, message) => message,
        }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Kernel(errno)
    }
}

impl From<rustix::io::Errno> for Refusal {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Kernel(Errno::from_raw(errno.raw_os_error()))
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Kernel(error.raw_os_error().map_or(Errno::EINVAL, Errno::from_raw))
    }
}
