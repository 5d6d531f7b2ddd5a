//! The content of a file, to be read.

use std::fs::File;
use std::os::fd::AsFd as _;

use nix::fcntl::OFlag;
use nix::sys::stat::fstat;
use sandbox_protocol::files::{FileKind, FilesRefusal};

use super::beneath::{Place, reopen};
use super::entry::{etag, kind};
use super::error::FilesError;

/// A file that is open for reading.
#[derive(Debug)]
pub struct Content {
    /// The file.
    pub file: File,
    /// Its size when it was opened.
    pub bytes: u64,
    /// Its `ETag` then.
    pub etag: String,
}

/// Opens what `place` leads to. Anything but a regular file is refused before it is opened, since opening alone has
/// effects on a fifo or a device.
///
/// # Errors
/// [`FilesError`].
pub fn content(place: &Place<'_>) -> Result<Content, FilesError> {
    let handle = place.find()?;
    let stat = fstat(&handle).map_err(FilesError::of("look at the file"))?;
    regular(kind(&stat))?;
    let file = reopen(handle.as_fd(), OFlag::O_RDONLY).map_err(FilesError::of("open the file"))?;
    Ok(Content { file: file.into(), bytes: u64::try_from(stat.st_size).unwrap_or_default(), etag: etag(&stat) })
}

/// Refuses what has no content.
pub(super) fn regular(kind: FileKind) -> Result<(), FilesError> {
    match kind {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(FilesRefusal::IsDirectory.into()),
        FileKind::Symlink | FileKind::Other => Err(FilesRefusal::NotRegular.into()),
    }
}
