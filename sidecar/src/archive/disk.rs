//! Files by directory and name, never by path: no step of it follows a link.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::dir::{Dir, OwningIter};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, mkdirat};
use nix::sys::time::TimeSpec;

/// Of a directory: listed and searched, not followed where it is a link.
const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// All that the owner can do with a directory.
pub(super) const OWNER_ALL: Mode = Mode::S_IRWXU;

/// Opens the directory `name` of `parent`.
pub(crate) fn open_directory(parent: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(parent, name, DIRECTORY, Mode::empty())
}

/// Makes the directory `name` of `parent`, for its owner alone, and opens it.
pub(super) fn make_directory(parent: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    mkdirat(parent.as_fd(), name, OWNER_ALL)?;
    open_directory(parent, name)
}

/// Whether `errno` says that a name stands for something other than a directory.
pub(super) fn is_no_directory(errno: Errno) -> bool {
    matches!(errno, Errno::ELOOP | Errno::ENOTDIR)
}

/// Lets the owner do everything with the directory `file`, where its mode does not already.
pub(super) fn open_up(file: impl AsFd, stat: &FileStat) -> Result<(), Errno> {
    let mode = mode_of(stat);
    if mode.contains(OWNER_ALL) { Ok(()) } else { fchmod(file, mode | OWNER_ALL) }
}

/// The names in a directory, in no order, each once for as long as nothing is added.
pub(crate) fn names(directory: BorrowedFd<'_>) -> Result<Names, Errno> {
    // A description of its own: it has a place of its own in the list.
    Ok(Names(Dir::from_fd(open_directory(directory, b".")?)?.into_iter()))
}

/// See [`names`].
pub(crate) struct Names(OwningIter);

impl Iterator for Names {
    type Item = Result<CString, Errno>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.next()? {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Ok(entry) => return Some(Ok(entry.file_name().to_owned())),
                Err(errno) => return Some(Err(errno)),
            }
        }
    }
}

/// The type of a file.
pub(crate) fn type_of(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode & libc::S_IFMT)
}

/// The permissions of a file.
pub(super) fn mode_of(stat: &FileStat) -> Mode {
    Mode::from_bits_truncate(stat.st_mode)
}

/// When a file was changed last.
pub(super) fn modified(stat: &FileStat) -> TimeSpec {
    TimeSpec::new(stat.st_mtime, stat.st_mtime_nsec)
}
