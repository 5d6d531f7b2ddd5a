//! Puts what an archive held in the place of what was there.
//!
//! An archive is unpacked into `.sandbox-restore/new` of each root that it has: on the same file system as its goal,
//! which may be a mount point and so cannot be replaced itself. When all of it is there the swap begins: first the old
//! content of all roots goes to `.sandbox-restore/old`, then the new content of all roots takes its place, then
//! `.sandbox-restore` is removed. A mark in it tells how far the swap is, so that one that was broken off is brought to
//! its end later ([`recover`]); what has no mark was never complete and is removed.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstatat};
use nix::unistd::{geteuid, syncfs};
use sandbox_protocol::snapshot::ArchiveFault;

use super::clear::clear;
use super::disk::{OWNER_ALL, make_directory, mode_of, names, open_directory, type_of};
use super::error::ArchiveError;
use super::job::Roots;
use super::place::Root;

/// [`super::place::STAGING`] for the kernel.
const STAGING: &CStr = c".sandbox-restore";
const NEW: &CStr = c"new";
const OLD: &CStr = c"old";
const ROOT: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// How far a swap is. In this order the marks follow each other, in every root at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Everything is unpacked; old content may be on its way out.
    Emptying,
    /// All old content is out; new content may be on its way in.
    Filling,
    /// Nothing is left to do but to clear up.
    Done,
}

impl Mark {
    const ALL: [Self; 3] = [Self::Emptying, Self::Filling, Self::Done];

    const fn name(self) -> &'static CStr {
        match self {
            Self::Emptying => c"emptying",
            Self::Filling => c"filling",
            Self::Done => c"done",
        }
    }
}

/// The stages of an archive's roots, made as the archive is found to have them.
#[derive(Debug)]
pub(super) struct Stages<'roots> {
    roots: &'roots Roots,
    made: Vec<Stage>,
}

impl<'roots> Stages<'roots> {
    pub(super) fn new(roots: &'roots Roots) -> Self {
        Self { roots, made: Vec::new() }
    }

    /// Where the content of `root` is unpacked.
    pub(super) fn new_content(&mut self, root: Root) -> Result<OwnedFd, ArchiveError> {
        let at = match self.made.iter().position(|stage| stage.root == root) {
            Some(at) => at,
            None => {
                let path = self.roots.path(root).ok_or(ArchiveFault::OutsideRoots)?;
                self.made.push(Stage::make(root, path)?);
                self.made.len() - 1
            }
        };
        self.made[at].new.try_clone().map_err(ArchiveError::io("open the staging directory"))
    }

    /// Swaps the new content in, or leaves the old as it was.
    pub(super) fn commit(self) -> Result<(), ArchiveError> {
        for stage in &self.made {
            stage.sync()?;
        }
        let swapped = swap_or_undo(&self.made)?;
        self.made.iter().try_for_each(|stage| stage.mark(Mark::Done))?;
        match self.made.iter().try_for_each(Stage::clear) {
            // What cannot be cleared now, a file of another user's say, is tried again at the next start.
            Ok(()) | Err(_) => swapped,
        }
    }

    /// Removes what was unpacked.
    pub(super) fn discard(self) -> Result<(), ArchiveError> {
        self.made.iter().try_for_each(Stage::clear)
    }
}

/// Ends what an earlier process left: a swap that had begun goes through, anything less is removed.
pub(super) fn recover(roots: &Roots) -> Result<(), ArchiveError> {
    let mut stages = Vec::new();
    for root in Root::ALL {
        let Some(path) = roots.path(root) else { continue };
        stages.extend(Stage::left(root, path)?);
    }
    let is_at = |mark| stages.iter().any(|stage| stage.mark == Some(mark));
    if !is_at(Mark::Done) && (is_at(Mark::Emptying) || is_at(Mark::Filling)) {
        swap(&stages)?;
    }
    if Mark::ALL.into_iter().any(is_at) {
        stages.iter().try_for_each(|stage| stage.mark(Mark::Done))?;
    }
    stages.iter().try_for_each(Stage::clear)
}

/// Goes on with a swap from where it was.
fn swap(stages: &[Stage]) -> Result<(), ArchiveError> {
    if !stages.iter().any(|stage| stage.mark == Some(Mark::Filling)) {
        empty(stages)?;
    }
    fill(stages)
}

/// A swap that has its outcome: done, or undone with the error that made it so. The error of an undoing that failed is
/// the outer one; [`recover`] then brings the swap to its end.
fn swap_or_undo(stages: &[Stage]) -> Result<Result<(), ArchiveError>, ArchiveError> {
    let emptied = empty(stages);
    if emptied.is_err() {
        return put_back(stages).map(|()| emptied);
    }
    let filled = fill(stages);
    if filled.is_err() {
        let taken_out = stages.iter().try_for_each(|stage| moved(&stage.goal, &stage.new, stage));
        taken_out.map_err(ArchiveError::of("take new files out"))?;
        put_back(stages)?;
    }
    Ok(filled)
}

fn empty(stages: &[Stage]) -> Result<(), ArchiveError> {
    stages.iter().try_for_each(|stage| stage.mark(Mark::Emptying))?;
    let emptied = stages.iter().try_for_each(|stage| moved(&stage.goal, &stage.old, stage));
    emptied.map_err(ArchiveError::of("move old files out"))
}

fn fill(stages: &[Stage]) -> Result<(), ArchiveError> {
    stages.iter().try_for_each(|stage| stage.mark(Mark::Filling))?;
    let filled = stages.iter().try_for_each(|stage| moved(&stage.new, &stage.goal, stage));
    filled.map_err(ArchiveError::of("move new files in"))
}

fn put_back(stages: &[Stage]) -> Result<(), ArchiveError> {
    let back = stages.iter().try_for_each(|stage| moved(&stage.old, &stage.goal, stage));
    back.map_err(ArchiveError::of("move old files back"))
}

#[derive(Debug)]
struct Stage {
    root: Root,
    goal: OwnedFd,
    staging: OwnedFd,
    new: OwnedFd,
    old: OwnedFd,
    /// What was found, for one that an earlier process left.
    mark: Option<Mark>,
}

impl Stage {
    fn make(root: Root, path: &Path) -> Result<Self, ArchiveError> {
        let closed = |errno| match errno {
            Errno::ENOSPC | Errno::EDQUOT => ArchiveError::DiskFull,
            errno => ArchiveError::Closed { path: path.to_owned(), errno },
        };
        let goal = open(path, ROOT, Mode::empty()).map_err(closed)?;
        let staging = make_directory(&goal, STAGING.to_bytes()).map_err(closed)?;
        let inner = make_directory(&staging, NEW.to_bytes())
            .and_then(|new| make_directory(&staging, OLD.to_bytes()).map(|old| (new, old)));
        match inner {
            Ok((new, old)) => Ok(Self { root, goal, staging, new, old, mark: None }),
            Err(errno) => clear(goal.as_fd(), STAGING).map_err(closed).and(Err(closed(errno))),
        }
    }

    /// What an earlier process left; where that is too little to be anything, it is removed.
    fn left(root: Root, path: &Path) -> Result<Option<Self>, ArchiveError> {
        let Ok(goal) = open(path, ROOT, Mode::empty()) else { return Ok(None) };
        let Ok(staging) = open_directory(&goal, STAGING.to_bytes()) else { return cleared(&goal) };
        let inner = open_directory(&staging, NEW.to_bytes()).and_then(|new| {
            let old = open_directory(&staging, OLD.to_bytes())?;
            Ok((new, old))
        });
        let mark = Mark::ALL.into_iter().rev().find(|mark| exists(staging.as_fd(), mark.name()));
        let Ok((new, old)) = inner else { return cleared(&goal) };
        Ok(Some(Self { root, goal, staging, new, old, mark }))
    }

    fn sync(&self) -> Result<(), ArchiveError> {
        syncfs(&self.new).map_err(ArchiveError::of("write the new files to disk"))
    }

    /// Sets a mark; those before it stay and mean nothing beside it.
    fn mark(&self, mark: Mark) -> Result<(), ArchiveError> {
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.staging, mark.name(), flags, Mode::S_IRUSR | Mode::S_IWUSR)
            .map(drop)
            .map_err(ArchiveError::of("mark the swap"))
    }

    fn clear(&self) -> Result<(), ArchiveError> {
        clear(self.goal.as_fd(), STAGING).map_err(ArchiveError::of("clear the staging directory"))
    }
}

/// Moves everything of one directory to another, but for the staging directory and what is not the agent's to move.
fn moved(from: &OwnedFd, to: &OwnedFd, stage: &Stage) -> Result<(), Errno> {
    loop {
        let mut again = false;
        for name in names(from.as_fd())? {
            let name = name?;
            if name.as_c_str() != STAGING {
                again |= moved_one(from.as_fd(), &name, to.as_fd(), stage)?;
            }
        }
        // A list that is read while it changes may lack names.
        if !again {
            return Ok(());
        }
    }
}

/// Whether it was there to be moved.
fn moved_one(from: BorrowedFd<'_>, name: &CStr, to: BorrowedFd<'_>, stage: &Stage) -> Result<bool, Errno> {
    let mut asides: u32 = 0;
    loop {
        match renameat(from, name, to, name) {
            Ok(()) => return Ok(true),
            Err(Errno::ENOENT) => return Ok(false),
            // Something that the agent's processes have made meanwhile.
            Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR | Errno::EISDIR) => {
                asides += 1;
                let aside = format!("aside-{asides}");
                match renameat(to, name, &stage.old, aside.as_str()) {
                    Ok(()) | Err(Errno::ENOENT | Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            Err(errno @ (Errno::EACCES | Errno::EPERM)) => return moved_closed(from, name, to, errno),
            Err(errno) => return Err(errno),
        }
    }
}

/// Moves a directory that is closed to its owner: it must be writable itself, since its parent is written in it.
fn moved_closed(from: BorrowedFd<'_>, name: &CStr, to: BorrowedFd<'_>, errno: Errno) -> Result<bool, Errno> {
    let stat = fstatat(from, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    if stat.st_uid != geteuid().as_raw() {
        return Ok(false);
    }
    if type_of(&stat) != SFlag::S_IFDIR || mode_of(&stat).contains(OWNER_ALL) {
        return Err(errno);
    }
    fchmodat(from, name, mode_of(&stat) | OWNER_ALL, FchmodatFlags::FollowSymlink)?;
    let renamed = renameat(from, name, to, name);
    let now_in = if renamed.is_ok() { to } else { from };
    fchmodat(now_in, name, mode_of(&stat), FchmodatFlags::FollowSymlink)?;
    renamed.map(|()| true)
}

fn cleared<T>(goal: &OwnedFd) -> Result<Option<T>, ArchiveError> {
    clear(goal.as_fd(), STAGING).map(|()| None).map_err(ArchiveError::of("clear the staging directory"))
}

fn exists(directory: BorrowedFd<'_>, name: &CStr) -> bool {
    fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
}
