//! The table of what goes wrong: which kind it is, and whether to try again.

use sandbox_fsp::limits::{EXECUTIONS_MAX, TIMEOUT_SLACK_MS};
use sandbox_fsp::{Connection, ErrorKind, Event, FspError, Place, State};
use sandbox_protocol::fsp::{ClientMessage, ErrorCode, Extension, ServerBody, Signal, Status};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use crate::stage::{Stage, execute, stdout};

fn check(error: &FspError, kind: ErrorKind, retryable: bool) {
    assert_eq!((error.kind(), error.retryable()), (kind, retryable), "{error:?}");
}

#[tokio::test]
async fn a_successful_execution_is_told_in_order() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(&[]).await;
    let mut running = connection.execute(execute("e")).await.unwrap();
    assert_eq!(peer.hear_execute().await, execute("e"));
    for body in [ServerBody::Ack, ServerBody::Status(Status::Running), stdout("hi")] {
        peer.say("e", None, body).await;
    }
    peer.say_done("e").await;
    assert_eq!(running.next().await.unwrap(), Some(Event::Ack));
    let outcome = running.outcome(100).await.unwrap();
    assert_eq!((outcome.status, outcome.exit_code, &outcome.stdout[..]), (Status::Completed, Some(0), &b"hi"[..]));
}

#[tokio::test]
async fn the_handshake_names_key_version_and_wishes() {
    let mut stage = Stage::new();
    let (connection, peer) = stage.connect(&[Extension::Replay, Extension::Binary]).await;
    assert_eq!(peer.headers["authorization"], "Bearer key");
    assert_eq!(peer.headers["x-protocol-version"], "1");
    assert_eq!(peer.headers["x-protocol-extensions"], "replay, binary");
    assert!(connection.granted().has(Extension::Replay) && !connection.granted().has(Extension::Credit));
    let (_plain, peer) = stage.connect(&[]).await;
    assert!(!peer.headers.contains_key("x-protocol-extensions"));
}

#[tokio::test]
async fn a_broken_link_ends_plain_executions_retryably() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(&[]).await;
    let one = connection.execute(execute("one")).await.unwrap();
    let two = connection.execute(execute("two")).await.unwrap();
    peer.hear_execute().await;
    peer.hear_execute().await;
    peer.say("one", None, stdout("half")).await;
    drop(peer);
    for running in [one, two] {
        check(&running.outcome(100).await.unwrap_err(), ErrorKind::Sandbox, true);
    }
    connection.closed().await;
    check(&connection.execute(execute("three")).await.unwrap_err(), ErrorKind::Sandbox, true);
}

#[tokio::test]
async fn a_malformed_message_ends_all_executions_for_good() {
    let garbage = [
        Message::text("{"),
        Message::text(r#"{"v":1,"type":"stdout","ts":"x","data":"no id"}"#),
        Message::text(r#"{"v":2,"type":"ack","id":"one","ts":"x"}"#),
        Message::text(r#"{"v":1,"type":"result","id":"one","ts":"x","duration_ms":1}"#),
        Message::binary(vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, b'o', b'x']),
    ];
    for message in garbage {
        let mut stage = Stage::new();
        let (connection, mut peer) = stage.connect(&[]).await;
        let one = connection.execute(execute("one")).await.unwrap();
        let two = connection.execute(execute("two")).await.unwrap();
        peer.hear_execute().await;
        peer.hear_execute().await;
        peer.say_raw(message).await;
        for running in [one, two] {
            let error = running.outcome(100).await.unwrap_err();
            check(&error, ErrorKind::Sandbox, false);
            assert!(matches!(error, FspError::Malformed { .. }));
        }
        let mut cancelled = vec![];
        while let Some(ClientMessage::Cancel { id }) = peer.hear().await {
            cancelled.push(id);
        }
        cancelled.sort();
        assert_eq!(cancelled, ["one", "two"]);
        connection.closed().await;
        assert_eq!(connection.state(), State::Closed);
    }
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_outlives_its_time_is_given_up_and_cancelled() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(&[]).await;
    let mut request = execute("slow");
    request.limits.timeout_ms = 1_000;
    let started = Instant::now();
    let running = connection.execute(request).await.unwrap();
    peer.hear_execute().await;
    peer.say("slow", None, ServerBody::Ack).await;
    let error = running.outcome(100).await.unwrap_err();
    check(&error, ErrorKind::Timeout, false);
    assert_eq!(error.to_string(), "execution timed out after 1000ms");
    assert_eq!(started.elapsed().as_millis(), u128::from(1_000 + TIMEOUT_SLACK_MS));
    assert_eq!(peer.hear().await, Some(ClientMessage::Cancel { id: "slow".into() }));
    // What comes late is nobody's, and hurts nobody.
    peer.say_done("slow").await;
    let next = connection.execute(execute("next")).await.unwrap();
    peer.hear_execute().await;
    peer.say_done("next").await;
    next.outcome(100).await.unwrap();
}

#[tokio::test]
async fn an_error_of_the_sandbox_has_its_own_word_on_retrying() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(&[]).await;
    for (code, retryable) in
        [(ErrorCode::SandboxOverloaded, true), (ErrorCode::OutputLimit, false), (ErrorCode::Oom, true)]
    {
        let running = connection.execute(execute("e")).await.unwrap();
        peer.hear_execute().await;
        peer.say("e", None, ServerBody::Error { code, message: "why".into(), retryable }).await;
        let error = running.outcome(100).await.unwrap_err();
        check(&error, ErrorKind::Execution, retryable);
        assert!(matches!(&error, FspError::Server { code: told, message, .. } if *told == code && message == "why"));
    }
    assert_eq!(connection.state(), State::Live);
}

#[tokio::test]
async fn a_refusal_before_the_handshake_keeps_its_words() {
    let mut stage = Stage::new();
    let endpoint = stage.endpoint(&[]);
    let body = r#"{"code":"unauthorized","message":"no such key","retryable":false}"#;
    let (opened, ()) = tokio::join!(Connection::open(&endpoint), stage.refuse(401, body));
    let error = opened.unwrap_err();
    check(&error, ErrorKind::Sandbox, false);
    assert_eq!(error.to_string(), "refused with status 401: unauthorized: no such key");
    assert_eq!(stage.attempts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_that_is_busy_is_tried_again() {
    let mut stage = Stage::new();
    let endpoint = stage.endpoint(&[]);
    let served = async {
        stage.refuse(503, "not JSON").await;
        stage.accept().await
    };
    let (opened, _peer) = tokio::join!(Connection::open(&endpoint), served);
    opened.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_never_answers_the_handshake_is_given_up() {
    let stage = Stage::new();
    let started = Instant::now();
    let error = Connection::open(&stage.endpoint(&[])).await.unwrap_err();
    check(&error, ErrorKind::Sandbox, true);
    // Eleven attempts of 5 s, and the waits between them.
    assert_eq!(started.elapsed().as_millis(), 11 * 5_000 + 51_100);
    assert!(matches!(error, FspError::Unavailable { attempts: 10, .. }), "{error:?}");
}

#[tokio::test]
async fn an_id_is_used_once_at_a_time() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(&[]).await;
    let first = connection.execute(execute("e")).await.unwrap();
    let second = connection.execute(execute("e")).await.unwrap();
    assert!(matches!(second.outcome(9).await, Err(FspError::IdInUse)));
    peer.hear_execute().await;
    peer.say_done("e").await;
    first.outcome(9).await.unwrap();
    let third = connection.execute(execute("e")).await.unwrap();
    peer.hear_execute().await;
    peer.say_done("e").await;
    third.outcome(9).await.unwrap();
}

#[tokio::test]
async fn a_connection_has_as_many_executions_as_it_may_and_no_more() {
    let mut stage = Stage::new();
    let (connection, peer) = stage.connect(&[]).await;
    let _served = tokio::spawn(async move {
        let mut peer = peer;
        while peer.hear().await.is_some() {}
    });
    let mut running = vec![];
    for number in 0..EXECUTIONS_MAX {
        running.push(connection.execute(execute(&number.to_string())).await.unwrap());
    }
    let one_more = connection.execute(execute("more")).await.unwrap().outcome(9).await.unwrap_err();
    check(&one_more, ErrorKind::Sandbox, true);
    assert!(matches!(one_more, FspError::TooMany));
    drop(running);
}

#[tokio::test]
async fn what_was_not_granted_is_not_asked_for() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(&[]).await;
    let mut request = execute("e");
    request.extra.cwd = Some("/workspace".into());
    let refused = connection.execute(request).await.unwrap_err();
    assert!(matches!(refused, FspError::NotGranted(Extension::Cwd)));
    assert!(matches!(
        connection.attach("e", Place::default(), None).await,
        Err(FspError::NotGranted(Extension::Replay))
    ));
    let running = connection.execute(execute("e")).await.unwrap();
    let control = running.control();
    assert!(matches!(control.signal(Signal::Int).await, Err(FspError::NotGranted(Extension::Signal))));
    assert!(matches!(control.stdin("x".into(), true).await, Err(FspError::NotGranted(Extension::Stdin))));
    assert!(matches!(control.detach().await, Err(FspError::NotGranted(Extension::Replay))));
    peer.hear_execute().await;
    drop(running);
    assert_eq!(peer.hear().await, Some(ClientMessage::Cancel { id: "e".into() }));
}
