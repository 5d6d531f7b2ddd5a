//! Why something is not done with a file. Status codes are the protocol's, words for the caller `http::worker::error`'s.

use nix::errno::Errno;
use sandbox_protocol::files::FilesRefusal;

/// Everything that keeps a request about files from its answer, where it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    /// It is refused as it stands.
    #[error("{0}")]
    Refused(FilesRefusal),
    /// The file would be larger than a file may be.
    #[error("the file would be too large")]
    TooLarge,
    /// The process, or the sandbox, has no descriptors or memory left for it.
    #[error("no room for another open file")]
    NoRoom,
    /// The kernel refused for a reason that is not foreseen.
    #[error("cannot {operation}")]
    Failed {
        /// What was to be done.
        operation: &'static str,
        /// Why it was not.
        #[source]
        errno: Errno,
    },
}

impl From<FilesRefusal> for FilesError {
    fn from(refusal: FilesRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl FilesError {
    /// Turns an error number into the error of `operation`, or into the refusal that it stands for.
    pub(super) fn of(operation: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| match errno {
            Errno::ENOENT => FilesRefusal::NoSuchFile.into(),
            Errno::EEXIST => FilesRefusal::Exists.into(),
            Errno::EISDIR => FilesRefusal::IsDirectory.into(),
            Errno::ENOTDIR => FilesRefusal::NotDirectory.into(),
            Errno::ENOTEMPTY => FilesRefusal::NotEmpty.into(),
            Errno::ELOOP => FilesRefusal::TooManyLinks.into(),
            Errno::ENAMETOOLONG => FilesRefusal::NameTooLong.into(),
            Errno::EACCES | Errno::EPERM | Errno::EROFS | Errno::ETXTBSY => FilesRefusal::Denied.into(),
            Errno::ENOSPC | Errno::EDQUOT => FilesRefusal::DiskFull.into(),
            Errno::EFBIG => Self::TooLarge,
            Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM | Errno::EAGAIN => Self::NoRoom,
            errno => Self::Failed { operation, errno },
        }
    }

    /// The same for what the standard library reports.
    pub(super) fn io(operation: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::of(operation)(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }
}
