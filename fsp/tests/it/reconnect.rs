//! The pace of attempts, and what is told when they were in vain.

use sandbox_fsp::{Connection, ErrorKind, Event, FspError, Place, State};
use sandbox_protocol::fsp::{ClientMessage, ErrorCode, Extension, ServerBody};
use tokio::time::Instant;

use crate::stage::{Stage, ended, execute};

const REPLAY: &[Extension] = &[Extension::Replay, Extension::Stdin];

#[tokio::test(start_paused = true)]
async fn a_first_connection_is_tried_at_once_and_then_ever_more_rarely() {
    let stage = Stage::new();
    stage.fail_next(usize::MAX);
    let error = Connection::open(&stage.endpoint(&[])).await.unwrap_err();
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::Sandbox, true));
    let attempts = stage.attempts();
    let waits_ms: Vec<_> = attempts.windows(2).map(|two| (two[1] - two[0]).as_millis()).collect();
    assert_eq!(waits_ms, [0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600]);
}

#[tokio::test(start_paused = true)]
async fn pending_executions_fail_once_the_last_attempt_has() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(REPLAY).await;
    let mut request = execute("e");
    request.limits.timeout_ms = 300_000;
    let running = connection.execute(request).await.unwrap();
    peer.hear_execute().await;
    stage.fail_next(usize::MAX);
    let broke = Instant::now();
    drop(peer);
    let error = running.outcome(9).await.unwrap_err();
    assert!(matches!(error, FspError::Unavailable { attempts: 10, .. }), "{error:?}");
    assert_eq!((error.kind(), error.retryable()), (ErrorKind::Sandbox, true));
    assert_eq!(broke.elapsed().as_millis(), 51_100);
    assert_eq!(stage.attempts().len(), 11);
    connection.closed().await;
}

#[tokio::test(start_paused = true)]
async fn time_runs_out_also_while_the_link_is_down() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(REPLAY).await;
    let mut request = execute("e");
    request.limits.timeout_ms = 1_000;
    let running = connection.execute(request).await.unwrap();
    peer.hear_execute().await;
    stage.fail_next(usize::MAX);
    drop(peer);
    assert!(matches!(running.outcome(9).await, Err(FspError::TimedOut { limit_ms: 1_000 })));
    assert_eq!(connection.state(), State::Reconnecting);
}

#[tokio::test(start_paused = true)]
async fn an_execution_is_looked_for_and_never_asked_for_twice() {
    for acked in [false, true] {
        let mut stage = Stage::new();
        let (connection, mut peer) = stage.connect(REPLAY).await;
        let running = connection.execute(execute("e")).await.unwrap();
        peer.hear_execute().await;
        if acked {
            peer.say("e", Some(1), ServerBody::Ack).await;
        }
        drop(peer);
        let mut peer = stage.accept().await;
        let after_seq = u64::from(acked);
        let attach = ClientMessage::Attach { id: "e".into(), after_seq, credit_bytes: None };
        assert_eq!(peer.hear().await, Some(attach));
        let unknown = ServerBody::Error { code: ErrorCode::UnknownExecution, message: "who?".into(), retryable: false };
        peer.say("e", None, unknown).await;
        let error = running.outcome(9).await.unwrap_err();
        assert!(matches!(error, FspError::Lost { acked: told } if told == acked));
        assert!(!error.retryable());
    }
}

#[tokio::test(start_paused = true)]
async fn wishes_survive_a_broken_link() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(REPLAY).await;
    let ending = connection.execute(execute("ending")).await.unwrap();
    let mut leaving = connection.execute(execute("leaving")).await.unwrap();
    peer.hear_execute().await;
    peer.hear_execute().await;
    ending.control().cancel().await.unwrap();
    leaving.control().detach().await.unwrap();
    peer.hear().await;
    peer.hear().await;
    drop(peer);
    let mut peer = stage.accept().await;
    assert!(matches!(peer.hear().await, Some(ClientMessage::Attach { id, .. }) if id == "ending"));
    assert!(matches!(peer.hear().await, Some(ClientMessage::Cancel { id }) if id == "ending"));
    assert_eq!(leaving.next().await.unwrap(), Some(Event::Detached));
    assert_eq!(leaving.next().await.unwrap(), None);
    peer.say("ending", Some(1), ended()).await;
    ending.outcome(9).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stdin_under_way_on_a_broken_link_is_announced() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(REPLAY).await;
    let mut request = execute("e");
    request.extra.stream_stdin = true;
    let running = connection.execute(request).await.unwrap();
    peer.hear_execute().await;
    running.control().stdin("abc".into(), false).await.unwrap();
    assert!(matches!(peer.hear().await, Some(ClientMessage::Stdin { data, .. }) if data == "abc"));
    drop(peer);
    let mut peer = stage.accept().await;
    assert!(matches!(peer.hear().await, Some(ClientMessage::Attach { .. })));
    assert!(matches!(running.control().stdin("def".into(), true).await, Err(FspError::StdinBroken)));
    peer.say("e", Some(1), ended()).await;
    running.outcome(9).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_link_that_falls_silent_counts_as_broken() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(REPLAY).await;
    let mut request = execute("e");
    request.limits.timeout_ms = 300_000;
    let running = connection.execute(request).await.unwrap();
    peer.hear_execute().await;
    let silent = Instant::now();
    assert_eq!(peer.hear().await, Some(ClientMessage::Ping));
    assert_eq!(silent.elapsed().as_secs(), 15);
    // The first peer hears on and says nothing.
    let mut second = stage.accept().await;
    assert_eq!(silent.elapsed().as_secs(), 30);
    assert!(matches!(second.hear().await, Some(ClientMessage::Attach { .. })));
    second.say("e", Some(1), ended()).await;
    running.outcome(9).await.unwrap();
}

#[tokio::test]
async fn without_listeners_executions_go_on_where_they_can_be_found_again() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(REPLAY).await;
    let running = connection.execute(execute("e")).await.unwrap();
    peer.hear_execute().await;
    drop(running);
    assert_eq!(peer.hear().await, Some(ClientMessage::Detach { id: "e".into() }));
    let again = connection.attach("e", Place { seq: 4, output_bytes: 9 }, None).await.unwrap();
    let attach = ClientMessage::Attach { id: "e".into(), after_seq: 4, credit_bytes: None };
    assert_eq!(peer.hear().await, Some(attach));
    peer.say("e", None, ServerBody::Attached { next_seq: 5 }).await;
    peer.say("e", Some(5), ended()).await;
    again.outcome(9).await.unwrap();
    drop(connection);
    assert_eq!(peer.hear().await, None);
}
