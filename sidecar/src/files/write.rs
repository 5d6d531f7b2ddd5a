//! Content on its way into a file: in its place all at once, or into it.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat};
use nix::unistd::{UnlinkatFlags, fsync, unlinkat};
use sandbox_protocol::files::{FileKind, FilesRefusal, WriteQuery, WriteReply};
use sandbox_protocol::snapshot::Sha256;
use sha2::Digest as _;

use super::beneath::{Leaf, Place, Roots, reopen};
use super::change::make_parents;
use super::content::regular;
use super::entry::{etag, kind};
use super::error::FilesError;

/// Begins the name of a file that is being written.
pub const UNFINISHED: &str = ".sandbox-put-";
/// Of new files.
const MODE_DEFAULT: u32 = 0o644;
/// What a request may set, and what a file's successor takes over.
const MODE_BITS: u32 = 0o777;

/// What must hold of the file that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// There is none.
    Absent,
    /// There is one.
    Present,
    /// There is one of this `ETag`.
    Is(String),
}

/// Content on its way. Where it is dropped before [`Writing::finish`], a file that was to be replaced is as it was.
#[derive(Debug)]
pub struct Writing<'a> {
    file: File,
    at: At<'a>,
    written: u64,
    hash: sha2::Sha256,
    sync: bool,
}

#[derive(Debug)]
enum At<'a> {
    /// Beside the file whose place it will take.
    Beside { draft: Draft<'a>, condition: Condition, mode: Option<u32> },
    /// In the file, from here on.
    Offset { next: u64, created: bool },
    /// At the file's end.
    End { created: bool },
}

/// A file under a name of its own, which goes with it.
#[derive(Debug)]
struct Draft<'a> {
    leaf: Leaf<'a>,
    name: CString,
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // After it has taken its place, there is none of this name.
        unlinkat(&self.leaf.parent, self.name.as_c_str(), UnlinkatFlags::NoRemoveDir).ok();
    }
}

/// Opens what `query` names for writing.
///
/// # Errors
/// [`FilesError`]; nothing is changed, but for directories that were made on the way.
pub fn begin<'a>(roots: &'a Roots, query: &'a WriteQuery, condition: Condition) -> Result<Writing<'a>, FilesError> {
    let WriteQuery { path, offset, append, mode, parents, sync } = query;
    let mode = mode.map(|mode| mode.0);
    if mode.is_some_and(|mode| mode & !MODE_BITS != 0) || (offset.is_some() && *append) || path.0.ends_with(b"/") {
        return Err(FilesRefusal::BadPath.into());
    }
    let place = roots.place(path)?;
    if *parents {
        make_parents(&place.parent()?)?;
    }
    let (file, at) = if *append || offset.is_some() {
        in_place(&place, *offset, mode, &condition)?
    } else {
        beside(&place, condition, mode)?
    };
    Ok(Writing { file, at, written: 0, hash: sha2::Sha256::new(), sync: *sync })
}

fn beside<'a>(place: &Place<'a>, condition: Condition, mode: Option<u32>) -> Result<(File, At<'a>), FilesError> {
    let leaf = place.leaf()?;
    let there = there(&leaf)?;
    holds(&condition, there.as_ref())?;
    let name = format!("{UNFINISHED}{:016x}", rand::random::<u64>());
    let name = CString::new(name).map_err(|_| FilesRefusal::BadPath)?;
    let file = make(&leaf.parent, &name, 0o600).map_err(FilesError::of("make a file"))?;
    Ok((file, At::Beside { draft: Draft { leaf, name }, condition, mode }))
}

fn in_place<'a>(
    place: &Place<'a>,
    offset: Option<u64>,
    mode: Option<u32>,
    condition: &Condition,
) -> Result<(File, At<'a>), FilesError> {
    let how = if offset.is_some() { OFlag::O_WRONLY } else { OFlag::O_WRONLY | OFlag::O_APPEND };
    let open = FilesError::of("open the file");
    let (file, created) = match place.find() {
        Ok(handle) => {
            let stat = fstat(&handle).map_err(&open)?;
            regular(kind(&stat))?;
            holds(condition, Some(&stat))?;
            (File::from(reopen(handle.as_fd(), how).map_err(&open)?), false)
        }
        Err(FilesError::Refused(FilesRefusal::NoSuchFile)) => {
            holds(condition, None)?;
            let leaf = place.leaf()?;
            (make(&leaf.parent, &leaf.name, mode.unwrap_or(MODE_DEFAULT)).map_err(of_new)?, true)
        }
        Err(error) => return Err(error),
    };
    let bytes = file.metadata().map_err(FilesError::io("look at the file"))?.len();
    if offset.is_some_and(|offset| offset > bytes) {
        return Err(FilesRefusal::BeyondEnd.into());
    }
    if let (false, Some(mode)) = (created, mode) {
        fchmod(&file, Mode::from_bits_truncate(mode)).map_err(FilesError::of("set the file's mode"))?;
    }
    Ok((file, offset.map_or(At::End { created }, |next| At::Offset { next, created })))
}

/// A link that leads nowhere is in the way of a file of its name.
fn of_new(errno: Errno) -> FilesError {
    match errno {
        Errno::EEXIST => FilesRefusal::NoSuchFile.into(),
        errno => FilesError::of("make a file")(errno),
    }
}

fn make(parent: &OwnedFd, name: &CStr, mode: u32) -> Result<File, Errno> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(parent, name, flags, Mode::from_bits_truncate(mode)).map(File::from)
}

/// What the name stands for; what cannot be replaced by a file is refused.
fn there(leaf: &Leaf<'_>) -> Result<Option<FileStat>, FilesError> {
    match leaf.stat() {
        Ok(stat) => match kind(&stat) {
            FileKind::File | FileKind::Symlink => Ok(Some(stat)),
            kind @ (FileKind::Directory | FileKind::Other) => regular(kind).map(|()| None),
        },
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(FilesError::of("look at the file")(errno)),
    }
}

fn holds(condition: &Condition, there: Option<&FileStat>) -> Result<(), FilesError> {
    let holds = match condition {
        Condition::Always => true,
        Condition::Absent => there.is_none(),
        Condition::Present => there.is_some(),
        Condition::Is(expected) => there.is_some_and(|stat| etag(stat) == *expected),
    };
    if holds { Ok(()) } else { Err(FilesRefusal::Changed.into()) }
}

impl Writing<'_> {
    /// Writes what comes next.
    ///
    /// # Errors
    /// [`FilesError`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        let write = FilesError::io("write the file");
        match &mut self.at {
            At::Beside { .. } | At::End { .. } => self.file.write_all(bytes).map_err(write)?,
            At::Offset { next, .. } => {
                self.file.write_all_at(bytes, *next).map_err(write)?;
                *next += bytes.len() as u64;
            }
        }
        self.hash.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Puts what was written in its place.
    ///
    /// # Errors
    /// [`FilesError`].
    pub fn finish(self) -> Result<WriteReply, FilesError> {
        let Self { file, at, written, hash, sync } = self;
        let created = match at {
            At::Offset { created, .. } | At::End { created } => {
                synced(sync, &file)?;
                created
            }
            At::Beside { draft, condition, mode } => {
                let there = there(&draft.leaf)?;
                holds(&condition, there.as_ref())?;
                let own = there.filter(|stat| kind(stat) == FileKind::File).map(|stat| stat.st_mode & MODE_BITS);
                let mode = Mode::from_bits_truncate(mode.or(own).unwrap_or(MODE_DEFAULT));
                fchmod(&file, mode).map_err(FilesError::of("set the file's mode"))?;
                synced(sync, &file)?;
                replace(&draft, &condition)?;
                if sync {
                    let directory = reopen(draft.leaf.parent.as_fd(), OFlag::O_RDONLY | OFlag::O_DIRECTORY);
                    directory.and_then(fsync).map_err(FilesError::of("write the directory to disk"))?;
                }
                there.is_none()
            }
        };
        let stat = fstat(&file).map_err(FilesError::of("look at the file"))?;
        let bytes = u64::try_from(stat.st_size).unwrap_or_default();
        Ok(WriteReply { bytes, written, sha256: Sha256(hash.finalize().into()), etag: etag(&stat), created })
    }
}

fn synced(sync: bool, file: &File) -> Result<(), FilesError> {
    if sync { fsync(file).map_err(FilesError::of("write the file to disk")) } else { Ok(()) }
}

fn replace(draft: &Draft<'_>, condition: &Condition) -> Result<(), FilesError> {
    let Draft { leaf: Leaf { parent, name, .. }, name: own } = draft;
    let (from, to) = (own.as_c_str(), name.as_c_str());
    match condition {
        Condition::Absent => match renameat2(parent, from, parent, to, RenameFlags::RENAME_NOREPLACE) {
            Err(Errno::EEXIST) => Err(FilesRefusal::Changed.into()),
            renamed => renamed.map_err(FilesError::of("replace the file")),
        },
        Condition::Always | Condition::Present | Condition::Is(_) => {
            renameat(parent, from, parent, to).map_err(FilesError::of("replace the file"))
        }
    }
}
