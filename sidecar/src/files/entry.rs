//! What is known of a file, and pages of a directory.

use std::collections::BinaryHeap;
use std::ffi::CString;
use std::fmt::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstat, fstatat};
use sandbox_protocol::files::{FileEntry, FileKind, FileMode, FilePath, FilesRefusal, ListReply};
use sandbox_protocol::limits::{FILES_PAGE_ENTRIES_DEFAULT, FILES_PAGE_ENTRIES_MAX};

use super::beneath::Place;
use super::error::FilesError;
use crate::archive::disk::{names, type_of};

/// Permissions of a file, without its type.
const PERMISSIONS: u32 = 0o7777;
const MS_PER_S: i64 = 1_000;
const NS_PER_MS: i64 = 1_000_000;

/// What is known of what `place` names, itself.
///
/// # Errors
/// [`FilesError`].
pub fn stat(place: &Place<'_>) -> Result<FileEntry, FilesError> {
    let look = FilesError::of("look at the file");
    if let Some(path) = place.root_path() {
        let root = fstat(place.find()?).map_err(look)?;
        return Ok(entry(FilePath(path.as_os_str().as_bytes().to_vec()), &root, None));
    }
    let leaf = place.leaf()?;
    let stat = leaf.stat().map_err(&look)?;
    if leaf.slash && type_of(&stat) != SFlag::S_IFDIR {
        return Err(FilesRefusal::NotDirectory.into());
    }
    Ok(entry(FilePath(leaf.name.to_bytes().to_vec()), &stat, target(&leaf.parent, &leaf.name, &stat)))
}

/// The page of the directory `place` after the name `cursor`.
///
/// # Errors
/// [`FilesError`].
pub fn list(place: &Place<'_>, limit: Option<u64>, cursor: Option<&FilePath>) -> Result<ListReply, FilesError> {
    let read = FilesError::of("read the directory");
    let limit = limit.unwrap_or(FILES_PAGE_ENTRIES_DEFAULT).clamp(1, FILES_PAGE_ENTRIES_MAX);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let directory = place.find()?;
    // The first names behind the cursor, the last of them on top: never more than a page and one.
    let mut page: BinaryHeap<CString> = BinaryHeap::new();
    for name in names(directory.as_fd()).map_err(&read)? {
        let name = name.map_err(&read)?;
        if cursor.is_none_or(|cursor| name.to_bytes() > &cursor.0[..]) {
            page.push(name);
        }
        if page.len() > limit + 1 {
            page.pop();
        }
    }
    let more = page.len() > limit;
    let mut page = page.into_sorted_vec();
    page.truncate(limit);
    let next = page.last().filter(|_| more).map(|name| FilePath(name.to_bytes().to_vec()));
    let mut entries = Vec::with_capacity(page.len());
    for name in page {
        match fstatat(&directory, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let target = target(&directory, &name, &stat);
                entries.push(entry(FilePath(name.into_bytes()), &stat, target));
            }
            // Gone since.
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(FilesError::of("look at a file")(errno)),
        }
    }
    Ok(ListReply { entries, next })
}

/// What a file is by its type.
pub(super) fn kind(stat: &FileStat) -> FileKind {
    match type_of(stat) {
        SFlag::S_IFREG => FileKind::File,
        SFlag::S_IFDIR => FileKind::Directory,
        SFlag::S_IFLNK => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

/// A text that is another one after every change of the file's content that the kernel's clock tells apart.
pub(super) fn etag(stat: &FileStat) -> String {
    let mut text = String::from("\"");
    let numbers = [stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec];
    write!(text, "{:x}", stat.st_ino).and_then(|()| numbers.iter().try_for_each(|n| write!(text, "-{n:x}"))).ok();
    text.push('"');
    text
}

fn target(directory: impl std::os::fd::AsFd, name: &CString, stat: &FileStat) -> Option<FilePath> {
    let link = type_of(stat) == SFlag::S_IFLNK;
    link.then(|| readlinkat(directory, name.as_c_str()).ok().map(|target| FilePath(target.into_vec()))).flatten()
}

fn entry(name: FilePath, stat: &FileStat, target: Option<FilePath>) -> FileEntry {
    let kind = kind(stat);
    FileEntry {
        name,
        kind,
        bytes: u64::try_from(stat.st_size).unwrap_or_default(),
        mode: FileMode(stat.st_mode & PERMISSIONS),
        uid: stat.st_uid,
        gid: stat.st_gid,
        links: stat.st_nlink,
        modified_ms: stat.st_mtime.saturating_mul(MS_PER_S).saturating_add(stat.st_mtime_nsec / NS_PER_MS),
        etag: (kind == FileKind::File).then(|| etag(stat)),
        target,
    }
}
