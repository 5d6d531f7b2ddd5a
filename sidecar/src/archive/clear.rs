//! Removes a tree of whatever depth with few open files and little memory: directories that are not empty are moved up
//! to the tree's top and emptied there.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, renameat};
use nix::sys::stat::{FchmodatFlags, fchmodat, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::disk::{OWNER_ALL, is_no_directory, mode_of, names, open_directory, open_up};

/// What came of clearing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cleared {
    /// Files, links and directories that are gone.
    pub(crate) removed: u64,
    /// Nothing is left.
    pub(crate) gone: bool,
}

/// Removes the file or tree `name` of `parent`, if there is one.
pub(super) fn clear(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    clear_some(parent, name, u64::MAX).map(drop)
}

/// The same, with at most about `steps_max` files touched: what is left then is still there, in another order.
pub(crate) fn clear_some(parent: BorrowedFd<'_>, name: &CStr, steps_max: u64) -> Result<Cleared, Errno> {
    let top = match opened(parent, name) {
        Ok(top) => top,
        Err(Errno::ENOENT) => return Ok(Cleared { removed: 0, gone: true }),
        Err(errno) if is_no_directory(errno) => {
            return unlinkat(parent, name, UnlinkatFlags::NoRemoveDir).map(|()| Cleared { removed: 1, gone: true });
        }
        Err(errno) => return Err(errno),
    };
    let mut clearing = Clearing { top: top.as_fd(), next: rand::random::<u64>() >> 1, steps: 0, removed: 0 };
    loop {
        let mut found = names(top.as_fd())?.peekable();
        if found.peek().is_none() {
            break;
        }
        for name in found {
            if clearing.steps >= steps_max {
                return Ok(Cleared { removed: clearing.removed, gone: false });
            }
            clearing.remove(&name?, steps_max)?;
        }
    }
    unlinkat(parent, name, UnlinkatFlags::RemoveDir)?;
    Ok(Cleared { removed: clearing.removed + 1, gone: true })
}

struct Clearing<'top> {
    top: BorrowedFd<'top>,
    /// In the next name that a directory gets at the top: begun anywhere, so that what an earlier clearing left is not
    /// in the way.
    next: u64,
    steps: u64,
    removed: u64,
}

impl Clearing<'_> {
    /// Removes `name` of the top, having moved its directories to the top; or begins to.
    fn remove(&mut self, name: &CStr, steps_max: u64) -> Result<(), Errno> {
        if self.gone(self.top, name)? {
            return Ok(());
        }
        let directory = match opened(self.top, name) {
            // It has become something else meanwhile; that is seen in the next round.
            Err(Errno::ENOENT | Errno::EOPNOTSUPP) => return Ok(()),
            Err(errno) if is_no_directory(errno) => return Ok(()),
            directory => directory?,
        };
        for child in names(directory.as_fd())? {
            let child = child?;
            if !self.gone(directory.as_fd(), &child)? {
                self.move_up(directory.as_fd(), &child)?;
            }
            if self.steps >= steps_max {
                return Ok(());
            }
        }
        match unlinkat(self.top, name, UnlinkatFlags::RemoveDir) {
            // Something was added meanwhile; it is seen in the next round.
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(()),
            Ok(()) => {
                self.removed += 1;
                Ok(())
            }
            Err(errno) => Err(errno),
        }
    }

    fn gone(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
        self.steps += 1;
        let gone = gone(parent, name)?;
        self.removed += u64::from(gone);
        Ok(gone)
    }

    fn move_up(&mut self, parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
        loop {
            self.next += 1;
            let free = format!("cleared-{}", self.next);
            match renameat(parent, name, self.top, free.as_str()) {
                Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
                // A directory that is moved must be writable itself, since its parent is written in it.
                Err(Errno::EACCES) if !writable(parent, name)? => drop(opened(parent, name)?),
                other => return other,
            }
        }
    }
}

/// Removes what is no directory, or an empty one; `false` for any other.
fn gone(parent: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR | Errno::EPERM) => {}
        Ok(()) | Err(Errno::ENOENT) => return Ok(true),
        Err(errno) => return Err(errno),
    }
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(true),
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn writable(parent: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    Ok(mode_of(&fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW)?).contains(OWNER_ALL))
}

/// Opens a directory of the agent's own, whatever its mode, and leaves it open to its owner.
fn opened(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let directory = match open_directory(parent, name.to_bytes()) {
        Err(Errno::EACCES) => {
            // Not of what a link leads to, should there be one by now.
            fchmodat(parent, name, OWNER_ALL, FchmodatFlags::NoFollowSymlink)?;
            open_directory(parent, name.to_bytes())?
        }
        other => other?,
    };
    open_up(&directory, &fstat(&directory)?)?;
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use nix::fcntl::AT_FDCWD;

    use super::*;

    fn cleared(path: &Path) {
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        clear(AT_FDCWD, &name).unwrap();
        assert!(fs::symlink_metadata(path).is_err());
    }

    #[test]
    fn a_tree_of_any_kind_is_removed_and_nothing_beside_it() {
        let scratch = tempfile::tempdir().unwrap();
        let tree = scratch.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir_all(tree.join("cleared-1/x")).unwrap();
        fs::write(tree.join("a/b/c/file"), "").unwrap();
        fs::write(scratch.path().join("kept"), "").unwrap();
        symlink("../kept", tree.join("a/link")).unwrap();
        symlink(scratch.path(), tree.join("a/b/up")).unwrap();
        for closed in ["a/b/c", "a/b", "a"] {
            fs::set_permissions(tree.join(closed), Permissions::from_mode(0o000)).unwrap();
        }
        cleared(&tree);
        cleared(&tree);
        assert!(scratch.path().join("kept").exists());
    }

    #[test]
    fn a_tree_is_removed_in_steps_of_bounded_work_and_counted() {
        let scratch = tempfile::tempdir().unwrap();
        let tree = scratch.path().join("tree");
        for index in 0..30 {
            fs::create_dir_all(tree.join(format!("{index}/a/b"))).unwrap();
            fs::write(tree.join(format!("{index}/a/b/c")), "").unwrap();
        }
        let name = std::ffi::CString::new(tree.as_os_str().as_bytes()).unwrap();
        let (mut steps, mut removed) = (0, 0);
        loop {
            let cleared = clear_some(AT_FDCWD, &name, 10).unwrap();
            assert!(cleared.removed <= 20, "{cleared:?}");
            (steps, removed) = (steps + 1, removed + cleared.removed);
            if cleared.gone {
                break;
            }
            assert!(tree.exists() && steps < 100);
        }
        assert!(steps > 5 && removed == 1 + 30 * 4, "{steps} steps, {removed} removed");
        assert_eq!(clear_some(AT_FDCWD, &name, 10), Ok(Cleared { removed: 0, gone: true }));
    }

    #[test]
    fn a_tree_deeper_than_a_path_is_long_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let tree = scratch.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut at: OwnedFd = fs::File::open(&tree).unwrap().into();
        for _ in 0..5_000 {
            at = super::super::disk::make_directory(&at, b"deeper").unwrap();
        }
        drop(at);
        cleared(&tree);
    }
}
