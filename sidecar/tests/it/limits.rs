//! The bounds of the edge, on both sides.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use hyper::{Method, StatusCode};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use sandbox_protocol::exec::{ByteText, ExecBody};
use sandbox_protocol::fsp::Load;
use sandbox_protocol::limits::{
    ENV_VAR_BYTES_MAX, EXEC_BODY_BYTES_MAX, EXEC_COMMAND_BYTES_MAX, EXEC_TIMEOUT_MS_MAX, FSP_QUEUED_MAX,
    FSP_RUNNING_MAX,
};
use sandbox_sidecar::limits::{HEADER_BYTES_MAX, HEADERS_MAX};

use crate::harness::{Sidecar, TOKEN, body, named, post, send, text, until};

/// A request of exactly `bytes` bytes.
fn sized(bytes: usize) -> Vec<u8> {
    let mut request = serde_json::to_vec(&body("true")).unwrap();
    request.resize(bytes, b' ');
    request
}

#[tokio::test]
async fn a_body_is_read_up_to_its_bound() {
    let sidecar = Sidecar::start();
    let (status, _) = post(&sidecar.socket, TOKEN, sized(EXEC_BODY_BYTES_MAX)).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = post(&sidecar.socket, TOKEN, sized(EXEC_BODY_BYTES_MAX + 1)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn headers_are_read_up_to_their_bounds() {
    let sidecar = Sidecar::start();
    let status =
        async |headers: &[(&str, &str)]| send(&sidecar.socket, Method::GET, "/health", headers, Vec::new()).await.0;
    assert_eq!(status(&[("x", &"v".repeat(HEADER_BYTES_MAX / 2))]).await, StatusCode::OK);
    assert_eq!(status(&[("x", &"v".repeat(HEADER_BYTES_MAX))]).await, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    // The client adds its host's name and, for an empty body, nothing else.
    assert_eq!(status(&vec![("x", "v"); HEADERS_MAX - 1]).await, StatusCode::OK);
    assert_eq!(status(&vec![("x", "v"); HEADERS_MAX]).await, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}

#[tokio::test]
async fn the_longest_command_runs_and_a_longer_one_is_refused() {
    let sidecar = Sidecar::start();
    let longest = format!("echo ran{}", " ".repeat(EXEC_COMMAND_BYTES_MAX - "echo ran".len()));
    assert_eq!(text(&sidecar.sh(&longest).await.stdout), "ran\n");
    assert_eq!(sidecar.refusal(&body(&format!("{longest} "))).await.0, 400);
}

#[tokio::test]
async fn the_largest_environment_that_a_body_holds_reaches_the_command() {
    let value = "v".repeat(ENV_VAR_BYTES_MAX - 3);
    let env: BTreeMap<_, _> = (10..40).map(|index| (format!("V{index}"), value.clone())).collect();
    let reply = Sidecar::start().exec(&ExecBody { env, ..body("echo ${#V10} ${#V39}") }).await.unwrap();
    assert_eq!(text(&reply.stdout), format!("{0} {0}\n", value.len()));
}

#[tokio::test]
async fn the_largest_stdin_that_a_body_holds_reaches_the_command() {
    let stdin = ByteText(vec![b'x'; (EXEC_BODY_BYTES_MAX - 1_024) / 4 * 3]);
    let reply = Sidecar::start().exec(&ExecBody { stdin: stdin.clone(), ..body("cat") }).await.unwrap();
    assert!(reply.stdout == stdin);
}

#[tokio::test]
async fn more_time_than_may_be_asked_for_is_refused() {
    let sidecar = Sidecar::start();
    sidecar.exec(&ExecBody { timeout_ms: EXEC_TIMEOUT_MS_MAX, ..body("true") }).await.unwrap();
    let refusal = sidecar.refusal(&ExecBody { timeout_ms: EXEC_TIMEOUT_MS_MAX + 1, ..body("true") }).await;
    assert_eq!(refusal, (400, "bad_request".to_owned()));
}

#[tokio::test]
async fn as_many_commands_run_and_wait_as_may_and_the_next_is_told_to_come_back() {
    let sidecar = Sidecar::start();
    // Waits in the kernel, and takes no processor for it.
    let go = sidecar.workspace().join("go");
    mkfifo(&go, Mode::S_IRWXU | Mode::S_IRWXG | Mode::S_IRWXO).unwrap();
    std::fs::set_permissions(&go, Permissions::from_mode(0o666)).unwrap();
    let mut gate = std::fs::OpenOptions::new().read(true).write(true).open(&go).unwrap();
    let command = "read line < go";
    let all: Vec<_> = (0..FSP_RUNNING_MAX + FSP_QUEUED_MAX)
        .map(|index| {
            // Those that wait for a place are quick once they have one.
            let command = if index < FSP_RUNNING_MAX { command } else { "true" };
            let engine = sidecar.engine.clone();
            tokio::spawn(async move { engine.execute(named(&index.to_string(), command)).await })
        })
        .collect();
    sidecar.until_running(FSP_RUNNING_MAX + FSP_QUEUED_MAX).await;
    until(|| sidecar.engine.load() == Load { active_executions: FSP_RUNNING_MAX, queue_depth: FSP_QUEUED_MAX }).await;
    let (status, error) = sidecar.exec(&body("true")).await.unwrap_err();
    assert_eq!((status, error.code.as_str(), error.retryable), (429, "busy", true));
    assert_eq!(sidecar.refusal(&ExecBody { attach_only: true, ..body("true") }).await.0, 400);
    // Each takes one line, whenever it comes to it.
    gate.write_all(&[b'\n'; FSP_RUNNING_MAX]).unwrap();
    for one in all {
        assert_eq!(one.await.unwrap().unwrap().exit_code, 0);
    }
    sidecar.sh("true").await;
}
