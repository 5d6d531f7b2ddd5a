//! Open files: how they are opened, read, written, copied, and how many there may be.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sandbox_sidecar::limits::{SFTP_DATA_BYTES_MAX, SFTP_HANDLES_MAX};

use super::client::{Body, CLOSE, Client, FSTAT, OPEN, OPENDIR, READDIR, REMOVE};

const READ: u32 = 1;
const WRITE: u32 = 2;
const APPEND: u32 = 4;
const CREATE: u32 = 8;
const TRUNCATE: u32 = 16;
const EXCLUSIVE: u32 = 32;

#[test]
fn a_file_is_opened_as_its_flags_say() {
    let mut client = Client::greeted();
    let file = client.workspace().join("file");
    assert_eq!(client.open("file", READ).status(), (2, "No such file or directory".to_owned()));
    let handle = client.open("file", WRITE | CREATE | EXCLUSIVE).handle();
    client.write(&handle, 0, b"0123456789").done();
    assert_eq!(client.read(&handle, 0, 10).status().0, 4, "not to be read");
    assert_eq!(client.open("file", WRITE | CREATE | EXCLUSIVE).status(), (4, "File exists".to_owned()));
    let reader = client.open("file", READ).handle();
    assert_eq!(client.write(&reader, 0, b"x").status().0, 4, "not to be written");
    assert_eq!(client.read(&reader, 8, 10).data(), b"89");
    assert_eq!(client.read(&reader, 10, 10).status(), (1, "End of file".to_owned()));
    assert_eq!(client.read(&reader, 0, 0).data(), b"");
    let appending = client.open("file", WRITE | APPEND).handle();
    client.write(&appending, 0, b"ab").done();
    assert_eq!(fs::read(&file).unwrap(), b"0123456789ab");
    let both = client.open("file", READ | WRITE | CREATE | TRUNCATE).handle();
    assert_eq!(client.read(&both, 0, 10).status().0, 1);
    client.write(&both, 2, b"x").done();
    assert_eq!(client.read(&both, 0, 10).data(), b"\0\0x");
}

#[test]
fn a_new_file_has_the_permissions_that_were_asked_for() {
    let mut client = Client::greeted();
    for (name, attributes, expected) in
        [("given", Body::default().number(4).number(0o100640), 0o640), ("default", Body::default().number(0), 0o644)]
    {
        let mut body = Body::of(name).number(WRITE | CREATE);
        body.0.extend(attributes.0);
        client.ask(OPEN, &body).handle();
        assert_eq!(fs::metadata(client.workspace().join(name)).unwrap().mode() & 0o7777 & !0o022, expected);
    }
}

#[test]
fn files_have_holes_and_are_longer_than_four_gigabytes() {
    let mut client = Client::greeted();
    let handle = client.open("sparse", READ | WRITE | CREATE).handle();
    let far = 5 << 30;
    client.write(&handle, far, b"end").done();
    assert_eq!(client.ask(FSTAT, &Body::of(&handle)).stat().size, far + 3);
    assert_eq!(client.read(&handle, far - 1, 10).data(), b"\0end");
    let found = fs::metadata(client.workspace().join("sparse")).unwrap();
    assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
    for offset in [1 << 63, u64::MAX] {
        assert_eq!(client.write(&handle, offset, b"x").status().0, 4);
        assert_eq!(client.read(&handle, offset, 1).status().0, 4);
    }
}

#[test]
fn one_request_moves_as_much_as_is_announced_and_no_more() {
    let mut client = Client::greeted();
    let handle = client.open("file", READ | WRITE | CREATE).handle();
    let data: Vec<u8> = (0..SFTP_DATA_BYTES_MAX + 1).map(|index| (index % 251) as u8).collect();
    client.write(&handle, 0, &data[..SFTP_DATA_BYTES_MAX]).done();
    client.write(&handle, SFTP_DATA_BYTES_MAX as u64, &data[SFTP_DATA_BYTES_MAX..]).done();
    for (asked, got) in [(SFTP_DATA_BYTES_MAX as u32, SFTP_DATA_BYTES_MAX), (u32::MAX, SFTP_DATA_BYTES_MAX), (9, 9)] {
        assert!(client.read(&handle, 0, asked).data() == &data[..got], "{asked}");
    }
}

#[test]
fn so_many_files_may_be_open_and_no_more() {
    let mut client = Client::greeted();
    fs::write(client.workspace().join("file"), "x").unwrap();
    let first = client.open("file", READ).handle();
    for _ in 2..SFTP_HANDLES_MAX {
        client.open("file", READ).handle();
    }
    let last = client.ask(OPENDIR, &Body::of(".")).handle();
    assert_eq!(client.open("file", READ).status().0, 4);
    assert_eq!(client.ask(OPENDIR, &Body::of(".")).status().0, 4);
    client.ask(CLOSE, &Body::of(&first)).done();
    let again = client.open("file", READ).handle();
    assert_eq!(client.open("file", READ).status().0, 4);
    assert!(again != first && again != last, "a handle is not given twice");
}

#[test]
fn handles_that_are_none_are_refused() {
    let mut client = Client::greeted();
    let file = client.open("file", READ | WRITE | CREATE).handle();
    let directory = client.ask(OPENDIR, &Body::of(".")).handle();
    let closed = client.open("file", READ).handle();
    client.ask(CLOSE, &Body::of(&closed)).done();
    let none = (4, "No such handle".to_owned());
    for handle in [&closed[..], b"", b"\0\0\0", b"long handle", &[255; 4]] {
        assert_eq!(client.read(handle, 0, 1).status(), none);
        assert_eq!(client.write(handle, 0, b"x").status(), none);
        assert_eq!(client.ask(FSTAT, &Body::of(handle)).status(), none);
        assert_eq!(client.ask(READDIR, &Body::of(handle)).status(), none);
        assert_eq!(client.ask(CLOSE, &Body::of(handle)).status(), none);
        assert_eq!(client.extended("fsync@openssh.com", &Body::of(handle)).status(), none);
    }
    assert_eq!(client.ask(READDIR, &Body::of(&file)).status(), none);
    assert_eq!(client.read(&directory, 0, 1).status(), none);
    client.extended("fsync@openssh.com", &Body::of(&file)).done();
}

/// The fields of a request to copy.
fn range(from: &[u8], at: u64, bytes: u64, to: (&[u8], u64)) -> Body {
    Body::of(from).long(at).long(bytes).string(to.0).long(to.1)
}

#[test]
fn files_are_copied_without_the_client() {
    let mut client = Client::greeted();
    let workspace = client.workspace();
    fs::write(workspace.join("from"), "0123456789").unwrap();
    let from = client.open("from", READ).handle();
    let to = client.open("to", READ | WRITE | CREATE).handle();
    client.extended("copy-data", &range(&from, 2, 3, (&to, 1))).done();
    assert_eq!(fs::read(workspace.join("to")).unwrap(), b"\x00234");
    client.extended("copy-data", &range(&from, 0, 0, (&to, 0))).done();
    client.extended("copy-data", &range(&from, 8, 100, (&to, 10))).done();
    client.extended("copy-data", &range(&from, 10, 0, (&to, 20))).done();
    assert_eq!(fs::read(workspace.join("to")).unwrap(), b"012345678989");
    let appending = client.open("to", WRITE | APPEND).handle();
    client.extended("copy-data", &range(&from, 0, 2, (&appending, 0))).done();
    assert_eq!(fs::read(workspace.join("to")).unwrap(), b"01234567898901");
    // What tells no size has content all the same.
    let kernel = client.open("/proc/self/status", READ).handle();
    client.extended("copy-data", &range(&kernel, 0, 0, (&to, 0))).done();
    assert!(fs::read(workspace.join("to")).unwrap().starts_with(b"Name:"));
}

#[test]
fn copies_that_would_not_end_are_refused() {
    let mut client = Client::greeted();
    fs::write(client.workspace().join("file"), "0123456789").unwrap();
    let zero = client.open("/dev/zero", READ).handle();
    let one = client.open("file", READ).handle();
    let other = client.open("./file", READ | WRITE).handle();
    assert_eq!(client.extended("copy-data", &range(&one, 0, 0, (&other, 10))).status().0, 4);
    assert_eq!(client.extended("copy-data", &range(&zero, 0, 0, (&other, 0))).status().0, 4);
    assert_eq!(client.extended("copy-data", &range(&one, 0, 0, (b"none", 0))).status().0, 4);
}

#[test]
fn a_pipe_without_another_end_holds_nothing_up() {
    let mut client = Client::greeted();
    mkfifo(&client.workspace().join("pipe"), Mode::S_IRWXU).unwrap();
    let handle = client.open("pipe", READ).handle();
    assert_eq!(client.read(&handle, 0, 10).status().0, 4);
    client.ask(CLOSE, &Body::of(&handle)).done();
    assert_eq!(client.open("pipe", WRITE).status().0, 4);
    client.ask(REMOVE, &Body::of("pipe")).done();
}

#[test]
fn a_full_disk_is_told_of() {
    let mut client = Client::greeted();
    let handle = client.open("/dev/full", WRITE).handle();
    assert_eq!(client.write(&handle, 0, b"x").status(), (4, "No space left on device".to_owned()));
}

#[test]
fn the_agent_may_what_the_agent_may() {
    let Some(mut client) = Client::of_agent() else {
        eprintln!("the_agent_may_what_the_agent_may: left out, needs root");
        return;
    };
    let denied = (3, "Permission denied".to_owned());
    let secret = client.directory.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(&secret, mode(0o600)).unwrap();
    let roots = client.workspace().join("roots");
    fs::create_dir(&roots).unwrap();
    assert_eq!(client.open("../secret", READ).status(), denied);
    assert_eq!(client.open("roots/new", WRITE | CREATE).status(), denied);
    assert_eq!(client.open("/etc/shadow", READ).status(), denied);
    client.open("/etc/passwd", READ).handle();
    fs::set_permissions(&roots, mode(0o700)).unwrap();
    assert_eq!(client.ask(OPENDIR, &Body::of("roots")).status(), denied);
    client.open("own", WRITE | CREATE).handle();
}
