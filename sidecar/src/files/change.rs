//! Directories made, files moved and removed.

use std::os::fd::AsFd as _;

use nix::errno::Errno;
use nix::fcntl::{RenameFlags, renameat, renameat2};
use nix::sys::stat::{Mode, SFlag, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use sandbox_protocol::files::{FileKind, FilesRefusal, MkdirBody, MoveBody, RemoveReply};

use super::beneath::{Leaf, Place, Roots};
use super::entry::kind;
use super::error::FilesError;
use crate::archive::clear::{Cleared, clear_some};
use crate::archive::disk::type_of;
use crate::limits::{FILES_PARENTS_MAX, FILES_REMOVED_MAX};

/// Of new directories.
const MODE_DEFAULT: u32 = 0o755;
/// What a request may set.
const MODE_BITS: u32 = 0o777;

/// Makes a directory.
///
/// # Errors
/// [`FilesError`].
pub fn mkdir(roots: &Roots, body: &MkdirBody) -> Result<(), FilesError> {
    let mode = body.mode.map_or(MODE_DEFAULT, |mode| mode.0);
    if mode & !MODE_BITS != 0 {
        return Err(FilesRefusal::BadPath.into());
    }
    let place = roots.place(&body.path)?;
    if place.root_path().is_some() {
        return if body.parents { Ok(()) } else { Err(FilesRefusal::Exists.into()) };
    }
    if body.parents {
        make_parents(&place.parent()?)?;
    }
    match make(&place.leaf()?, mode) {
        Err(FilesError::Refused(FilesRefusal::Exists)) if body.parents => {
            must_be_directory(&place, FilesRefusal::Exists)
        }
        made => made,
    }
}

/// Makes the directory `place` and those that are missing on the way to it.
pub(super) fn make_parents(place: &Place<'_>) -> Result<(), FilesError> {
    let mut missing = Vec::new();
    let mut at = *place;
    loop {
        match must_be_directory(&at, FilesRefusal::NotDirectory) {
            Ok(()) => break,
            Err(FilesError::Refused(FilesRefusal::NoSuchFile)) => {}
            Err(error) => return Err(error),
        }
        if missing.len() == FILES_PARENTS_MAX {
            return Err(FilesRefusal::NameTooLong.into());
        }
        missing.push(at);
        at = at.parent()?;
    }
    while let Some(place) = missing.pop() {
        match make(&place.leaf()?, MODE_DEFAULT) {
            Ok(()) | Err(FilesError::Refused(FilesRefusal::Exists)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn make(leaf: &Leaf<'_>, mode: u32) -> Result<(), FilesError> {
    let mode = Mode::from_bits_truncate(mode);
    mkdirat(&leaf.parent, leaf.name.as_c_str(), mode).map_err(FilesError::of("make a directory"))
}

fn must_be_directory(place: &Place<'_>, otherwise: FilesRefusal) -> Result<(), FilesError> {
    let stat = fstat(place.find()?).map_err(FilesError::of("look at the directory"))?;
    if type_of(&stat) == SFlag::S_IFDIR { Ok(()) } else { Err(otherwise.into()) }
}

/// Moves a file or directory; a link itself.
///
/// # Errors
/// [`FilesError`].
pub fn rename(roots: &Roots, body: &MoveBody) -> Result<(), FilesError> {
    let (from, to) = (roots.place(&body.from)?, roots.place(&body.to)?);
    let (from, to) = (from.leaf()?, to.leaf()?);
    let stat = from.own()?;
    if to.slash && type_of(&stat) != SFlag::S_IFDIR {
        return Err(FilesRefusal::NotDirectory.into());
    }
    match to.own() {
        Ok(_) | Err(FilesError::Refused(FilesRefusal::NoSuchFile)) => {}
        Err(error) => return Err(error),
    }
    let (old, new) = (from.name.as_c_str(), to.name.as_c_str());
    let moved = if body.overwrite {
        renameat(&from.parent, old, &to.parent, new)
    } else {
        renameat2(&from.parent, old, &to.parent, new, RenameFlags::RENAME_NOREPLACE)
    };
    moved.map_err(|errno| match errno {
        Errno::EXDEV | Errno::EINVAL => FilesRefusal::CannotMove.into(),
        errno => FilesError::of("move the file")(errno),
    })
}

/// Removes a file, a link, an empty directory, or with `recursive` a directory and all that is in it.
///
/// # Errors
/// [`FilesError`]; [`FilesRefusal::Unfinished`] where there is more in the directory than one request removes.
pub fn remove(place: &Place<'_>, recursive: bool) -> Result<RemoveReply, FilesError> {
    let remove = FilesError::of("remove the file");
    let leaf = place.leaf()?;
    let stat = leaf.own()?;
    let name = leaf.name.as_c_str();
    match (kind(&stat), recursive) {
        (FileKind::Directory, true) => {
            let Cleared { removed, gone } = clear_some(leaf.parent.as_fd(), name, FILES_REMOVED_MAX)
                .map_err(FilesError::of("remove the directory"))?;
            if gone { Ok(RemoveReply { removed }) } else { Err(FilesRefusal::Unfinished.into()) }
        }
        (FileKind::Directory, false) => match unlinkat(&leaf.parent, name, UnlinkatFlags::RemoveDir) {
            // What the standard allows a file system to answer for a directory that is not empty.
            Err(Errno::EEXIST) => Err(FilesRefusal::NotEmpty.into()),
            removed => removed.map(|()| RemoveReply { removed: 1 }).map_err(remove),
        },
        (FileKind::File | FileKind::Symlink | FileKind::Other, _) => {
            unlinkat(&leaf.parent, name, UnlinkatFlags::NoRemoveDir).map_err(remove)?;
            Ok(RemoveReply { removed: 1 })
        }
    }
}
