//! Resolves a path beneath a directory in user space, for kernels without `openat2` (a sandbox under `runsc`).
//!
//! Every step opens one name in an open directory and follows no link. Links are read and their text is walked in turn;
//! `..` goes back to the directory that was walked through, which is held open, so nothing that is moved or replaced
//! meanwhile leads above the first one.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, readlinkat};
use nix::sys::stat::Mode;

use crate::limits::FILES_LINKS_MAX;

const STEP: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// What `path` leads to beneath `root`, as the kernel would tell by `RESOLVE_BENEATH`.
pub(super) fn walk(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let mut walk = Walk { root, passed: Vec::new(), ahead: Vec::new(), links: 0 };
    walk.add(path)?;
    while let Some(name) = walk.ahead.pop() {
        let more = !walk.ahead.is_empty();
        match &name[..] {
            b"" | b"." => {}
            b".." => drop(walk.passed.pop().ok_or(Errno::EXDEV)?),
            name => {
                if let Some(end) = walk.step(name, more)? {
                    return Ok(end);
                }
            }
        }
    }
    match walk.passed.pop() {
        Some(directory) => Ok(directory),
        None => openat(root, c".", STEP | OFlag::O_DIRECTORY, Mode::empty()),
    }
}

struct Walk<'root> {
    root: BorrowedFd<'root>,
    /// The directories from the root to here.
    passed: Vec<OwnedFd>,
    /// Names still to come, the next one last.
    ahead: Vec<Vec<u8>>,
    links: u32,
}

impl Walk<'_> {
    /// Puts `path` before what is ahead.
    fn add(&mut self, path: &[u8]) -> Result<(), Errno> {
        if path.starts_with(b"/") {
            return Err(Errno::EXDEV);
        }
        self.ahead.extend(path.split(|&byte| byte == b'/').rev().map(<[u8]>::to_vec));
        Ok(())
    }

    /// Goes to `name`, or adds what it leads to. With nothing `more` to come, the end may be of any kind.
    fn step(&mut self, name: &[u8], more: bool) -> Result<Option<OwnedFd>, Errno> {
        let here = self.passed.last().map_or(self.root, |directory| directory.as_fd());
        match readlinkat(here, name) {
            Ok(target) => {
                self.links += 1;
                if self.links > FILES_LINKS_MAX {
                    return Err(Errno::ELOOP);
                }
                return self.add(&target.into_vec()).map(|()| None);
            }
            Err(Errno::EINVAL) => {}
            Err(errno) => return Err(errno),
        }
        let directory = openat(here, name, STEP | OFlag::O_DIRECTORY, Mode::empty());
        match directory {
            Ok(directory) => {
                self.passed.push(directory);
                Ok(None)
            }
            Err(Errno::ENOTDIR) if !more => end(here, name),
            // What became a link since it was looked at is none that is followed.
            Err(errno) => Err(errno),
        }
    }
}

/// Something other than a directory, and no link.
fn end(here: BorrowedFd<'_>, name: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    let found = openat(here, name, STEP, Mode::empty())?;
    match readlinkat(&found, c"") {
        Ok(_) => Err(Errno::EAGAIN),
        Err(_) => Ok(Some(found)),
    }
}
