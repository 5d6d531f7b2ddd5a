//! What guests do to themselves, the sidecar lives through: it answers `/health` meanwhile, and works afterwards.

use std::time::Duration;

use hyper::{Method, StatusCode};
use sandbox_protocol::exec::{ExecBody, ExecEnd, ExecReply};
use sandbox_protocol::files::{FilesQuery as _, WriteQuery};
use sandbox_protocol::http::ErrorBody;
use sandbox_sidecar::limits::HEALTHCHECK_MAX;

use crate::contained::Contained;
use crate::harness::{TOKEN, body, send};

/// What the sidecar may hold in memory after all of it, in KiB.
const SIDECAR_KB_MAX: u64 = 64 * 1024;

/// Runs `command` for a while and asks for the sidecar's health all along: the answers, and the slowest of them.
async fn while_it_runs(contained: &Contained, command: &str, timeout_ms: u64) -> (ExecReply, Duration) {
    let request = ExecBody { timeout_ms, ..body(command) };
    let mut running = std::pin::pin!(contained.exec(&request));
    let (mut slowest, mut asked) = (Duration::ZERO, 0);
    let (status, bytes) = loop {
        tokio::select! {
            biased;
            ended = &mut running => break ended,
            took = contained.health() => {
                slowest = slowest.max(took);
                asked += 1;
            }
        }
    };
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&bytes));
    eprintln!("{command:.40}: asked {asked} times, the slowest answer took {slowest:?}");
    assert!(asked > 3 && slowest < HEALTHCHECK_MAX, "asked {asked} times, slowest {slowest:?}");
    (serde_json::from_slice(&bytes).unwrap(), slowest)
}

/// The most memory that the sidecar has had, in KiB.
fn peak_kb(contained: &Contained) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", contained.process())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn works(contained: &Contained) {
    assert_eq!(contained.sh("echo works").await, "works\n");
    assert!(peak_kb(contained) < SIDECAR_KB_MAX);
}

/// What keeps the shell waiting was started before there is no process left for it.
const BOMB: &str = "sleep 100 & f() { f | f & }; f; wait";

#[tokio::test]
async fn a_fork_bomb_is_lived_through_and_ended() {
    let Some(contained) = Contained::start("a_fork_bomb_is_lived_through_and_ended").await else { return };
    // Without this bound the bomb would be the machine's.
    let bound = contained.sh("cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2> /dev/null").await;
    assert_eq!(bound.trim(), "1024");
    let (reply, _) = while_it_runs(&contained, BOMB, 3_000).await;
    assert_eq!(reply.ended, ExecEnd::TimedOut);
    works(&contained).await;
}

#[tokio::test]
async fn a_memory_hog_is_killed_and_nothing_else_is() {
    let Some(contained) = Contained::start("a_memory_hog_is_killed_and_nothing_else_is").await else { return };
    let (reply, _) = while_it_runs(&contained, "head -c 2G /dev/zero | tail | wc -c; echo survived", 30_000).await;
    assert!(reply.ended == ExecEnd::Exited && reply.stdout.0.ends_with(b"survived\n"), "{reply:?}");
    works(&contained).await;
}

#[tokio::test]
async fn a_full_disk_is_told_and_costs_nothing_but_what_did_not_fit() {
    let Some(contained) = Contained::start("a_full_disk_is_told_and_costs_nothing_but_what_did_not_fit").await else {
        return;
    };
    let token = format!("Bearer {TOKEN}");
    let put = async |name: &str, bytes: usize| {
        let target = WriteQuery { path: name.into(), ..WriteQuery::default() }.target();
        let headers = [("authorization", token.as_str())];
        send(&contained.socket(), Method::PUT, &target, &headers, vec![b'x'; bytes]).await
    };
    assert_eq!(put("kept", 4 << 20).await.0, StatusCode::CREATED);
    // More than is left: what was there stays, and what came is gone.
    let (status, bytes) = put("kept", 14 << 20).await;
    let error: ErrorBody = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((status.as_u16(), &*error.code, error.retryable), (507, "disk_full", true));
    assert_eq!(contained.sh("ls -A; stat -c %s kept").await, "kept\n4194304\n");
    let (reply, _) = while_it_runs(
        &contained,
        "cat /dev/zero > full; cat /dev/zero > ~/full; cat /dev/zero > /tmp/full; sleep 1",
        30_000,
    )
    .await;
    assert_eq!(reply.ended, ExecEnd::Exited);
    assert_eq!(put("more", 8192).await.0.as_u16(), 507);
    works(&contained).await;
    contained.sh("rm full").await;
    assert_eq!(put("more", 8192).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn a_flood_of_output_is_cut_and_held_by_nobody() {
    let Some(contained) = Contained::start("a_flood_of_output_is_cut_and_held_by_nobody").await else { return };
    let (reply, _) = while_it_runs(&contained, "yes & yes flood >&2", 3_000).await;
    assert!(reply.truncated && reply.ended == ExecEnd::TimedOut);
    works(&contained).await;
}
