//! What goes beyond version 1, for clients that ask for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sandbox_process::websocket::tungstenite::Message;
use sandbox_protocol::fsp::{Frame, Kind, Stream};
use sandbox_protocol::limits::FSP_STDIN_WINDOW_BYTES;
use serde_json::{Value, json};

use super::link::{Heard, Link, Story, bare, execute, with};
use crate::harness::{Sidecar, lives, until};

fn alone(id: &str, code: &str) -> Value {
    with(execute(id, code), json!({ "cwd": "", "limits": { "timeout_ms": 30_000, "memory_mb": 0 } }))
}

#[tokio::test]
async fn numbers_are_contiguous_from_one_and_a_dropped_link_loses_and_doubles_nothing() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "replay, cwd").await;
    link.say(&alone("kept", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.05; done; exit 3")).await;
    let (mut story, mut last) = (Story::default(), 0);
    while last < 3 {
        let message = link.message().await;
        last = message["seq"].as_u64().unwrap_or(last);
        story.add(message);
    }
    drop(link);
    let mut link = Link::open(&sidecar, "replay").await;
    link.say(&with(bare("attach", "kept"), json!({ "after_seq": last }))).await;
    let attached = link.message().await;
    assert_eq!((&attached["type"], &attached["next_seq"]), (&json!("attached"), &json!(last + 1)));
    while story.last.is_null() {
        story.add(link.message().await);
    }
    assert_eq!(story.stdout, "1\n2\n3\n4\n5\n6\n");
    assert_eq!(story.seqs, (1..=story.seqs.len() as u64).collect::<Vec<_>>());
    assert_eq!(story.last["exit_code"], 3);
    // And once more, from the beginning, after its end.
    link.say(&with(bare("attach", "kept"), json!({ "after_seq": 0 }))).await;
    link.message().await;
    assert_eq!(link.story("kept").await.stdout, story.stdout);
}

#[tokio::test]
async fn an_execute_that_is_said_twice_runs_once() {
    let sidecar = Sidecar::start();
    let message = alone("once", "echo ran >> ran; wc -l < ran");
    for _ in 0..3 {
        let mut link = Link::open(&sidecar, "replay, cwd").await;
        link.say(&message).await;
        assert_eq!(link.story("once").await.stdout, "1\n");
    }
    let mut link = Link::open(&sidecar, "replay, cwd").await;
    link.say(&alone("once", "echo other")).await;
    assert_eq!(link.error().await, (Some("once".into()), "INVALID_REQUEST".into(), false));
}

#[tokio::test]
async fn a_detached_execution_goes_on_and_tells_what_it_kept() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "replay, cwd").await;
    link.say(&with(
        alone("alone", "echo begun; until [ -e go ]; do sleep 0.01; done; echo end"),
        json!({ "detach": true }),
    ))
    .await;
    assert_eq!(link.message().await["type"], "ack");
    assert_eq!(link.message().await["type"], "detached");
    drop(link);
    std::fs::write(sidecar.workspace().join("go"), "").unwrap();
    sidecar.until_running(0).await;
    let mut link = Link::open(&sidecar, "replay").await;
    link.say(&with(bare("attach", "alone"), json!({ "after_seq": 0 }))).await;
    link.message().await;
    assert_eq!(link.story("alone").await.stdout, "begun\nend\n");
    link.say(&with(bare("attach", "none"), json!({ "after_seq": 0 }))).await;
    assert_eq!(link.error().await, (Some("none".into()), "UNKNOWN_EXECUTION".into(), false));
}

#[tokio::test]
async fn what_is_detached_in_a_directory_may_take_a_day_and_not_a_moment_more() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "replay, cwd").await;
    let lasting = |id: &str, timeout_ms: u64, detach: bool| {
        let limits = json!({ "timeout_ms": timeout_ms, "memory_mb": 0 });
        with(alone(id, "true"), json!({ "detach": detach, "limits": limits }))
    };
    link.say(&lasting("day", 86_400_000, true)).await;
    assert_eq!(link.message().await["type"], "ack");
    assert_eq!(link.message().await["type"], "detached");
    for (id, timeout_ms, detach) in [("more", 86_400_001, true), ("attached", 300_001, false)] {
        link.say(&lasting(id, timeout_ms, detach)).await;
        assert_eq!(link.error().await, (Some(id.into()), "INVALID_REQUEST".into(), false));
    }
}

#[tokio::test]
async fn detach_is_answered_and_the_rest_is_there_for_the_next() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "replay, cwd").await;
    link.say(&alone("away", "echo 1; until [ -e go ]; do sleep 0.01; done; echo 2")).await;
    while link.message().await["type"] != "stdout" {}
    link.say(&bare("detach", "away")).await;
    assert_eq!(link.message().await["type"], "detached");
    std::fs::write(sidecar.workspace().join("go"), "").unwrap();
    sidecar.until_running(0).await;
    // The same connection may come back to it, once it has been let go of.
    link.say(&with(bare("attach", "away"), json!({ "after_seq": 2 }))).await;
    assert_eq!(link.message().await["type"], "attached");
    assert_eq!(link.story("away").await.stdout, "2\n");
}

#[tokio::test]
async fn what_is_not_kept_any_more_is_announced() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "replay, cwd").await;
    let limits = json!({ "timeout_ms": 30_000, "memory_mb": 0, "max_output_bytes": 1 << 30 });
    let code = "head -c 8000000 /dev/zero | tr '\\0' x; echo; echo end";
    link.say(&with(alone("gap", code), json!({ "detach": true, "limits": limits }))).await;
    for kind in ["ack", "detached"] {
        assert_eq!(link.message().await["type"], kind);
    }
    sidecar.until_running(0).await;
    link.say(&with(bare("attach", "gap"), json!({ "after_seq": 1 }))).await;
    let mut written = 0;
    let mut next = 2;
    loop {
        let message = link.message().await;
        match message["type"].as_str().unwrap() {
            "attached" => continue,
            "gap" => {
                assert_eq!(message["from_seq"], next);
                next = message["to_seq"].as_u64().unwrap() + 1;
                written = message["bytes"].as_u64().unwrap();
                continue;
            }
            "stdout" => written += message["data"].as_str().unwrap().len() as u64,
            "result" => break,
            _ => {}
        }
        assert_eq!(message["seq"], next);
        next += 1;
    }
    assert_eq!(written, 8_000_005);
}

#[tokio::test]
async fn output_stays_within_what_was_granted() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "credit").await;
    let limits = json!({ "timeout_ms": 30_000, "memory_mb": 256, "max_output_bytes": 1 << 30 });
    let code = "head -c 1000000 /dev/zero | tr '\\0' x";
    link.say(&with(execute("slow", code), json!({ "credit_bytes": 100_000, "limits": limits }))).await;
    let mut received = 0;
    while received < 100_000 {
        received += link.message().await["data"].as_str().map_or(0, str::len);
    }
    assert!(received < 100_000 + 65_536);
    assert_eq!(link.hear_within(std::time::Duration::from_millis(300)).await, None);
    // Other messages pass.
    link.say(&json!({ "v": 1, "type": "ping", "ts": super::link::TS })).await;
    assert_eq!(link.message().await["type"], "pong");
    link.say(&with(bare("credit", "slow"), json!({ "bytes": 10_000_000 }))).await;
    assert_eq!(link.story("slow").await.stdout.len() + received, 1_000_000);
}

#[tokio::test]
async fn binary_frames_carry_bytes_as_they_are_both_ways() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "binary, stdin, replay").await;
    link.say(&with(execute("bin", "cat; cat /nonexistent >&2"), json!({ "stream_stdin": true }))).await;
    let bytes: Bytes = (0..=255).collect::<Vec<u8>>().into();
    let frame = |eof| Frame { kind: Kind::Stdin { eof }, id: "bin".into(), seq: None, data: bytes.clone() };
    link.send(Message::Binary(frame(false).encode())).await;
    link.send(Message::Binary(frame(true).encode())).await;
    let (mut stdout, mut granted, mut numbers) = (Vec::new(), 0, Vec::new());
    loop {
        match link.hear().await {
            Heard::Frame(frame) => {
                numbers.extend(frame.seq);
                if frame.kind == Kind::Output(Stream::Stdout) {
                    stdout.extend_from_slice(&frame.data);
                }
            }
            Heard::Message(message) => {
                numbers.extend(message["seq"].as_u64());
                granted += message["bytes"].as_u64().unwrap_or_default();
                if message["type"] == "result" {
                    break;
                }
            }
            closed @ Heard::Closed(_) => panic!("{closed:?}"),
        }
    }
    assert_eq!((stdout, granted), ([&bytes[..], &bytes[..]].concat(), 512));
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn stdin_that_is_not_read_is_taken_up_to_its_window_and_no_further() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "stdin").await;
    link.say(&with(execute("deaf", "sleep 1000"), json!({ "stream_stdin": true }))).await;
    for _ in 0..2 {
        link.message().await;
    }
    let piece = |bytes: usize| with(bare("stdin", "deaf"), json!({ "base64": STANDARD.encode(vec![0; bytes]) }));
    let (mut granted, mut sent) = (FSP_STDIN_WINDOW_BYTES, 0);
    while granted > 0 {
        let bytes = granted.min(65_536);
        link.say(&piece(bytes as usize)).await;
        (granted, sent) = (granted - bytes, sent + bytes);
        while let Some(Heard::Message(message)) = link.hear_within(std::time::Duration::from_millis(200)).await {
            assert_eq!(message["type"], "stdin_credit");
            granted += message["bytes"].as_u64().unwrap();
        }
    }
    // The window, and what the pipe itself holds.
    assert!(sent <= FSP_STDIN_WINDOW_BYTES + 2 * 65_536, "{sent}");
    link.say(&piece(1)).await;
    assert_eq!(link.error().await, (None, "INVALID_REQUEST".into(), false));
    link.say(&bare("cancel", "deaf")).await;
    assert_eq!(link.story("deaf").await.steps(), ["status:cancelled", "result"]);
}

#[tokio::test]
async fn a_signal_reaches_the_group_and_the_one_that_ended_it_is_told() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "signal").await;
    link.say(&execute("sig", "trap 'echo caught' USR1; echo ready; while :; do sleep 0.01; done")).await;
    while link.message().await["type"] != "stdout" {}
    link.say(&with(bare("signal", "sig"), json!({ "signal": "USR1" }))).await;
    // The group's sleep dies of it, which the shell may mention.
    while link.message().await["data"] != "caught\n" {}
    link.say(&with(bare("signal", "sig"), json!({ "signal": "TERM" }))).await;
    let story = link.story("sig").await;
    assert_eq!((&story.last["signal"], &story.last["exit_code"]), (&json!(15), &Value::Null));
    assert_eq!(story.steps().last_chunk(), Some(&["status:failed", "result"]));
    link.say(&with(bare("signal", "x"), json!({ "signal": "BREAK" }))).await;
    assert_eq!(link.error().await.1, "INVALID_REQUEST");
}

#[tokio::test]
async fn with_a_directory_it_runs_there_and_what_it_leaves_running_goes_on() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "cwd").await;
    link.say(&alone("here", "pwd; (setsid sh -c 'echo $$ > pid; exec sleep 1000' > /dev/null 2>&1 &)")).await;
    assert_eq!(link.story("here").await.stdout, format!("{}\n", sidecar.workspace().display()));
    let pid = sidecar.file("pid").await;
    until(|| lives(&pid)).await;
    sidecar.sh(&format!("kill {pid}")).await;
    link.say(&with(alone("out", "true"), json!({ "cwd": "../.." }))).await;
    assert_eq!(link.error().await, (Some("out".into()), "INVALID_REQUEST".into(), false));
}
