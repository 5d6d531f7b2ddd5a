//! Names: directories listed, files moved and linked, where paths lead.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use nix::unistd::{Gid, Uid};

use super::client::{
    Body, Client, Fields, LSTAT, MKDIR, OPENDIR, READDIR, READLINK, REALPATH, REMOVE, RENAME, RMDIR, STAT, SYMLINK,
    Stat,
};

/// What every client takes.
const PACKET_BYTES_MIN: usize = 34_000;

/// Names and lines of a directory, from all answers.
fn list(client: &mut Client, path: &str) -> Vec<(Vec<u8>, String, Stat)> {
    let handle = client.ask(OPENDIR, &Body::of(path)).handle();
    let mut entries = Vec::new();
    loop {
        let answer = client.ask(READDIR, &Body::of(&handle));
        if answer.0 == 101 {
            assert_eq!(answer.status().0, 1);
            return entries;
        }
        assert!(answer.1.len() < PACKET_BYTES_MIN);
        let mut fields = Fields(&answer.1);
        for _ in 0..fields.number() {
            let (name, line) = (fields.string().to_vec(), fields.string());
            entries.push((name, String::from_utf8_lossy(line).into_owned(), Stat::of(&mut fields)));
        }
    }
}

#[test]
fn a_large_directory_is_listed_piece_by_piece_and_whole() {
    let mut client = Client::greeted();
    let mut expected: BTreeSet<Vec<u8>> = (0..3_000).map(|index: u32| format!("{index}").into_bytes()).collect();
    expected.extend((0..30).map(|index: u8| [&[b'n'; 254][..], &[b'A' + index]].concat()));
    for name in &expected {
        fs::write(client.workspace().join(OsStr::from_bytes(name)), "").unwrap();
    }
    expected.extend([b".".to_vec(), b"..".to_vec()]);
    let found = list(&mut client, ".");
    assert_eq!(found.len(), expected.len());
    assert_eq!(found.into_iter().map(|(name, _, _)| name).collect::<BTreeSet<_>>(), expected);
}

#[test]
fn an_entry_is_told_as_ls_does() {
    let mut client = Client::greeted();
    let file = client.workspace().join("a file");
    fs::write(&file, "12345").unwrap();
    client.ask(super::client::SETSTAT, &Body::of("a file").number(12).number(0o4750).number(1).number(86_400)).done();
    let entries = list(&mut client, ".");
    let (_, line, stat) = entries.iter().find(|(name, _, _)| name == b"a file").unwrap();
    assert_eq!((stat.size, stat.mode, stat.times), (5, 0o104750, (1, 86_400)));
    let words: Vec<&str> = line.split_whitespace().collect();
    let user = nix::unistd::User::from_uid(Uid::effective())
        .unwrap()
        .map_or_else(|| Uid::effective().to_string(), |user| user.name);
    let group = nix::unistd::Group::from_gid(Gid::effective())
        .unwrap()
        .map_or_else(|| Gid::effective().to_string(), |group| group.name);
    assert_eq!(words, ["-rwsr-x---", "1", &user, &group, "5", "Jan", "2", "1970", "a", "file"]);
}

#[test]
fn names_of_any_bytes_come_back_as_they_are() {
    let mut client = Client::greeted();
    for name in [&b"two words"[..], b"new\nline", b"-dash", b"\xff\xfe", b"\\*?[\"'", "\u{e9}\u{1f600}".as_bytes()] {
        let handle = client.open(name, 8 | 2).handle();
        client.write(&handle, 0, name).done();
        assert!(list(&mut client, ".").iter().any(|(found, _, _)| found == name), "{name:?}");
        assert_eq!(fs::read(client.workspace().join(OsStr::from_bytes(name))).unwrap(), name);
    }
    for name in [&b""[..], b"nul\0byte"] {
        assert!([2, 4].contains(&client.open(name, 8 | 2).status().0), "{name:?}");
    }
    assert_eq!(client.open([b'n'; 256], 8 | 2).status(), (4, "File name too long".to_owned()));
}

#[test]
fn a_rename_takes_no_others_place_unless_it_is_posixs() {
    let mut client = Client::greeted();
    let workspace = client.workspace();
    fs::write(workspace.join("one"), "one").unwrap();
    fs::write(workspace.join("other"), "other").unwrap();
    let pair = |from: &str, to: &str| Body::of(from).string(to);
    assert_eq!(client.ask(RENAME, &pair("one", "other")).status(), (4, "File exists".to_owned()));
    assert_eq!(client.ask(RENAME, &pair("one", "one")).status().0, 4);
    client.ask(RENAME, &pair("one", "new")).done();
    assert_eq!(client.ask(RENAME, &pair("one", "newer")).status().0, 2);
    client.extended("posix-rename@openssh.com", &pair("new", "other")).done();
    assert_eq!(fs::read(workspace.join("other")).unwrap(), b"one");
    client.ask(MKDIR, &Body::of("d").number(0)).done();
    client.ask(RENAME, &pair("d", "e")).done();
    assert_eq!(client.ask(RENAME, &pair("e", "other")).status().0, 4);
    assert_eq!(client.ask(MKDIR, &Body::of("e").number(0)).status(), (4, "File exists".to_owned()));
    assert_eq!(client.ask(REMOVE, &Body::of("e")).status().0, 4);
    client.ask(RMDIR, &Body::of("e")).done();
    assert_eq!(client.ask(RMDIR, &Body::of("other")).status().0, 2, "no directory");
    client.ask(REMOVE, &Body::of("other")).done();
}

#[test]
fn links_are_made_in_the_order_that_openssh_has_and_told_of_as_they_are() {
    let mut client = Client::greeted();
    let workspace = client.workspace();
    client.ask(SYMLINK, &Body::of("no/such target").string("link")).done();
    assert_eq!(fs::read_link(workspace.join("link")).unwrap(), OsStr::new("no/such target"));
    assert_eq!(client.ask(READLINK, &Body::of("link")).name(), "no/such target");
    assert_eq!(client.ask(LSTAT, &Body::of("link")).stat().mode & 0o170000, 0o120000);
    assert_eq!(client.ask(STAT, &Body::of("link")).status().0, 2);
    fs::write(workspace.join("file"), "x").unwrap();
    client.extended("hardlink@openssh.com", &Body::of("file").string("second")).done();
    assert_eq!(client.extended("hardlink@openssh.com", &Body::of("file").string("second")).status().0, 4);
    fs::write(workspace.join("file"), "both").unwrap();
    assert_eq!(fs::read(workspace.join("second")).unwrap(), b"both");
    assert_eq!(client.ask(READLINK, &Body::of("file")).status().0, 4);
}

#[test]
fn a_path_is_told_without_links_and_its_last_name_need_not_be_there() {
    let mut client = Client::greeted();
    let workspace = client.workspace();
    fs::create_dir(workspace.join("d")).unwrap();
    for (target, link) in
        [("d", "to-d"), ("d/new", "dangling"), ("dangling", "twice"), ("no/where", "lost"), ("loop", "loop")]
    {
        symlink(target, workspace.join(link)).unwrap();
    }
    let own = |rest: &str| workspace.join(rest).to_str().unwrap().trim_end_matches('/').to_owned();
    for (path, expected) in [
        (".", own("")),
        ("", own("")),
        ("d/..", own("")),
        ("./to-d/", own("d")),
        ("to-d/x", own("d/x")),
        ("d/x/", own("d/x")),
        ("dangling", own("d/new")),
        ("twice", own("d/new")),
        ("/", "/".to_owned()),
        ("/../..", "/".to_owned()),
        ("/no-such-name", "/no-such-name".to_owned()),
    ] {
        assert_eq!(client.ask(REALPATH, &Body::of(path)).name(), expected, "{path:?}");
    }
    for path in ["no/where", "lost", "d/x/..", "loop"] {
        assert_eq!(client.ask(REALPATH, &Body::of(path)).status().0, 2, "{path:?}");
    }
}

#[test]
fn a_tilde_is_the_agents_home_or_anothers() {
    let mut client = Client::greeted();
    let home = client.directory.path().canonicalize().unwrap().join("home");
    let home = home.to_str().unwrap();
    let expand = |client: &mut Client, path: &str| client.extended("expand-path@openssh.com", &Body::of(path));
    assert_eq!(expand(&mut client, "~").name(), home);
    assert_eq!(expand(&mut client, "~/new").name(), format!("{home}/new"));
    assert_eq!(expand(&mut client, "~/../home").name(), home);
    assert_eq!(expand(&mut client, "x").name(), client.workspace().join("x").to_str().unwrap());
    let (root, none) = (nix::unistd::User::from_name("root").unwrap().unwrap(), "~nobody-of-this-name");
    let roots = root.dir.canonicalize().unwrap();
    assert_eq!(expand(&mut client, "~root").name(), roots.to_str().unwrap());
    assert_eq!(expand(&mut client, none).status(), (2, "No such user".to_owned()));
    let of = |client: &mut Client, user: &str| client.extended("home-directory", &Body::of(user));
    assert_eq!(of(&mut client, "").name(), client.directory.path().join("home").to_str().unwrap());
    assert_eq!(of(&mut client, "root").name(), root.dir.to_str().unwrap());
    assert_eq!(of(&mut client, "nobody-of-this-name").status().0, 2);
}
