//! What is refused, with which code, and that the connection lives on.

use futures::SinkExt as _;
use sandbox_process::websocket::tungstenite::Message;
use sandbox_protocol::limits::{FSP_CUT_BYTES_MAX, FSP_MESSAGE_BYTES_MAX};
use sandbox_sidecar::limits::FSP_CONNECTIONS_MAX;
use serde_json::{Value, json};

use super::link::{Heard, Link, TS, bare, execute, with};
use crate::harness::{Sidecar, TOKEN};

/// Each is refused as said, and after all of them the connection is as good as new.
async fn check(extensions: &str, cases: Vec<(Message, Option<&str>, &str)>) {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, extensions).await;
    for (message, id, code) in cases {
        let what = format!("{message:?}").chars().take(200).collect::<String>();
        link.send(message).await;
        let (found_id, found, retryable) = link.error().await;
        assert_eq!((found_id.as_deref(), found.as_str(), retryable), (id, code, false), "{what}");
    }
    link.say(&execute("after", "echo lives")).await;
    assert_eq!(link.story("after").await.stdout, "lives\n");
}

fn invalid(message: Value) -> (Message, Option<&'static str>, &'static str) {
    (Message::text(message.to_string()), Some("x"), "INVALID_REQUEST")
}

fn anonymous(text: impl Into<String>) -> (Message, Option<&'static str>, &'static str) {
    (Message::text(text.into()), None, "INVALID_REQUEST")
}

#[tokio::test]
async fn what_is_no_message_of_the_protocol_is_invalid() {
    let cases = vec![
        anonymous(""),
        anonymous("{"),
        anonymous("[]"),
        anonymous("null"),
        anonymous("\u{0}"),
        anonymous(json!({ "v": 1, "type": "ping" }).to_string()),
        anonymous(json!({ "type": "ping", "ts": TS }).to_string()),
        anonymous(json!({ "v": 2, "type": "ping", "ts": TS }).to_string()),
        anonymous(json!({ "v": "1", "type": "ping", "ts": TS }).to_string()),
        anonymous(json!({ "v": 1, "type": "ping", "ts": "yesterday" }).to_string()),
        anonymous(json!({ "v": 1, "type": "stdout", "ts": TS, "data": "" }).to_string()),
        anonymous(json!({ "v": 1, "type": "cancel", "ts": TS }).to_string()),
        anonymous(json!({ "v": 1, "type": "cancel", "ts": TS, "id": 7 }).to_string()),
        anonymous(json!({ "v": 1, "type": "cancel", "ts": TS, "id": "two words" }).to_string()),
        (Message::binary(vec![1, 2, 3]), None, "INVALID_REQUEST"),
        invalid(with(execute("x", "true"), json!({ "v": 2 }))),
        invalid(with(execute("x", "true"), json!({ "type": "run" }))),
    ];
    check("", cases).await;
}

#[tokio::test]
async fn an_execute_that_lacks_or_exceeds_is_invalid() {
    let limits = |limits: Value| with(execute("x", "true"), json!({ "limits": limits }));
    let cases = vec![
        invalid(with(execute("x", "true"), json!({ "limits": null }))),
        invalid(limits(json!({ "memory_mb": 256 }))),
        invalid(limits(json!({ "timeout_ms": 1_000 }))),
        invalid(limits(json!({ "timeout_ms": 0, "memory_mb": 256 }))),
        invalid(limits(json!({ "timeout_ms": 300_001, "memory_mb": 256 }))),
        invalid(limits(json!({ "timeout_ms": 1_000, "memory_mb": 0 }))),
        invalid(limits(json!({ "timeout_ms": 1_000, "memory_mb": 1_025 }))),
        invalid(limits(json!({ "timeout_ms": -1, "memory_mb": 256 }))),
        invalid(limits(json!({ "timeout_ms": 1_000, "memory_mb": 256, "cpu_shares": 1 }))),
        invalid(limits(json!({ "timeout_ms": 1_000, "memory_mb": 256, "max_output_bytes": 0 }))),
        invalid(with(execute("x", "true"), json!({ "code": null }))),
        invalid(with(execute("x", "true"), json!({ "code": "a\u{0}b" }))),
        invalid(with(execute("x", "true"), json!({ "code": "x".repeat(1024 * 1024 + 1) }))),
        invalid(with(execute("x", "true"), json!({ "stdin": "x".repeat(1024 * 1024 + 1) }))),
        invalid(with(execute("x", "true"), json!({ "env": { "A=B": "" } }))),
        invalid(with(execute("x", "true"), json!({ "session_id": "s" }))),
        // What only an extension brings is refused where that was not agreed on, and not passed over.
        invalid(with(execute("x", "true"), json!({ "cwd": "." }))),
        invalid(with(execute("x", "true"), json!({ "detach": true }))),
        invalid(with(execute("x", "true"), json!({ "stream_stdin": true }))),
        invalid(with(execute("x", "true"), json!({ "credit_bytes": 1 }))),
        invalid(bare("attach", "x")),
        invalid(bare("signal", "x")),
    ];
    check("", cases).await;
    let most = json!({ "timeout_ms": 300_000, "memory_mb": 1_024, "cpu_shares": 262_144 });
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    link.say(&with(execute("most", "true"), json!({ "limits": most, "unknown": "passed over" }))).await;
    assert_eq!(link.story("most").await.last["exit_code"], 0);
}

#[tokio::test]
async fn an_unknown_language_and_an_unknown_execution_have_their_own_codes() {
    let cases = vec![
        (
            Message::text(with(execute("x", ""), json!({ "language": "rust" })).to_string()),
            Some("x"),
            "LANGUAGE_NOT_SUPPORTED",
        ),
        (Message::text(bare("cancel", "x").to_string()), Some("x"), "UNKNOWN_EXECUTION"),
    ];
    check("", cases).await;
}

#[tokio::test]
async fn an_error_about_what_runs_does_not_bear_its_id() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    link.say(&execute("x", "sleep 1000")).await;
    for _ in 0..2 {
        link.message().await;
    }
    for message in [execute("x", "true"), with(execute("x", "true"), json!({ "v": 3 })), bare("attach", "x")] {
        link.say(&message).await;
        assert_eq!(link.error().await, (None, "INVALID_REQUEST".to_owned(), false));
    }
    link.say(&bare("cancel", "x")).await;
    assert_eq!(link.story("x").await.steps(), ["status:cancelled", "result"]);
    link.say(&bare("cancel", "x")).await;
    assert_eq!(link.error().await, (Some("x".into()), "UNKNOWN_EXECUTION".to_owned(), false));
}

#[tokio::test]
async fn a_message_beyond_the_bound_is_refused_and_one_far_beyond_ends_the_connection() {
    let sidecar = Sidecar::start();
    let mut link = Link::open(&sidecar, "").await;
    let fits = json!({ "v": 1, "type": "ping", "ts": TS }).to_string();
    link.send(Message::text(format!("{fits}{}", " ".repeat(FSP_MESSAGE_BYTES_MAX - fits.len())))).await;
    assert_eq!(link.message().await["type"], "pong");
    link.send(Message::text(" ".repeat(FSP_MESSAGE_BYTES_MAX + 1))).await;
    assert_eq!(link.error().await.1, "INVALID_REQUEST");
    link.send(Message::text(" ".repeat(FSP_CUT_BYTES_MAX))).await;
    assert_eq!(link.error().await.1, "INVALID_REQUEST");
    // Who leaves while the other still writes may leave unheard.
    let sent = link.socket.send(Message::text(" ".repeat(FSP_CUT_BYTES_MAX + 1))).await;
    let heard = link.hear().await;
    assert!(matches!(heard, Heard::Closed(Some(1009) | None)), "{sent:?} {heard:?}");
}

#[tokio::test]
async fn a_connection_is_opened_with_the_token_and_for_version_1() {
    let sidecar = Sidecar::start();
    let bearer = format!("Bearer {TOKEN}");
    let (token, version) = (("authorization", bearer.as_str()), ("x-protocol-version", "1"));
    for (headers, status) in [
        (vec![version], 401),
        (vec![("authorization", "Bearer other"), version], 401),
        (vec![token], 400),
        (vec![token, ("x-protocol-version", "2")], 400),
    ] {
        assert_eq!(Link::with(&sidecar, &headers).await.err().unwrap().as_u16(), status, "{headers:?}");
    }
    let link = Link::with(&sidecar, &[token, version, ("x-protocol-extensions", "cwd, teleport")]).await.unwrap();
    assert_eq!(link.granted, "cwd");
}

#[tokio::test]
async fn as_many_connections_speak_as_may_and_the_next_is_told_to_come_back() {
    let sidecar = Sidecar::start();
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str()), ("x-protocol-version", "1")];
    let mut links = Vec::new();
    for _ in 0..FSP_CONNECTIONS_MAX {
        links.push(Link::with(&sidecar, &headers).await.unwrap());
    }
    assert_eq!(Link::with(&sidecar, &headers).await.err().unwrap().as_u16(), 429);
    drop(links.pop());
    while Link::with(&sidecar, &headers).await.is_err() {}
}
