//! What goes out, from under running processes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;

use http_body_util::BodyExt as _;
use hyper::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use tokio::time::timeout;

use super::host::{Host, is_root};
use super::restore::random;
use crate::harness::{PATIENCE, TOKEN, body, post, until};

const WORKSPACE: &str = "workspace=true";

#[tokio::test]
async fn what_is_not_the_agents_to_read_is_left_out_and_counted() {
    if !is_root("what_is_not_the_agents_to_read_is_left_out_and_counted") {
        return;
    }
    let (host, other) = (Host::start().await, Host::start().await);
    host.write("workspace/mine", "mine");
    fs::write(host.workspace().join("roots"), "secret").unwrap();
    fs::set_permissions(host.workspace().join("roots"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(host.workspace().join("lost+found")).unwrap();
    fs::set_permissions(host.workspace().join("lost+found"), Permissions::from_mode(0o700)).unwrap();
    let (archive, report) = host.export(WORKSPACE).await;
    assert_eq!((report.entries, report.unreadable, report.skipped), (2, 2, 0));
    assert!(!zstd::decode_all(&archive[..]).unwrap().windows(6).any(|bytes| bytes == b"secret"));
    // What is not the agent's to move stays beside what was restored.
    fs::create_dir(other.workspace().join("lost+found")).unwrap();
    other.restore(&archive).await.unwrap();
    let mut names: Vec<_> = fs::read_dir(other.workspace()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["lost+found", "mine"]);
}

#[tokio::test]
async fn sockets_and_fifos_are_left_out_and_counted_and_nobody_waits_for_them() {
    let host = Host::start().await;
    mkfifo(&host.workspace().join("fifo"), Mode::S_IRUSR).unwrap();
    let _listener = UnixListener::bind(host.workspace().join("socket")).unwrap();
    let (_, report) = host.export(WORKSPACE).await;
    assert_eq!((report.entries, report.skipped, report.unreadable), (1, 2, 0));
}

#[tokio::test]
async fn files_that_change_while_they_are_read_leave_a_whole_archive_and_their_writers_go_on() {
    let (host, other) = (Host::start().await, Host::start().await);
    let command = "
        echo $$ > pid
        until [ -e enough ]; do
            head -c 3000000 /dev/zero > changes; : > changes
            mkdir -p come; echo go > come/go; rm -r come
            mv here there 2> /dev/null || mv there here 2> /dev/null || echo moves > here
        done";
    let request = serde_json::to_vec(&body(command)).unwrap();
    let socket = host.socket();
    let running = tokio::spawn(async move { post(&socket, TOKEN, request).await.0 });
    until(|| host.workspace().join("changes").exists()).await;
    for _ in 0..10 {
        let (archive, _) = host.export(WORKSPACE).await;
        other.restore(&archive).await.unwrap();
    }
    assert!(!running.is_finished());
    host.sh("touch enough").await;
    assert_eq!(running.await.unwrap(), StatusCode::OK);
}

/// A host with more to export than lies in pipes and buffers.
async fn full() -> Host {
    let host = Host::start().await;
    for index in 0..8 {
        host.write(&format!("workspace/random-{index}"), random(4 << 20));
    }
    host
}

#[tokio::test]
async fn an_export_whose_client_goes_away_ends() {
    let host = full().await;
    let mut streaming = host.open(WORKSPACE).await;
    assert_eq!(streaming.response.status(), StatusCode::OK);
    streaming.response.body_mut().frame().await.unwrap().unwrap();
    assert!(!host.archivers().is_empty());
    assert_eq!(host.open(WORKSPACE).await.response.status(), StatusCode::TOO_MANY_REQUESTS);
    drop(streaming);
    until(|| host.archivers().is_empty()).await;
    // Its place is free again as soon as the sidecar has seen it end.
    let freed = async { while host.open(WORKSPACE).await.response.status() != StatusCode::OK {} };
    timeout(PATIENCE, freed).await.unwrap();
}

#[tokio::test]
async fn an_export_whose_process_dies_has_no_end() {
    let host = full().await;
    let mut streaming = host.open(WORKSPACE).await;
    streaming.response.body_mut().frame().await.unwrap().unwrap();
    for pid in host.archivers() {
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    let rest = timeout(PATIENCE, streaming.response.body_mut().collect()).await.unwrap();
    assert!(rest.is_err(), "a cut stream must not look whole");
}

#[tokio::test]
async fn an_export_of_what_is_not_there_says_so_before_its_first_byte() {
    let host = Host::start().await;
    fs::remove_dir(host.home()).unwrap();
    let status = async |query: &str| host.open(query).await.response.status();
    assert_eq!(status("state=true").await, StatusCode::CONFLICT);
    assert_eq!(status(WORKSPACE).await, StatusCode::OK);
}
