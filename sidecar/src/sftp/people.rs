//! Names of users and groups by their ids, and users' homes, as `/etc/passwd` and `/etc/group` have them.
//!
//! They are read here because the C library's way loads code at run time, which a static program that runs on any image
//! cannot do.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use crate::limits::{SFTP_PEOPLE_BYTES_MAX, SFTP_PERSON_BYTES_MAX};

/// Who there is.
#[derive(Debug, Default)]
pub(super) struct People {
    users: HashMap<u32, Vec<u8>>,
    groups: HashMap<u32, Vec<u8>>,
    homes: HashMap<Vec<u8>, Vec<u8>>,
}

impl People {
    /// Reads both files; one that cannot be read has nobody in it.
    pub(super) fn read() -> Self {
        Self::of(&text("/etc/passwd"), &text("/etc/group"))
    }

    fn of(users: &[u8], groups: &[u8]) -> Self {
        let homes = users.split(|&byte| byte == b'\n').filter_map(|line| {
            let mut fields = line.split(|&byte| byte == b':');
            Some((fields.next()?.to_vec(), fields.nth(4)?.to_vec()))
        });
        Self { homes: first_of(homes), users: first_of(names(users)), groups: first_of(names(groups)) }
    }

    pub(super) fn user(&self, id: u32) -> Option<&[u8]> {
        self.users.get(&id).map(Vec::as_slice)
    }

    pub(super) fn group(&self, id: u32) -> Option<&[u8]> {
        self.groups.get(&id).map(Vec::as_slice)
    }

    pub(super) fn home(&self, user: &[u8]) -> Option<PathBuf> {
        self.homes.get(user).map(|home| PathBuf::from(OsString::from_vec(home.clone())))
    }
}

fn text(path: &str) -> Vec<u8> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(SFTP_PEOPLE_BYTES_MAX).read_to_end(&mut text));
    if read.is_ok() { text } else { Vec::new() }
}

/// Ids and names of either file's lines: `name:password:id:…`.
fn names(text: &[u8]) -> impl Iterator<Item = (u32, Vec<u8>)> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|&byte| byte == b':');
        let name = fields.next().filter(|name| (1..=SFTP_PERSON_BYTES_MAX).contains(&name.len()))?;
        let id = std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
        Some((id, name.to_vec()))
    })
}

/// Of lines that speak of the same, the first counts.
fn first_of<K: Eq + std::hash::Hash, V>(pairs: impl Iterator<Item = (K, V)>) -> HashMap<K, V> {
    let mut first = HashMap::new();
    for (key, value) in pairs {
        first.entry(key).or_insert(value);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_so_long_and_no_longer() {
        let line = |bytes: usize, id: u32| format!("{}:x:{id}:\n", "n".repeat(bytes));
        let groups = line(SFTP_PERSON_BYTES_MAX, 1) + &line(SFTP_PERSON_BYTES_MAX + 1, 2);
        let people = People::of(b"", groups.as_bytes());
        assert_eq!([1, 2].map(|id| people.group(id).map(<[u8]>::len)), [Some(SFTP_PERSON_BYTES_MAX), None]);
    }

    #[test]
    fn names_and_homes_are_those_of_the_first_line_that_has_them() {
        let users =
            b"root:x:0:0:root:/r:/bin/sh\n\nbroken\nagent:x:1000:1000::/home/agent:/bin/bash\ntoor:x:0:0::/t:\n";
        let people = People::of(users, b"wheel:x:0:root\nagent:x:1000:\nbad:x:-1:");
        assert_eq!([0, 1000, 7].map(|id| people.user(id)), [Some(&b"root"[..]), Some(b"agent"), None]);
        assert_eq!([0, 1000, 7].map(|id| people.group(id)), [Some(&b"wheel"[..]), Some(b"agent"), None]);
        assert_eq!(people.home(b"agent"), Some("/home/agent".into()));
        assert_eq!((people.home(b"broken"), people.home(b"nobody")), (None, None));
    }
}
