//! From a path to an open file, beneath one of the two roots and nowhere else.
//!
//! A path's text only says which root is meant. Where it leads is the kernel's word (`openat2` with `RESOLVE_BENEATH`),
//! or where it lacks the call that of [`walk`]. What is found is held as a descriptor, and everything is done to that.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use sandbox_protocol::files::{FilePath, FilesRefusal};

use super::error::FilesError;
use super::walk::walk;
use crate::archive::disk::type_of;
use crate::limits::{FILE_NAME_BYTES_MAX, FILES_PATH_BYTES_MAX, FILES_RESOLVE_TRIES_MAX};

/// A handle that stands for a file and reads nothing of it.
const HANDLE: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

/// Who resolves paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// The kernel.
    Kernel,
    /// The walk in user space.
    Walk,
}

/// The directories that files are served from.
#[derive(Debug)]
pub struct Roots {
    /// Paths without a leading `/` begin at the first.
    roots: Vec<Root>,
    means: Means,
}

#[derive(Debug)]
struct Root {
    path: PathBuf,
    directory: OwnedFd,
}

impl Roots {
    /// Opens the workspace, and the home where there is one.
    ///
    /// # Errors
    /// The workspace is not there, or not the agent's.
    pub fn open(workspace: &Path, home: &Path) -> Result<Self, FilesError> {
        let first = Root::open(workspace).map_err(FilesError::of("open the workspace"))?;
        let means = match openat2(&first.directory, c".", beneath()) {
            // Some filters refuse what they do not know with EPERM.
            Err(Errno::ENOSYS | Errno::EPERM) => Means::Walk,
            Ok(_) | Err(_) => Means::Kernel,
        };
        let roots = std::iter::once(first).chain(Root::open(home)).collect();
        Ok(Self { roots, means })
    }

    /// The same roots, resolved by other means.
    #[must_use]
    pub fn resolved_by(self, means: Means) -> Self {
        Self { means, ..self }
    }

    /// Which root `path` speaks of.
    ///
    /// # Errors
    /// It speaks of none, or is none.
    pub fn place<'a>(&'a self, path: &'a FilePath) -> Result<Place<'a>, FilesError> {
        let FilePath(bytes) = path;
        if bytes.contains(&0) {
            return Err(FilesRefusal::BadPath.into());
        }
        let names = bytes.split(|&byte| byte == b'/');
        if bytes.len() > FILES_PATH_BYTES_MAX || names.into_iter().any(|name| name.len() > FILE_NAME_BYTES_MAX) {
            return Err(FilesRefusal::NameTooLong.into());
        }
        let found = if bytes.starts_with(b"/") {
            let within = self.roots.iter().filter_map(|root| Some((root, root.rest_of(bytes)?)));
            within.min_by_key(|(_, rest)| rest.len())
        } else {
            self.roots.first().map(|root| (root, &bytes[..]))
        };
        let (root, rest) = found.ok_or(FilesRefusal::Outside)?;
        Ok(Place { roots: self, root, rest })
    }

    fn is_root(&self, stat: &FileStat) -> bool {
        let same =
            |root: &Root| fstat(&root.directory).is_ok_and(|of| (of.st_dev, of.st_ino) == (stat.st_dev, stat.st_ino));
        self.roots.iter().any(same)
    }
}

impl Root {
    fn open(path: &Path) -> Result<Self, Errno> {
        let directory = open(path, HANDLE | OFlag::O_DIRECTORY, Mode::empty())?;
        Ok(Self { path: path.to_owned(), directory })
    }

    /// What follows this root's path in the absolute `path`.
    fn rest_of<'a>(&self, path: &'a [u8]) -> Option<&'a [u8]> {
        let own = self.path.as_os_str().as_bytes().split(|&byte| byte == b'/');
        let mut rest = path;
        for name in own.filter(|name| !name.is_empty() && *name != b".") {
            let (first, after) = first_name(rest);
            if first != name {
                return None;
            }
            rest = after;
        }
        Some(after_slashes(rest))
    }
}

/// The first name of a path, and what follows it.
fn first_name(path: &[u8]) -> (&[u8], &[u8]) {
    let mut path = after_slashes(path);
    while path == b"." || path.starts_with(b"./") {
        path = after_slashes(&path[1..]);
    }
    path.split_at(path.iter().position(|&byte| byte == b'/').unwrap_or(path.len()))
}

fn after_slashes(path: &[u8]) -> &[u8] {
    &path[path.iter().position(|&byte| byte != b'/').unwrap_or(path.len())..]
}

fn before_slashes(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1)]
}

fn beneath() -> OpenHow {
    OpenHow::new().flags(HANDLE).resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS)
}

/// A path in one of the roots, not yet resolved.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    roots: &'a Roots,
    root: &'a Root,
    rest: &'a [u8],
}

impl<'a> Place<'a> {
    /// A handle on what is there; links are followed.
    ///
    /// # Errors
    /// Nothing is there, or not beneath the root.
    pub fn find(&self) -> Result<OwnedFd, FilesError> {
        self.resolve(self.rest)
    }

    /// The directory and the name that the path ends in; the name need not be there, and is not followed.
    ///
    /// # Errors
    /// The path ends in no name, or its directory is not there or not beneath the root.
    pub fn leaf(&self) -> Result<Leaf<'a>, FilesError> {
        let (parent, name) = self.split()?;
        let parent = self.resolve(parent)?;
        let name = CString::new(name).map_err(|_| FilesRefusal::BadPath)?;
        let slash = self.rest.ends_with(b"/");
        Ok(Leaf { roots: self.roots, parent, name, slash })
    }

    /// The place of the directory that the path's last name is in.
    ///
    /// # Errors
    /// The path ends in no name.
    pub fn parent(&self) -> Result<Self, FilesError> {
        self.split().map(|(rest, _)| Self { rest, ..*self })
    }

    /// The root's own path, where the path is that.
    pub fn root_path(&self) -> Option<&'a Path> {
        let names = || self.rest.split(|&byte| byte == b'/');
        names().all(|name| matches!(name, b"" | b".")).then_some(&*self.root.path)
    }

    fn split(&self) -> Result<(&'a [u8], &'a [u8]), FilesError> {
        if self.root_path().is_some() {
            return Err(FilesRefusal::IsRoot.into());
        }
        let path = before_slashes(self.rest);
        let (parent, name) = path.split_at(path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1));
        if matches!(name, b"." | b"..") {
            return Err(FilesRefusal::BadPath.into());
        }
        Ok((parent, name))
    }

    fn resolve(&self, path: &[u8]) -> Result<OwnedFd, FilesError> {
        let path = if path.is_empty() { b"." } else { path };
        for _ in 0..FILES_RESOLVE_TRIES_MAX {
            let found = match self.roots.means {
                Means::Kernel => openat2(&self.root.directory, path, beneath()),
                Means::Walk => walk(self.root.directory.as_fd(), path),
            };
            return match found {
                // Something on the way was moved while it was resolved.
                Err(Errno::EAGAIN) => continue,
                Err(Errno::EXDEV) => Err(FilesRefusal::Outside.into()),
                found => found.map_err(FilesError::of("resolve the path")),
            };
        }
        Err(FilesError::NoRoom)
    }
}

/// A name in an open directory.
#[derive(Debug)]
pub struct Leaf<'a> {
    roots: &'a Roots,
    /// The directory, as a handle.
    pub parent: OwnedFd,
    /// The name: not empty, no slash, neither `.` nor `..`.
    pub name: CString,
    /// A slash follows it: only a directory is meant.
    pub slash: bool,
}

impl Leaf<'_> {
    /// What the name stands for, itself.
    pub fn stat(&self) -> Result<FileStat, Errno> {
        fstatat(&self.parent, self.name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// The same for what is to be moved or removed, which no root is.
    ///
    /// # Errors
    /// There is nothing, or not what the path says.
    pub fn own(&self) -> Result<FileStat, FilesError> {
        let stat = self.stat().map_err(FilesError::of("look at the file"))?;
        if self.roots.is_root(&stat) {
            return Err(FilesRefusal::IsRoot.into());
        }
        if self.slash && type_of(&stat) != SFlag::S_IFDIR {
            return Err(FilesRefusal::NotDirectory.into());
        }
        Ok(stat)
    }
}

/// Opens what `handle` stands for: the same file, whatever its name leads to by now.
pub(super) fn reopen(handle: BorrowedFd<'_>, flags: OFlag) -> Result<OwnedFd, Errno> {
    open(own_path(handle).as_path(), flags | OFlag::O_CLOEXEC, Mode::empty())
}

/// A path of the file that `handle` stands for, good within this process.
pub(super) fn own_path(handle: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()))
}
