//! Why an archive is not made or not taken.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use sandbox_protocol::snapshot::{ArchiveFault, SnapshotRefusal};

use crate::limits::ERROR_PATH_CHARS_MAX;

/// Everything that ends an export, a restore or a recovery before its end.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive is refused.
    #[error("{fault}: {entry}")]
    Refused {
        /// Why.
        fault: ArchiveFault,
        /// At which entry; empty where it is at none.
        entry: String,
    },
    /// What came has another hash than was named.
    #[error("the body does not have this hash")]
    HashMismatch,
    /// No room for more files or bytes.
    #[error("the disk is full")]
    DiskFull,
    /// A root is not there, or closed to the agent.
    #[error("{} cannot be entered: {}", path.display(), errno.desc())]
    Closed {
        /// The root's directory.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// More entries than a restore would take.
    #[error("more files than an archive holds")]
    TooManyEntries,
    /// The archive cannot be read from where it comes.
    #[error("the archive does not come")]
    Read(#[source] io::Error),
    /// The archive cannot be written to where it goes.
    #[error("the archive does not go out")]
    Write(#[source] io::Error),
    /// A file system operation failed.
    #[error("cannot {operation}")]
    Disk {
        /// What was to be done.
        operation: &'static str,
        /// Why it was not.
        #[source]
        errno: Errno,
    },
}

impl From<ArchiveFault> for ArchiveError {
    fn from(fault: ArchiveFault) -> Self {
        Self::Refused { fault, entry: String::new() }
    }
}

impl ArchiveError {
    /// Turns an error number into the error of `operation`, or into the refusal that it stands for.
    pub(super) fn of(operation: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| match errno {
            Errno::ENOSPC | Errno::EDQUOT => Self::DiskFull,
            Errno::EFBIG => ArchiveFault::TooManyBytes.into(),
            errno => Self::Disk { operation, errno },
        }
    }

    /// The same for what the standard library reports.
    pub(super) fn io(operation: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::of(operation)(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }

    /// What reading a compressed stream failed with: its source has an error number, the decoder has none.
    pub(super) fn of_stream(error: io::Error) -> Self {
        match (error.raw_os_error(), error.kind()) {
            (Some(_), _) => Self::Read(error),
            (None, io::ErrorKind::UnexpectedEof) => ArchiveFault::Truncated.into(),
            (None, _) => ArchiveFault::Compression.into(),
        }
    }

    /// Names the entry at which it happened.
    pub(super) fn at(self, path: &[u8]) -> Self {
        match self {
            Self::Refused { fault, entry } if entry.is_empty() => {
                let text = String::from_utf8_lossy(path);
                Self::Refused { fault, entry: text.escape_debug().take(ERROR_PATH_CHARS_MAX).collect() }
            }
            error => error,
        }
    }

    /// The wire's word for it; `None` for a defect.
    pub fn refusal(&self) -> Option<SnapshotRefusal> {
        match self {
            Self::Refused { .. } => Some(SnapshotRefusal::ArchiveRefused),
            Self::HashMismatch => Some(SnapshotRefusal::HashMismatch),
            Self::DiskFull => Some(SnapshotRefusal::DiskFull),
            Self::Closed { .. } | Self::TooManyEntries => Some(SnapshotRefusal::Unavailable),
            Self::Read(_) => Some(SnapshotRefusal::CutOff),
            Self::Write(_) | Self::Disk { .. } => None,
        }
    }

    /// The fault of a refused archive.
    pub fn fault(&self) -> Option<ArchiveFault> {
        match self {
            Self::Refused { fault, .. } => Some(*fault),
            _ => None,
        }
    }
}
