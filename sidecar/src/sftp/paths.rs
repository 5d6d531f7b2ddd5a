//! What is done to names: where a path leads, what `~` stands for, files moved without and with an overwrite.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::Errno;

use super::error::Refusal;
use crate::limits::FILES_LINKS_MAX;

/// A client's bytes as a path.
pub(super) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The absolute path, free of links, that `path` leads to; its last name need not be there. Without a name it leads to the
/// working directory.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = Path::new(".").join(path);
    for _ in 0..FILES_LINKS_MAX {
        let missing = match fs::canonicalize(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => error,
            found => return found,
        };
        // What ends in `..` has no last name.
        let Some(name) = path.file_name() else { return Err(missing) };
        let parent = fs::canonicalize(path.parent().unwrap_or(Path::new("/")))?;
        let last = parent.join(name);
        match fs::read_link(&last) {
            Ok(target) => path = parent.join(target),
            Err(_) => return Ok(last),
        }
    }
    Err(Errno::LOOP.into())
}

/// Gives the file at `from` the name `to`, which nothing has.
pub(super) fn rename(from: &[u8], to: &[u8]) -> Result<(), Refusal> {
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system knows of it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => rename_by_link(from, to),
        renamed => Ok(renamed?),
    }
}

/// The same by a second name, which takes no other's place either; where there is no such thing, after a look.
fn rename_by_link(from: &[u8], to: &[u8]) -> Result<(), Refusal> {
    match rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty()) {
        Ok(()) => Ok(rustix::fs::unlink(from)?),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => match rustix::fs::lstat(to) {
            Ok(_) => Err(Errno::EXIST.into()),
            Err(Errno::NOENT) => Ok(rustix::fs::rename(from, to)?),
            Err(errno) => Err(errno.into()),
        },
        Err(errno) => Err(errno.into()),
    }
}

/// What a path that begins with `~` says: whose home, and where in it.
pub(super) fn tilde(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = path.strip_prefix(b"~")?;
    let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
    let (user, rest) = rest.split_at(end);
    Some((user, &rest[rest.iter().position(|&byte| byte != b'/').unwrap_or(rest.len())..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_stands_for_a_home_only_in_front() {
        assert_eq!(tilde(b"~"), Some((&b""[..], &b""[..])));
        assert_eq!(tilde(b"~//a/b"), Some((&b""[..], &b"a/b"[..])));
        assert_eq!(tilde(b"~user"), Some((&b"user"[..], &b""[..])));
        assert_eq!(tilde(b"~user/a"), Some((&b"user"[..], &b"a"[..])));
        assert_eq!(tilde(b"a~"), None);
        assert_eq!(tilde(b"/~"), None);
    }

    #[test]
    fn without_the_kernels_help_a_file_still_takes_no_others_place() {
        let directory = tempfile::tempdir().unwrap();
        let name = |name: &str| directory.path().join(name).into_os_string().into_encoded_bytes();
        fs::write(path(&name("one")), "one").unwrap();
        fs::write(path(&name("other")), "other").unwrap();
        fs::create_dir(path(&name("directory"))).unwrap();
        assert_eq!(rename_by_link(&name("one"), &name("other")), Err(Errno::EXIST.into()));
        assert_eq!(rename_by_link(&name("directory"), &name("other")), Err(Errno::EXIST.into()));
        assert_eq!(rename_by_link(&name("one"), &name("new")), Ok(()));
        assert_eq!(rename_by_link(&name("directory"), &name("moved")), Ok(()));
        assert_eq!(fs::read(path(&name("new"))).unwrap(), b"one");
        assert!(!path(&name("one")).exists() && path(&name("moved")).is_dir());
    }
}
