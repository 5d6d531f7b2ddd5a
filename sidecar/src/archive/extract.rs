//! Unpacks an archive below the staging directories, and nowhere else.
//!
//! Every name is taken from an open directory and never followed, and nothing that an archive has made is ever opened,
//! replaced or removed by a later entry of it, but for directories, which are entered. So whatever links an archive
//! holds, nothing is written through them.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::libc::off_t;
use nix::sys::stat::{Mode, SFlag, UtimensatFlags, fchmod, fstat, fstatat, futimens, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{ftruncate, linkat, symlinkat};
use sandbox_protocol::snapshot::{ArchiveFault, RestoreReply};

use super::disk::{is_no_directory, make_directory, mode_of, modified, open_directory, open_up, type_of};
use super::error::ArchiveError;
use super::place::{Place, Root};
use super::read::{Archive, Entry, Kind};
use super::sparse::Segment;
use super::stage::Stages;
use crate::limits::{ARCHIVE_BUFFER_BYTES, SYMLINK_BYTES_MAX};

/// A file that is not there yet.
const NEW_FILE: OFlag =
    OFlag::O_WRONLY.union(OFlag::O_CREAT).union(OFlag::O_EXCL).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
/// Permissions without those that lend their owner's rights to others.
const MODE_BITS: u32 = 0o1777;
/// Mode of directories that an archive implies and does not hold.
const IMPLIED_MODE: u32 = 0o755;

/// Unpacks all of `archive`.
pub(super) fn extract<R: Read>(
    archive: &mut Archive<R>,
    stages: &mut Stages<'_>,
) -> Result<RestoreReply, ArchiveError> {
    let mut extractor = Extractor {
        archive,
        stages,
        descent: Descent::default(),
        reply: RestoreReply::default(),
        buffer: vec![0; ARCHIVE_BUFFER_BYTES],
    };
    while let Some(entry) = extractor.archive.next()? {
        extractor.entry(&entry).map_err(|error| error.at(&entry.path))?;
        extractor.reply.entries += 1;
    }
    extractor.descent.leave_all()?;
    Ok(RestoreReply { skipped: extractor.archive.skipped(), ..extractor.reply })
}

struct Extractor<'archive, 'roots, R> {
    archive: &'archive mut Archive<R>,
    stages: &'archive mut Stages<'roots>,
    descent: Descent,
    reply: RestoreReply,
    buffer: Vec<u8>,
}

impl<R: Read> Extractor<'_, '_, R> {
    fn entry(&mut self, entry: &Entry) -> Result<(), ArchiveError> {
        let Place { root, names } = Place::parse(&entry.path)?;
        let Some((name, parents)) = names.split_last() else { return self.root(root, entry) };
        let stages = &mut *self.stages;
        self.descent.enter(root, parents, || stages.new_content(root))?;
        let after = After::of(entry);
        match &entry.kind {
            Kind::Directory => self.descent.make(name, after),
            Kind::Symlink { target } => make_symlink(self.descent.deepest()?, name, target, after),
            Kind::HardLink { target } => self.hard_link(root, name, target),
            Kind::File { size } => {
                let file = make_file(self.descent.deepest()?, name)?;
                self.write(&file, &[Segment { offset: 0, length: *size }])?;
                after.apply(&file)
            }
            Kind::Sparse { size, segments } => {
                let file = make_file(self.descent.deepest()?, name)?;
                self.write(&file, segments)?;
                let size = off_t::try_from(*size).map_err(|_| ArchiveFault::SparseMap)?;
                ftruncate(&file, size).map_err(ArchiveError::of("write a file"))?;
                after.apply(&file)
            }
        }
    }

    /// The root itself: its directory is there and stays as it is.
    fn root(&mut self, root: Root, entry: &Entry) -> Result<(), ArchiveError> {
        if entry.kind != Kind::Directory {
            return Err(ArchiveFault::OutsideRoots.into());
        }
        self.stages.new_content(root).map(drop)
    }

    fn write(&mut self, file: &File, segments: &[Segment]) -> Result<(), ArchiveError> {
        for segment in segments {
            let (mut offset, end) = (segment.offset, segment.offset + segment.length);
            while offset < end {
                let most = usize::try_from(end - offset).unwrap_or(usize::MAX).min(self.buffer.len());
                let bytes = self.archive.data(&mut self.buffer[..most])?;
                file.write_all_at(&self.buffer[..bytes], offset).map_err(ArchiveError::io("write a file"))?;
                offset += bytes as u64;
                self.reply.bytes += bytes as u64;
            }
        }
        Ok(())
    }

    /// A second name of a file that the archive has made before.
    fn hard_link(&mut self, root: Root, name: &[u8], target: &[u8]) -> Result<(), ArchiveError> {
        let place = Place::parse(target).map_err(|fault| match fault {
            ArchiveFault::BadName | ArchiveFault::NameTooLong => fault,
            _ => ArchiveFault::LinkOutside,
        })?;
        let Some((first, parents)) = place.names.split_last().filter(|_| place.root == root) else {
            return Err(ArchiveFault::LinkOutside.into());
        };
        let mut directory = self.stages.new_content(root)?;
        for parent in parents {
            directory = open_directory(&directory, parent).map_err(of_target)?;
        }
        let stat = fstatat(&directory, *first, AtFlags::AT_SYMLINK_NOFOLLOW).map_err(of_target)?;
        if type_of(&stat) != SFlag::S_IFREG {
            return Err(ArchiveFault::LinkMissing.into());
        }
        linkat(&directory, *first, self.descent.deepest()?, name, AtFlags::empty()).map_err(of_new("make a hard link"))
    }
}

/// Of the way to a hard link's target.
fn of_target(errno: Errno) -> ArchiveError {
    match errno {
        Errno::ENOENT => ArchiveFault::LinkMissing.into(),
        errno if is_no_directory(errno) => ArchiveFault::ThroughLink.into(),
        errno => ArchiveError::of("find a hard link's target")(errno),
    }
}

/// Of making something that must not be there yet.
fn of_new(operation: &'static str) -> impl Fn(Errno) -> ArchiveError {
    move |errno| match errno {
        Errno::EEXIST => ArchiveFault::Duplicate.into(),
        errno => ArchiveError::of(operation)(errno),
    }
}

fn make_file(parent: BorrowedFd<'_>, name: &[u8]) -> Result<File, ArchiveError> {
    let file = openat(parent, name, NEW_FILE, Mode::S_IRUSR | Mode::S_IWUSR).map_err(of_new("make a file"))?;
    Ok(File::from(file))
}

fn make_symlink(parent: BorrowedFd<'_>, name: &[u8], target: &[u8], after: After) -> Result<(), ArchiveError> {
    if target.is_empty() || target.contains(&0) {
        return Err(ArchiveFault::BadName.into());
    }
    if target.len() > SYMLINK_BYTES_MAX {
        return Err(ArchiveFault::NameTooLong.into());
    }
    symlinkat(target, parent, name).map_err(of_new("make a link"))?;
    utimensat(parent, name, &TimeSpec::UTIME_OMIT, &after.modified, UtimensatFlags::NoFollowSymlink)
        .map_err(ArchiveError::of("set a link's time"))
}

/// What a file or directory gets when nothing more is written to it.
#[derive(Debug, Clone, Copy)]
struct After {
    mode: Mode,
    modified: TimeSpec,
}

impl After {
    fn of(entry: &Entry) -> Self {
        let mode = Mode::from_bits_truncate(entry.mode & MODE_BITS);
        Self { mode, modified: TimeSpec::new(entry.mtime, 0) }
    }

    fn apply(&self, file: impl AsFd) -> Result<(), ArchiveError> {
        fchmod(file.as_fd(), self.mode).map_err(ArchiveError::of("set a file's mode"))?;
        futimens(file, &TimeSpec::UTIME_OMIT, &self.modified).map_err(ArchiveError::of("set a file's time"))
    }
}

/// The directories on the way to the entry at hand, open. What follows in the same place finds them so.
#[derive(Default)]
struct Descent {
    top: Option<(Root, OwnedFd)>,
    levels: Vec<Level>,
}

struct Level {
    name: Vec<u8>,
    directory: OwnedFd,
    after: After,
}

impl Descent {
    /// Goes to the directory `names` of `root`; makes those that are missing.
    fn enter(
        &mut self,
        root: Root,
        names: &[&[u8]],
        top: impl FnOnce() -> Result<OwnedFd, ArchiveError>,
    ) -> Result<(), ArchiveError> {
        if self.top.as_ref().is_none_or(|(open, _)| *open != root) {
            self.leave_all()?;
            self.top = Some((root, top()?));
        }
        let same = self.levels.iter().zip(names).take_while(|(level, name)| level.name == **name).count();
        self.leave_to(same)?;
        names[same..].iter().try_for_each(|name| self.go(name))
    }

    /// The directory that it is in.
    fn deepest(&self) -> Result<BorrowedFd<'_>, ArchiveError> {
        let top = self.top.as_ref().map(|(_, top)| top);
        let deepest = self.levels.last().map(|level| &level.directory).or(top);
        deepest.map(AsFd::as_fd).ok_or_else(|| ArchiveFault::OutsideRoots.into())
    }

    /// Makes a directory and goes into it.
    fn make(&mut self, name: &[u8], after: After) -> Result<(), ArchiveError> {
        let directory = make_directory(self.deepest()?, name).map_err(of_new("make a directory"))?;
        self.levels.push(Level { name: name.to_vec(), directory, after });
        Ok(())
    }

    fn go(&mut self, name: &[u8]) -> Result<(), ArchiveError> {
        let directory = match open_directory(self.deepest()?, name) {
            Ok(directory) => directory,
            Err(Errno::ENOENT) => {
                let mode = Mode::from_bits_truncate(IMPLIED_MODE);
                return self.make(name, After { mode, modified: TimeSpec::UTIME_NOW });
            }
            Err(errno) if is_no_directory(errno) => return Err(ArchiveFault::ThroughLink.into()),
            Err(errno) => return Err(ArchiveError::of("enter a directory")(errno)),
        };
        let enter = ArchiveError::of("enter a directory");
        let stat = fstat(&directory).map_err(&enter)?;
        open_up(&directory, &stat).map_err(&enter)?;
        let after = After { mode: mode_of(&stat), modified: modified(&stat) };
        self.levels.push(Level { name: name.to_vec(), directory, after });
        Ok(())
    }

    fn leave_to(&mut self, depth: usize) -> Result<(), ArchiveError> {
        while self.levels.len() > depth {
            if let Some(level) = self.levels.pop() {
                level.after.apply(&level.directory)?;
            }
        }
        Ok(())
    }

    fn leave_all(&mut self) -> Result<(), ArchiveError> {
        self.leave_to(0)
    }
}
