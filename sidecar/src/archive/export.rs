//! Walks a root and writes what it finds. Runs beside the agent's processes, which may change everything meanwhile:
//! what a header has promised is kept whatever becomes of its file.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use sandbox_protocol::snapshot::ExportReport;

use super::disk::{modified, names, open_directory, type_of};
use super::error::ArchiveError;
use super::place::{Root, STAGING};
use super::sparse::{self, Segment};
use super::write::{Attributes, Writer};
use crate::limits::{
    ARCHIVE_BUFFER_BYTES, ARCHIVE_DEPTH_MAX, ARCHIVE_PATH_BYTES_MAX, HARD_LINK_PATH_BYTES_MAX, SPARSE_FILE_BYTES_MAX,
};

/// Not followed where it is a link, not waited for where it is a fifo.
const FILE: OFlag = OFlag::O_RDONLY.union(OFlag::O_NOFOLLOW).union(OFlag::O_NONBLOCK).union(OFlag::O_CLOEXEC);
const ROOT: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// An archive being made.
pub(super) struct Exporter<W> {
    out: Writer<W>,
    report: ExportReport,
    links: Links,
    /// Of the entry at hand, in the archive.
    path: Vec<u8>,
    buffer: Vec<u8>,
}

impl<W: Write> Exporter<W> {
    pub(super) fn new(out: W) -> Self {
        let buffer = vec![0; ARCHIVE_BUFFER_BYTES];
        let (report, links) = (ExportReport::default(), Links::default());
        Self { out: Writer::new(out), report, links, path: Vec::new(), buffer }
    }

    /// Adds the directory `from` as the folder of `root`.
    pub(super) fn root(&mut self, root: Root, from: &Path) -> Result<(), ArchiveError> {
        let closed = |errno| ArchiveError::Closed { path: from.to_owned(), errno };
        let directory = open(from, ROOT, Mode::empty()).map_err(closed)?;
        let stat = fstat(&directory).map_err(closed)?;
        self.links = Links::default();
        self.path = root.folder().as_bytes().to_vec();
        self.directory(directory, &stat, 0)
    }

    /// Ends the archive.
    pub(super) fn finish(self) -> Result<(W, ExportReport), ArchiveError> {
        Ok((self.out.finish()?, self.report))
    }

    fn directory(&mut self, directory: OwnedFd, stat: &FileStat, depth: usize) -> Result<(), ArchiveError> {
        self.path.push(b'/');
        self.out.entry(&self.path, attributes(b'5', stat), 0)?;
        self.report.entries += 1;
        let length = self.path.len();
        let Some(listed) = self.readable(names(directory.as_fd())) else { return Ok(()) };
        for name in listed {
            let Some(name) = self.readable(name) else { break };
            if depth == 0 && name.to_bytes() == STAGING.as_bytes() {
                continue;
            }
            self.path.truncate(length);
            self.path.extend_from_slice(name.to_bytes());
            self.entry(directory.as_fd(), name.to_bytes(), depth + 1)?;
        }
        Ok(())
    }

    fn entry(&mut self, parent: BorrowedFd<'_>, name: &[u8], depth: usize) -> Result<(), ArchiveError> {
        // A directory's path gets a slash more.
        if depth > ARCHIVE_DEPTH_MAX || self.path.len() >= ARCHIVE_PATH_BYTES_MAX {
            self.report.skipped += 1;
            return Ok(());
        }
        let Some(stat) = self.readable(fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)) else { return Ok(()) };
        match type_of(&stat) {
            SFlag::S_IFDIR => match self.readable(open_directory(parent, name)) {
                Some(directory) => self.directory(directory, &stat, depth),
                None => Ok(()),
            },
            SFlag::S_IFREG => self.file(parent, name, &stat),
            SFlag::S_IFLNK => self.symlink(parent, name, &stat),
            _ => {
                self.report.skipped += 1;
                Ok(())
            }
        }
    }

    fn symlink(&mut self, parent: BorrowedFd<'_>, name: &[u8], stat: &FileStat) -> Result<(), ArchiveError> {
        let Some(target) = self.readable(readlinkat(parent, name)) else { return Ok(()) };
        self.report.entries += 1;
        self.out.link(&self.path, &target.into_vec(), attributes(b'2', stat))
    }

    fn file(&mut self, parent: BorrowedFd<'_>, name: &[u8], stat: &FileStat) -> Result<(), ArchiveError> {
        if let Some(first) = self.links.find(stat) {
            self.report.entries += 1;
            return self.out.link(&self.path, first, attributes(b'1', stat));
        }
        let opened = openat(parent, name, FILE, Mode::empty()).and_then(|file| fstat(&file).map(|stat| (file, stat)));
        let Some((file, stat)) = self.readable(opened) else { return Ok(()) };
        let size = stat.st_size.unsigned_abs();
        if type_of(&stat) != SFlag::S_IFREG {
            self.report.changed += 1;
            return Ok(());
        }
        if size > SPARSE_FILE_BYTES_MAX {
            self.report.skipped += 1;
            return Ok(());
        }
        self.links.note(&stat, &self.path);
        self.report.entries += 1;
        self.content(&File::from(file), &stat, size)
    }

    fn content(&mut self, file: &File, stat: &FileStat, size: u64) -> Result<(), ArchiveError> {
        let has_holes = stat.st_blocks.unsigned_abs().saturating_mul(512) < size;
        let whole = [Segment { offset: 0, length: size }];
        let found = if has_holes { sparse::find(file, size) } else { None };
        match &found {
            Some(segments) => self.out.sparse(&self.path, attributes(b'S', stat), size, segments)?,
            None => self.out.entry(&self.path, attributes(b'0', stat), size)?,
        }
        let segments = found.as_deref().unwrap_or(&whole);
        let mut ending = Ending::Whole;
        for segment in segments {
            ending = ending.max(self.segment(file, *segment)?);
        }
        self.out.pad(sparse::stored(segments))?;
        let unchanged = fstat(file).is_ok_and(|now| now.st_size == stat.st_size && modified(&now) == modified(stat));
        match ending {
            Ending::Whole if unchanged => {}
            Ending::Whole | Ending::Short => self.report.changed += 1,
            Ending::Unreadable => self.report.unreadable += 1,
        }
        Ok(())
    }

    /// Writes a segment in its whole length: zeros from where the file has no more.
    fn segment(&mut self, file: &File, segment: Segment) -> Result<Ending, ArchiveError> {
        let Segment { mut offset, length } = segment;
        let end = offset + length;
        let mut ending = Ending::Whole;
        self.report.bytes += length;
        while offset < end {
            let most = usize::try_from(end - offset).unwrap_or(usize::MAX).min(self.buffer.len());
            let wanted = &mut self.buffer[..most];
            let mut bytes = 0;
            if ending == Ending::Whole {
                match file.read_at(wanted, offset) {
                    Ok(0) => ending = Ending::Short,
                    Ok(read) => bytes = read,
                    Err(_) => ending = Ending::Unreadable,
                }
            }
            if bytes == 0 {
                wanted.fill(0);
                bytes = most;
            }
            self.out.data(&self.buffer[..bytes])?;
            offset += bytes as u64;
        }
        Ok(ending)
    }

    /// What the agent can read; counts what it cannot, and what is not there any more.
    fn readable<T>(&mut self, found: Result<T, Errno>) -> Option<T> {
        match found {
            Ok(found) => return Some(found),
            Err(Errno::ENOENT | Errno::ELOOP | Errno::ENOTDIR | Errno::ESTALE) => self.report.changed += 1,
            Err(_) => self.report.unreadable += 1,
        }
        None
    }
}

/// How much of a file there was to read, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ending {
    Whole,
    Short,
    Unreadable,
}

fn attributes(kind: u8, stat: &FileStat) -> Attributes {
    Attributes {
        kind,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid.into(),
        gid: stat.st_gid.into(),
        mtime: u64::try_from(stat.st_mtime).unwrap_or(0),
    }
}

/// Files that have several names, by where they are: their first path in the archive. What is past its bound is
/// stored once for each name.
#[derive(Default)]
struct Links {
    first: HashMap<(u64, u64), Vec<u8>>,
    path_bytes: usize,
}

impl Links {
    fn find(&self, stat: &FileStat) -> Option<&[u8]> {
        if stat.st_nlink < 2 { None } else { self.first.get(&(stat.st_dev, stat.st_ino)).map(Vec::as_slice) }
    }

    fn note(&mut self, stat: &FileStat, path: &[u8]) {
        if stat.st_nlink > 1 && self.path_bytes + path.len() <= HARD_LINK_PATH_BYTES_MAX {
            self.path_bytes += path.len();
            self.first.insert((stat.st_dev, stat.st_ino), path.to_vec());
        }
    }
}
