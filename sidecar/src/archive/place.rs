//! Where an entry of an archive belongs: its path, checked once.

use sandbox_protocol::snapshot::{ArchiveFault, STATE, WORKSPACE};

use crate::limits::{ARCHIVE_DEPTH_MAX, ARCHIVE_PATH_BYTES_MAX, FILE_NAME_BYTES_MAX};

/// Directory in each root in which an archive is unpacked; never part of an archive.
pub const STAGING: &str = ".sandbox-restore";

/// A folder of an archive, and the directory of the sandbox that it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// The workspace.
    Workspace,
    /// The agent's home.
    State,
}

impl Root {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Workspace, Self::State];

    /// Its name in an archive.
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Workspace => WORKSPACE,
            Self::State => STATE,
        }
    }
}

/// A path in one of the roots: names without `/`, none of them `..`, none of them empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place<'path> {
    pub(super) root: Root,
    /// Empty for the root itself.
    pub(super) names: Vec<&'path [u8]>,
}

impl<'path> Place<'path> {
    pub(super) fn parse(path: &'path [u8]) -> Result<Self, ArchiveFault> {
        if path.is_empty() || path.contains(&0) {
            return Err(ArchiveFault::BadName);
        }
        if path.starts_with(b"/") {
            return Err(ArchiveFault::AbsolutePath);
        }
        let parts = || path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        if parts().any(|part| part == b"..") {
            return Err(ArchiveFault::ParentPath);
        }
        if path.len() > ARCHIVE_PATH_BYTES_MAX || parts().any(|part| part.len() > FILE_NAME_BYTES_MAX) {
            return Err(ArchiveFault::NameTooLong);
        }
        let mut names = parts();
        let first = names.next().ok_or(ArchiveFault::OutsideRoots)?;
        let root = Root::ALL.into_iter().find(|root| root.folder().as_bytes() == first);
        let place = Self { root: root.ok_or(ArchiveFault::OutsideRoots)?, names: names.collect() };
        if place.names.first().is_some_and(|name| *name == STAGING.as_bytes()) {
            return Err(ArchiveFault::ReservedName);
        }
        if place.names.len() > ARCHIVE_DEPTH_MAX {
            return Err(ArchiveFault::NameTooLong);
        }
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &[u8], expected: Result<(Root, &[&[u8]]), ArchiveFault>) {
        let found = Place::parse(path).map(|place| (place.root, place.names));
        let expected = expected.map(|(root, names)| (root, names.to_vec()));
        assert_eq!(found, expected, "{}", path.escape_ascii());
    }

    #[test]
    fn a_path_in_a_root_is_its_names() {
        check(b"workspace", Ok((Root::Workspace, &[])));
        check(b"workspace/", Ok((Root::Workspace, &[])));
        check(b"./state//a/./b/", Ok((Root::State, &[b"a", b"b"])));
        check(b"state/\xff/...", Ok((Root::State, &[b"\xff", b"..."])));
        check(b"workspace/a/.sandbox-restore", Ok((Root::Workspace, &[b"a", STAGING.as_bytes()])));
    }

    #[test]
    fn a_path_elsewhere_is_refused_by_its_reason() {
        for path in ["/", "/workspace/a", "//state"] {
            check(path.as_bytes(), Err(ArchiveFault::AbsolutePath));
        }
        for path in ["..", "workspace/..", "workspace/a/../b", "../workspace"] {
            check(path.as_bytes(), Err(ArchiveFault::ParentPath));
        }
        for path in [".", "./", "a", "workspac", "workspaces/a", "WORKSPACE/a"] {
            check(path.as_bytes(), Err(ArchiveFault::OutsideRoots));
        }
        check(b"", Err(ArchiveFault::BadName));
        check(b"workspace/a\0b", Err(ArchiveFault::BadName));
        check(b"workspace/.sandbox-restore", Err(ArchiveFault::ReservedName));
        check(b"state/./.sandbox-restore/new/a", Err(ArchiveFault::ReservedName));
    }

    #[test]
    fn names_paths_and_depth_have_bounds() {
        let name = |bytes| format!("state/{}", "n".repeat(bytes));
        assert!(Place::parse(name(FILE_NAME_BYTES_MAX).as_bytes()).is_ok());
        check(name(FILE_NAME_BYTES_MAX + 1).as_bytes(), Err(ArchiveFault::NameTooLong));
        let deep = |names| format!("state{}", "/d".repeat(names));
        assert!(Place::parse(deep(ARCHIVE_DEPTH_MAX).as_bytes()).is_ok());
        check(deep(ARCHIVE_DEPTH_MAX + 1).as_bytes(), Err(ArchiveFault::NameTooLong));
        let long = |bytes: usize| format!("state{}n", "/".repeat(bytes - 6));
        assert!(Place::parse(long(ARCHIVE_PATH_BYTES_MAX).as_bytes()).is_ok());
        check(long(ARCHIVE_PATH_BYTES_MAX + 1).as_bytes(), Err(ArchiveFault::NameTooLong));
    }
}
