//! What is said of an execution, in which order, for each of its ends.

use std::time::Instant;

use serde_json::{Value, json};

use super::link::{Heard, Link, bare, execute, with};
use crate::harness::{Sidecar, lives};

async fn check(message: Value, steps: &[&str]) -> Value {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    let id = message["id"].as_str().unwrap().to_owned();
    link.say(&message).await;
    let story = link.story(&id).await;
    assert_eq!(story.steps(), steps, "{story:?}");
    assert!(story.seqs.is_empty());
    story.last
}

#[tokio::test]
async fn what_ends_well_is_completed_and_has_its_usage() {
    let last = check(
        execute("ok", "echo out; echo err >&2; i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done"),
        &["ack", "status:running", "stdout", "stderr", "status:completed", "result"],
    )
    .await;
    assert_eq!(last["exit_code"], 0);
    assert!(last.get("signal").is_none());
    let usage = &last["resource_usage"];
    // What forked the program counts until it is the program: here, the whole test.
    let forked_from = std::fs::read_to_string("/proc/self/status").unwrap();
    let most_kb = forked_from.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    let most_mb = most_kb.unwrap().trim().parse::<u64>().unwrap().div_ceil(1024) + 20;
    assert!((1..most_mb).contains(&usage["peak_memory_mb"].as_u64().unwrap()), "{last}");
    let (cpu, wall) = (usage["cpu_time_ms"].as_u64().unwrap(), last["duration_ms"].as_u64().unwrap());
    assert!(cpu > 0 && wall > 0, "{last}");
}

#[tokio::test]
async fn another_exit_code_is_a_failure_with_that_code() {
    let last = check(execute("bad", "exit 7"), &["ack", "status:running", "status:failed", "result"]).await;
    assert_eq!(last["exit_code"], 7);
}

#[tokio::test]
async fn a_program_that_a_signal_of_its_own_ends_has_failed_and_has_no_exit_code() {
    let last = check(execute("own", "kill -KILL $$"), &["ack", "status:running", "status:failed", "result"]).await;
    assert_eq!(last["exit_code"], Value::Null);
}

#[tokio::test]
async fn time_that_is_over_ends_the_whole_tree_with_a_result() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    let code = "echo $$; setsid sh -c 'echo $$; exec sleep 1000' & (setsid sh -c '(setsid sh -c \"echo \\$\\$; exec sleep 1000\" &)' &) ; sleep 1000";
    let limits = json!({ "limits": { "timeout_ms": 500, "memory_mb": 256 } });
    link.say(&with(execute("late", code), limits)).await;
    let story = link.story("late").await;
    assert_eq!(story.steps(), ["ack", "status:running", "stdout", "status:timeout", "result"]);
    assert_eq!(story.last["exit_code"], Value::Null);
    assert!(story.last["duration_ms"].as_u64().unwrap() >= 490);
    let pids: Vec<_> = story.stdout.lines().collect();
    assert_eq!(pids.len(), 3);
    assert_eq!(pids.iter().filter(|pid| lives(pid)).count(), 0);
}

#[tokio::test]
async fn cancel_ends_it_at_once() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    link.say(&execute("gone", "echo begun; sleep 1000 & wait")).await;
    let begun = Instant::now();
    while link.message().await["type"] != "stdout" {}
    link.say(&bare("cancel", "gone")).await;
    let story = link.story("gone").await;
    assert_eq!(story.steps(), ["status:cancelled", "result"]);
    assert_eq!(story.last["exit_code"], Value::Null);
    assert!(begun.elapsed().as_secs() < 10);
}

#[tokio::test]
async fn memory_beyond_its_limit_ends_it_as_oom_and_not_as_a_failure() {
    let code = "x = []\nwhile True: x.append(bytearray(8 << 20))";
    let fields = json!({ "language": "python", "code": code, "limits": { "timeout_ms": 30_000, "memory_mb": 64 } });
    let last = check(with(execute("oom", ""), fields), &["ack", "status:running", "status:oom", "result"]).await;
    assert_eq!(last["exit_code"], Value::Null);
    assert!(last["resource_usage"]["peak_memory_mb"].as_u64().unwrap() > 64, "{last}");
}

#[tokio::test]
async fn memory_of_all_processes_counts_together() {
    let code = "import os, time\nfor _ in range(4):\n  if not os.fork():\n    x = bytearray(os.urandom(1 << 20) * 24); time.sleep(1000)\ntime.sleep(1000)";
    let fields = json!({ "language": "python", "code": code, "limits": { "timeout_ms": 30_000, "memory_mb": 64 } });
    check(with(execute("together", ""), fields), &["ack", "status:running", "status:oom", "result"]).await;
}

#[tokio::test]
async fn too_much_output_ends_it_with_an_error_and_without_a_result() {
    let limits = json!({ "limits": { "timeout_ms": 30_000, "memory_mb": 256, "max_output_bytes": 1_000 } });
    let last = check(with(execute("loud", "yes"), limits.clone()), &["ack", "status:running", "stdout", "error"]).await;
    assert_eq!((&last["code"], &last["retryable"]), (&json!("OUTPUT_LIMIT"), &json!(false)));
    let exact = with(execute("exact", "head -c 600 /dev/zero; head -c 400 /dev/zero >&2"), limits);
    check(exact, &["ack", "status:running", "stdout", "stderr", "status:completed", "result"]).await;
}

#[tokio::test]
async fn a_program_that_is_gone_before_all_was_read_has_written_too_much_all_the_same() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    let limits = json!({ "limits": { "timeout_ms": 30_000, "memory_mb": 256, "max_output_bytes": 5 } });
    for number in 0..30 {
        let id = format!("brief-{number}");
        link.say(&with(execute(&id, "printf 123456"), limits.clone())).await;
        let story = link.story(&id).await;
        assert_eq!(story.last["code"], json!("OUTPUT_LIMIT"), "{:?}", story.steps());
    }
}

#[tokio::test]
async fn the_end_of_the_sidecar_is_an_infrastructure_error() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    link.say(&execute("cut", "echo begun; sleep 1000")).await;
    while link.message().await["type"] != "stdout" {}
    sidecar.stop.cancel();
    let (story, ()) = tokio::join!(link.story("cut"), sidecar.engine.stop());
    assert_eq!((story.steps(), &story.last["code"]), (vec!["error"], &json!("INTERNAL_ERROR")));
    assert_eq!(link.hear().await, Heard::Closed(Some(1001)));
}

#[tokio::test]
async fn many_executions_of_one_connection_end_by_themselves() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    for index in 0..20 {
        link.say(&execute(&index.to_string(), &format!("echo {index}; exit {index}"))).await;
    }
    let mut ended = vec![None; 20];
    while ended.iter().any(Option::is_none) {
        let message = link.message().await;
        let index: usize = message["id"].as_str().unwrap().parse().unwrap();
        if message["type"] == "stdout" {
            assert_eq!(message["data"], format!("{index}\n"));
        }
        if message["type"] == "result" {
            assert_eq!(ended[index].replace(message["exit_code"].as_u64()), None);
        }
    }
    assert_eq!(ended, (0..20).map(|index| Some(Some(index))).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_character_that_comes_in_pieces_is_told_whole() {
    let code = "printf '\\360\\237'; sleep 0.05; printf '\\230\\200 \\303'; sleep 0.05; printf '\\251'; printf '\\377'";
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    link.say(&execute("utf", code)).await;
    assert_eq!(link.story("utf").await.stdout, "😀 é\u{fffd}");
}

#[tokio::test]
async fn a_ping_is_answered_with_the_load() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    link.say(&execute("busy", "sleep 1000")).await;
    for _ in 0..2 {
        link.message().await;
    }
    link.say(&json!({ "v": 1, "type": "ping", "ts": super::link::TS })).await;
    let pong = link.message().await;
    assert_eq!((&pong["type"], pong.get("id")), (&json!("pong"), None));
    assert_eq!(pong["load"], json!({ "active_executions": 1, "queue_depth": 0 }));
    assert!(pong["ts"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn a_plain_clients_executions_end_with_its_connection() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    link.say(&with(execute("mine", "echo $$; sleep 1000"), json!({}))).await;
    let pid = loop {
        let message = link.message().await;
        if message["type"] == "stdout" {
            break message["data"].as_str().unwrap().trim().to_owned();
        }
    };
    drop(link);
    sidecar.until_running(0).await;
    assert!(!lives(&pid));
}
