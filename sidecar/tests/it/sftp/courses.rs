//! How sessions begin and end, and what ends them.

use sandbox_sidecar::limits::{SFTP_DATA_BYTES_MAX, SFTP_HANDLES_MAX, SFTP_PACKET_BYTES_MAX};

use super::client::{Body, Client, Fields, REALPATH, STAT};

#[test]
fn the_server_tells_its_version_and_what_it_knows_besides() {
    let mut client = Client::silent(false);
    let told = client.greet();
    let mut fields = Fields(&told);
    assert_eq!(fields.number(), 3);
    let extensions: Vec<_> =
        std::iter::from_fn(|| (!fields.0.is_empty()).then(|| (fields.text(), fields.text()))).collect();
    let extensions: Vec<_> = extensions.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
    let expected = [
        ("posix-rename@openssh.com", "1"),
        ("statvfs@openssh.com", "2"),
        ("fstatvfs@openssh.com", "2"),
        ("hardlink@openssh.com", "1"),
        ("fsync@openssh.com", "1"),
        ("lsetstat@openssh.com", "1"),
        ("limits@openssh.com", "1"),
        ("expand-path@openssh.com", "1"),
        ("copy-data", "1"),
        ("home-directory", "1"),
        ("users-groups-by-id@openssh.com", "1"),
    ];
    assert_eq!(extensions, expected);
    let limits = client.extended("limits@openssh.com", &Body::default());
    let mut fields = Fields(&limits.1);
    let bytes = [SFTP_PACKET_BYTES_MAX, SFTP_DATA_BYTES_MAX, SFTP_DATA_BYTES_MAX, SFTP_HANDLES_MAX];
    assert_eq!(bytes.map(|_| fields.long()), bytes.map(|bytes| bytes as u64));
    let ended = client.end();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
}

#[test]
fn requests_that_nobody_knows_are_answered_and_the_session_goes_on() {
    let mut client = Client::greeted();
    for kind in [0, 2, 21, 101, 199, 202, 255] {
        assert_eq!(client.ask(kind, &Body::of("what")).status().0, 8, "{kind}");
    }
    assert_eq!(client.extended("unheard@of.example", &Body::of("x")).status().0, 8);
    client.ask(REALPATH, &Body::of(".").string("what follows is passed over")).name();
}

#[test]
fn many_requests_at_once_are_answered_each_in_their_order() {
    let mut client = Client::greeted();
    let requests: Vec<u8> = (0..3_000).flat_map(|id| Body::of("/").packet(STAT, id)).collect();
    client.send(&requests);
    for id in 0..3_000_u32 {
        let (kind, rest) = client.receive();
        assert_eq!((kind, &rest[..4]), (105, &id.to_be_bytes()[..]));
    }
}

#[test]
fn a_packet_is_as_long_as_is_announced_and_no_longer() {
    let mut client = Client::greeted();
    let filled = |bytes: usize| Body::of("/").string(vec![0; bytes - 5 - 5 - 4]).packet(STAT, 7);
    let longest = filled(SFTP_PACKET_BYTES_MAX);
    assert_eq!(longest.len(), 4 + SFTP_PACKET_BYTES_MAX);
    client.send(&longest);
    client.send(&longest);
    assert_eq!((client.receive().0, client.receive().0), (105, 105));
    client.send(&filled(SFTP_PACKET_BYTES_MAX + 1)[..9]);
    ended_badly(client, "262145 bytes");
}

#[test]
fn what_is_no_sftp_ends_the_session() {
    for (bytes, why) in [
        (&b"\0\0\0\0"[..], "0 bytes"),
        (b"GET / HTTP/1.1\r\n", "bytes"),
        (b"\xff\xff\xff\xff", "4294967295 bytes"),
        (b"\0\0\0\x01\x11", "cannot be read"),
        (b"\0\0\0\x09\x11\0\0\0\x01\0\0\0\x01", "cannot be read"),
        (b"\0\0\0\x09\x11\0\0\0\x01\xff\xff\xff\xff", "cannot be read"),
        (b"\0\0\0\x09\x11\0\0\0\x01", "ends within a packet"),
        (b"\0\0", "ends within a packet"),
    ] {
        let mut client = Client::greeted();
        client.send(bytes);
        ended_badly(client, why);
    }
    let mut client = Client::silent(false);
    client.send(&Body::of("/").packet(STAT, 1));
    ended_badly(client, "before the client's version");
}

fn ended_badly(client: Client, why: &str) {
    let ended = client.end();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && told.contains(why), "{told:?}, not {why:?}");
    assert!(ended.stdout.is_empty());
}

#[test]
fn a_workspace_that_is_not_there_is_told_of() {
    let mut command = std::process::Command::new(crate::program::PROGRAM);
    let ended = command.args(["serve-sftp", "--workspace", "/no/such/workspace"]).output().unwrap();
    assert!(!ended.status.success() && String::from_utf8(ended.stderr).unwrap().contains("cannot enter the workspace"));
}
