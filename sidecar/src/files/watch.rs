//! Tells what changes in a directory, or a file: the kernel's events, by path.
//!
//! Directories are watched through handles on them, never by path, so nothing outside can slip in. What the kernel had
//! no room to tell, or what cannot be watched for want of watches, is told as [`Told::Overflow`].

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::libc::{dev_t, ino_t};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};
use sandbox_protocol::files::{FileChange, FileKind, FilePath, FilesRefusal};
use sandbox_protocol::limits::FILES_WATCHED_DIRECTORIES_MAX;

use super::beneath::own_path;
use super::entry::kind;
use super::error::FilesError;
use crate::archive::disk::{names, type_of};
use crate::limits::FILES_FOUND_MAX;

/// What of a watched file or directory is told.
const EVENTS: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_MODIFY)
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_MOVE_SELF);
const HANDLE: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Something changed.
    Change(FileChange),
    /// Changes were lost.
    Overflow,
    /// What was watched is gone from where it was; nothing more comes.
    End,
}

/// A watch. Its descriptor is readable when there is something to tell.
pub struct Watch {
    inotify: Inotify,
    /// Finds what is watched anew: a handle that was kept would keep its end from being told.
    find: Box<dyn Fn() -> Result<OwnedFd, FilesError> + Send>,
    /// Device and number of what is watched.
    identity: (dev_t, ino_t),
    recursive: bool,
    /// Paths of the watched directories below the base.
    paths: HashMap<WatchDescriptor, Vec<u8>>,
    /// A path that something was moved from, until it is known where to.
    moved: Option<Moved>,
}

#[derive(Debug)]
struct Moved {
    cookie: u32,
    from: Vec<u8>,
    directory: bool,
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.inotify.as_fd().as_raw_fd()
    }
}

impl Watch {
    /// Watches what `find` finds, and asks it again when a directory has come into it.
    ///
    /// # Errors
    /// [`FilesError`]; [`FilesRefusal::TooManyDirectories`] where there are more than are watched.
    pub fn new(
        find: impl Fn() -> Result<OwnedFd, FilesError> + Send + 'static,
        recursive: bool,
    ) -> Result<Self, FilesError> {
        let watch = FilesError::of("watch the directory");
        let base = find()?;
        let stat = fstat(&base).map_err(FilesError::of("look at the file"))?;
        let directory = type_of(&stat) == SFlag::S_IFDIR;
        if !directory && kind(&stat) != FileKind::File {
            return Err(FilesRefusal::NotRegular.into());
        }
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(&watch)?;
        let (find, identity) = (Box::new(find), (stat.st_dev, stat.st_ino));
        let mut watching = Self { inotify, find, identity, recursive, paths: HashMap::new(), moved: None };
        if !directory {
            let path = own_path(base.as_fd());
            let descriptor = watching.inotify.add_watch(path.as_path(), EVENTS).map_err(of_add)?;
            watching.paths.insert(descriptor, Vec::new());
        } else if watching.add(Vec::new(), None).map_err(of_add)? {
            return Err(FilesRefusal::TooManyDirectories.into());
        }
        Ok(watching)
    }

    /// How many directories are watched.
    pub fn directories(&self) -> u64 {
        self.paths.len() as u64
    }

    /// What there is to tell now.
    ///
    /// # Errors
    /// `EAGAIN` where that is nothing; any other where the kernel does not say.
    pub fn read(&mut self) -> Result<Vec<Told>, Errno> {
        let mut told = Vec::new();
        let events = self.inotify.read_events()?;
        events.iter().for_each(|event| self.take(event, &mut told));
        // The other half of a move is there already, if there is one.
        while self.moved.is_some() {
            match self.inotify.read_events() {
                Ok(events) => events.iter().for_each(|event| self.take(event, &mut told)),
                Err(Errno::EAGAIN) => self.settle(&mut told),
                Err(errno) => return Err(errno),
            }
        }
        Ok(told)
    }

    fn take(&mut self, event: &InotifyEvent, told: &mut Vec<Told>) {
        let is = |flag| event.mask.contains(flag);
        if is(AddWatchFlags::IN_Q_OVERFLOW) {
            return self.look_anew(told);
        }
        let Some(directory) = self.paths.get(&event.wd) else { return };
        if is(AddWatchFlags::IN_IGNORED) {
            self.paths.remove(&event.wd);
            return;
        }
        let of_base = directory.is_empty();
        let name = event.name.as_ref().map(|name| name.as_bytes());
        let path = name.map_or_else(|| directory.clone(), |name| join(directory, name));
        if is(AddWatchFlags::IN_MOVED_TO) && self.moved.as_ref().is_some_and(|moved| moved.cookie == event.cookie) {
            return self.arrived(path, told);
        }
        self.settle(told);
        if is(AddWatchFlags::IN_MOVED_FROM) {
            self.moved = Some(Moved { cookie: event.cookie, from: path, directory: is(AddWatchFlags::IN_ISDIR) });
        } else if is(AddWatchFlags::IN_CREATE) || is(AddWatchFlags::IN_MOVED_TO) {
            self.created(path, is(AddWatchFlags::IN_ISDIR), told);
        } else if is(AddWatchFlags::IN_DELETE) {
            told.push(Told::Change(FileChange::Removed { path: FilePath(path) }));
        } else if is(AddWatchFlags::IN_DELETE_SELF) || is(AddWatchFlags::IN_MOVE_SELF) {
            // Of a directory below, its parent tells.
            if of_base {
                told.extend([Told::Change(FileChange::Removed { path: FilePath::default() }), Told::End]);
            }
        } else if name.is_some() || of_base {
            told.extend(changed(event.mask, FilePath(path)).map(Told::Change));
        }
    }

    /// Something has come to `path`.
    fn created(&mut self, path: Vec<u8>, directory: bool, told: &mut Vec<Told>) {
        told.push(Told::Change(FileChange::Created { path: FilePath(path.clone()) }));
        if !(directory && self.recursive) {
            return;
        }
        // What is in it by the time that it is watched was made unseen, or is told once more.
        let mut found = Vec::new();
        let incomplete = self.add(path, Some(&mut found));
        told.extend(found.into_iter().map(|path| Told::Change(FileChange::Created { path: FilePath(path) })));
        if incomplete.unwrap_or(true) {
            told.push(Told::Overflow);
        }
    }

    /// What was moved away has come to `path`.
    fn arrived(&mut self, path: Vec<u8>, told: &mut Vec<Told>) {
        let Some(moved) = self.moved.take() else { return };
        if moved.directory {
            for own in self.paths.values_mut() {
                if let Some(rest) = below(own, &moved.from) {
                    *own = [&path[..], rest].concat();
                }
            }
        }
        told.push(Told::Change(FileChange::Moved { from: FilePath(moved.from), to: FilePath(path) }));
    }

    /// What was moved away has come to nowhere that is watched.
    fn settle(&mut self, told: &mut Vec<Told>) {
        let Some(moved) = self.moved.take() else { return };
        if moved.directory {
            let gone = self.paths.extract_if(|_, path| below(path, &moved.from).is_some());
            for (descriptor, _) in gone {
                // It is gone where the directory is.
                self.inotify.rm_watch(descriptor).ok();
            }
        }
        told.push(Told::Change(FileChange::Removed { path: FilePath(moved.from) }));
    }

    /// After changes were lost: directories may be there that are not watched.
    fn look_anew(&mut self, told: &mut Vec<Told>) {
        self.moved = None;
        told.push(Told::Overflow);
        if self.recursive {
            // What of it fails is told by the same word.
            self.add(Vec::new(), None).ok();
        }
    }

    /// A handle on a directory below the base.
    fn descend(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let mut at = (self.find)().map_err(|_| Errno::ENOENT)?;
        let stat = fstat(&at)?;
        if (stat.st_dev, stat.st_ino) != self.identity {
            return Err(Errno::ENOENT);
        }
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            at = openat(&at, name, HANDLE, Mode::empty())?;
        }
        Ok(at)
    }

    /// Watches the directory `path`, and where that is wished those below it; adds the paths of what is in them to
    /// `found`. Whether there is more than is watched.
    fn add(&mut self, path: Vec<u8>, mut found: Option<&mut Vec<Vec<u8>>>) -> Result<bool, Errno> {
        let mut ahead = vec![path];
        while let Some(path) = ahead.pop() {
            if self.directories() >= FILES_WATCHED_DIRECTORIES_MAX {
                return Ok(true);
            }
            let handle = match self.descend(&path) {
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES) if !path.is_empty() => continue,
                handle => handle?,
            };
            match self.inotify.add_watch(own_path(handle.as_fd()).as_path(), EVENTS) {
                // Closed to the agent: nothing of it can be seen.
                Err(Errno::EACCES) if !path.is_empty() => continue,
                descriptor => drop(self.paths.insert(descriptor?, path.clone())),
            }
            let listed = if self.recursive { names(handle.as_fd()).ok() } else { None };
            for name in listed.into_iter().flatten().flatten() {
                let below = join(&path, name.to_bytes());
                if is_directory(&handle, &name) {
                    ahead.push(below.clone());
                }
                if let Some(found) = &mut found {
                    found.push(below);
                }
                let too_many = found.as_ref().is_some_and(|found| found.len() > FILES_FOUND_MAX);
                if too_many || self.directories() + ahead.len() as u64 > FILES_WATCHED_DIRECTORIES_MAX {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

fn is_directory(parent: &OwnedFd, name: &CStr) -> bool {
    fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| type_of(&stat) == SFlag::S_IFDIR)
}

/// Why a watch cannot begin: the host's own bound on watches is one of all its sandboxes.
fn of_add(errno: Errno) -> FilesError {
    match errno {
        Errno::ENOSPC => FilesError::NoRoom,
        errno => FilesError::of("watch the directory")(errno),
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// What follows `directory` in `path`, which is it or below it.
fn below<'a>(path: &'a [u8], directory: &[u8]) -> Option<&'a [u8]> {
    path.strip_prefix(directory).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn changed(mask: AddWatchFlags, path: FilePath) -> Option<FileChange> {
    if mask.contains(AddWatchFlags::IN_MODIFY) {
        Some(FileChange::Modified { path })
    } else if mask.contains(AddWatchFlags::IN_CLOSE_WRITE) {
        Some(FileChange::Written { path })
    } else if mask.contains(AddWatchFlags::IN_ATTRIB) {
        Some(FileChange::Attributes { path })
    } else {
        None
    }
}
