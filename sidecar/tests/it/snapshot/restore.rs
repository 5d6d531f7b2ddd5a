//! What comes in again, and how.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

use hyper::{Method, StatusCode};
use sandbox_protocol::snapshot::{ExportReport, RestoreReply};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::archives::{Tar, record};
use super::host::{Host, bearer, give, odd_name, sum};
use crate::harness::{PATIENCE, send, until};

const BOTH: &str = "workspace=true&state=true";

/// A tree of everything that an archive keeps.
fn plant(host: &Host) {
    let workspace = host.workspace();
    for folder in ["empty", "deep/er/still", "read only", "ünï"] {
        fs::create_dir_all(workspace.join(folder)).unwrap();
    }
    let long = format!("{}/{}", "deep/er/still", "long".repeat(40));
    for name in ["empty file", "deep/er/file", "ünï/código", "read only/file", &long, "linked"] {
        fs::write(workspace.join(name), name.repeat(1_000)).unwrap();
    }
    fs::write(workspace.join("empty file"), "").unwrap();
    fs::write(workspace.join(odd_name()), "odd").unwrap();
    fs::hard_link(workspace.join("linked"), workspace.join("deep/linked too")).unwrap();
    for (target, name) in
        [("linked", "relative"), ("/etc/passwd", "absolute"), ("../../..", "up"), ("gone", "dangling")]
    {
        symlink(target, workspace.join(name)).unwrap();
    }
    symlink("t".repeat(4_000), workspace.join("far")).unwrap();
    fs::write(host.home().join(".profile"), "export A=1\n").unwrap();
    let holes = File::create(workspace.join("holes")).unwrap();
    for index in 0..60 {
        holes.write_all_at(b"data", index << 20).unwrap();
    }
    holes.set_len(100 << 20).unwrap();
    fs::set_permissions(workspace.join("linked"), Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(workspace.join("deep/er/file"), Permissions::from_mode(0o400)).unwrap();
    own(&workspace);
    own(&host.home());
    for folder in ["read only", "empty"] {
        fs::set_permissions(workspace.join(folder), Permissions::from_mode(0o555)).unwrap();
    }
    for name in ["linked", "deep/er", "deep", "empty"] {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890);
        File::open(workspace.join(name)).unwrap().set_modified(time).unwrap();
    }
}

fn own(path: &std::path::Path) {
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            continue;
        }
        give(&path);
        if path.is_dir() {
            own(&path);
        }
    }
}

#[tokio::test]
async fn what_was_exported_comes_back_as_it_was() {
    let (from, to) = (Host::start().await, Host::start().await);
    plant(&from);
    let (archive, report) = from.export(BOTH).await;
    let expected = from.listing();
    // The two roots are entries as well.
    let entries = expected.len() as u64 + 2;
    assert_eq!(report, ExportReport { entries, bytes: report.bytes, ..ExportReport::default() });
    let reply = to.restore(&archive).await.unwrap();
    assert_eq!(reply, RestoreReply { entries, bytes: report.bytes, skipped: 0 });
    assert_eq!(to.listing(), expected);
    let holes = |host: &Host| fs::metadata(host.workspace().join("holes")).unwrap().blocks();
    assert!(holes(&from) < 10_000 && holes(&to) < 10_000, "holes are still holes");
    // And once more onto itself: read-only directories, links and all are replaced.
    to.write("workspace/newer", "gone after the restore");
    to.restore(&archive).await.unwrap();
    assert_eq!(to.listing(), expected);
}

#[tokio::test]
async fn a_root_that_the_archive_has_not_stays_and_one_that_it_has_is_replaced() {
    let (from, to) = (Host::start().await, Host::start().await);
    from.write("workspace/new", "new");
    to.write("workspace/old", "old");
    to.write("home/kept", "kept");
    let (archive, _) = from.export("workspace=true").await;
    to.restore(&archive).await.unwrap();
    assert_eq!(fs::read(to.workspace().join("new")).unwrap(), b"new");
    assert!(!to.workspace().join("old").exists() && to.home().join("kept").exists());
    let (state, report) = from.export("state=true").await;
    assert_eq!(report.entries, 1);
    to.restore(&state).await.unwrap();
    assert!(to.workspace().join("new").exists() && !to.home().join("kept").exists());
}

#[tokio::test]
async fn archives_of_others_are_taken_too_and_lend_nobody_rights() {
    let host = Host::start().await;
    let archive = Tar::default()
        .entry(b'g', "pax_global_header", "", record("comment", "abcd").as_bytes())
        .with((b'0', "workspace/a/setuid"), "", b"x", |header| header.set_mode(0o6755))
        .with((b'5', "workspace/sticky"), "", b"", |header| header.set_mode(0o3777))
        .entry(b'x', "pax", "", (record("path", "workspace/a/näme") + &record("mtime", "12345.678")).as_bytes())
        .entry(b'0', "ignored", "", b"y")
        .finish();
    let reply = host.restore(&archive).await.unwrap();
    assert_eq!((reply.entries, reply.skipped), (3, 1));
    let found = |name: &str| fs::metadata(host.workspace().join(name)).unwrap();
    assert_eq!(found("a/setuid").mode() & 0o7777, 0o755);
    assert_eq!(found("a").mode() & 0o7777, 0o755);
    assert_eq!(found("sticky").mode() & 0o7777, 0o1777);
    assert_eq!(found("a/näme").mtime(), 12345);
}

#[tokio::test]
async fn a_body_that_breaks_off_changes_nothing() {
    let host = Host::start().await;
    host.write("workspace/old", "old");
    let before = host.listing();
    let archive = Tar::good().entry(b'0', "workspace/much", "", &random(2 << 20)).finish();
    let mut stream = UnixStream::connect(host.socket()).await.unwrap();
    let head = format!(
        "PUT /snapshot?sha256={} HTTP/1.1\r\nhost: s\r\nauthorization: Bearer secret\r\ncontent-length: {}\r\n\r\n",
        sum(&archive),
        archive.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&archive[..archive.len() - 10]).await.unwrap();
    until(|| host.workspace().join(".sandbox-restore").exists()).await;
    drop(stream);
    until(|| host.archivers().is_empty() && host.listing() == before).await;
    host.restore_in_turn(&archive).await.unwrap();
}

#[tokio::test]
async fn one_is_taken_at_a_time() {
    let host = Host::start().await;
    let mut first = UnixStream::connect(host.socket()).await.unwrap();
    let archive = Tar::good().finish();
    let head = format!(
        "PUT /snapshot?sha256={} HTTP/1.1\r\nhost: s\r\nauthorization: Bearer secret\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        sum(&archive),
        archive.len()
    );
    first.write_all(head.as_bytes()).await.unwrap();
    until(|| !host.archivers().is_empty()).await;
    let (status, body) = host.restore(&archive).await.unwrap_err();
    assert_eq!((status, body.error.code.as_str(), body.error.retryable), (429, "busy", true));
    assert_eq!(host.open(BOTH).await.response.status(), StatusCode::TOO_MANY_REQUESTS);
    first.write_all(&archive).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, first.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    host.restore_in_turn(&archive).await.unwrap();
}

#[tokio::test]
async fn a_query_that_makes_no_sense_is_refused() {
    let host = Host::start().await;
    let status = async |method: Method, query: &str, headers: &[(&str, &str)]| {
        send(&host.socket(), method, &format!("/snapshot{query}"), headers, Vec::new()).await.0
    };
    for query in ["", "?workspace=false", "?workspace=yes", "?workspace=true&more=true"] {
        assert_eq!(status(Method::GET, query, &[bearer()]).await, StatusCode::BAD_REQUEST, "{query}");
    }
    for query in ["", "?sha256=00", &format!("?sha256={}", "g".repeat(64))] {
        assert_eq!(status(Method::PUT, query, &[bearer()]).await, StatusCode::BAD_REQUEST, "{query}");
    }
    assert_eq!(status(Method::GET, "?workspace=true", &[]).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(Method::POST, "?workspace=true", &[bearer()]).await, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn what_an_earlier_sidecar_left_is_cleared_at_the_start() {
    let host = Host::prepared(|directory| {
        let staging = directory.join("workspace/.sandbox-restore");
        for folder in ["new", "old"] {
            fs::create_dir_all(staging.join(folder)).unwrap();
        }
        fs::write(staging.join("new/half"), "half").unwrap();
        fs::write(directory.join("workspace/kept"), "kept").unwrap();
        own(&directory.join("workspace"));
    })
    .await;
    assert_eq!(fs::read_dir(host.workspace()).unwrap().count(), 1);
    assert!(host.workspace().join("kept").exists());
}

/// Bytes that do not compress.
pub(super) fn random(bytes: usize) -> Vec<u8> {
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..bytes).map(|_| next()).collect()
}
