//! Slow consumers, stdin and signals.

use std::time::Duration;

use bytes::Bytes;
use sandbox_fsp::limits::FEED_BYTES_MAX;
use sandbox_fsp::{Event, FspError};
use sandbox_protocol::fsp::{ClientMessage, Extension, Frame, Kind, ServerBody, Signal, Stream};
use sandbox_protocol::limits::{FSP_CHUNK_BYTES_MAX, FSP_STDIN_WINDOW_BYTES};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use crate::stage::{Stage, ended, execute, stdout};

const FLOW: &[Extension] = &[Extension::Credit, Extension::Binary, Extension::Stdin, Extension::Signal];

fn frame(id: &str, data: Bytes) -> Message {
    let kind = Kind::Output(Stream::Stdout);
    Message::Binary(Frame { kind, id: id.to_owned(), seq: None, data }.encode())
}

fn chunk() -> Bytes {
    Bytes::from(vec![b'x'; FSP_CHUNK_BYTES_MAX])
}

#[tokio::test]
async fn with_credit_a_slow_consumer_holds_up_nobody_else() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(FLOW).await;
    let mut slow = connection.execute(execute("slow")).await.unwrap();
    let quick = connection.execute(execute("quick")).await.unwrap();
    assert_eq!(peer.hear_execute().await.extra.credit_bytes, Some(FEED_BYTES_MAX));
    peer.hear_execute().await;
    let mut credit = FEED_BYTES_MAX;
    while credit > 0 {
        peer.say_raw(frame("slow", chunk())).await;
        credit -= FSP_CHUNK_BYTES_MAX as u64;
    }
    peer.say_raw(frame("quick", Bytes::from("done"))).await;
    peer.say_done("quick").await;
    assert_eq!(quick.outcome(9).await.unwrap().stdout, "done");
    // Half of what was sent is taken, and as much is granted again: never more than the window is under way.
    let mut taken = 0;
    while taken < FEED_BYTES_MAX / 2 {
        let Some(Event::Output(_, data)) = slow.next().await.unwrap() else { panic!("not output") };
        taken += data.len() as u64;
    }
    let (next, granted) = tokio::join!(slow.next(), peer.hear());
    let Ok(Some(Event::Output(_, data))) = next else { panic!("not output") };
    let Some(ClientMessage::Credit { bytes, .. }) = granted else { panic!("no credit") };
    assert!((taken..=taken + data.len() as u64).contains(&bytes));
}

#[tokio::test]
async fn a_stream_of_any_length_flows_through_the_window() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(FLOW).await;
    let mut running = connection.execute(execute("e")).await.unwrap();
    peer.hear_execute().await;
    let total = 64 * FEED_BYTES_MAX;
    let served = tokio::spawn(async move {
        let (mut sent, mut credit) = (0, FEED_BYTES_MAX);
        while sent < total {
            while credit < FSP_CHUNK_BYTES_MAX as u64 {
                let Some(ClientMessage::Credit { bytes, .. }) = peer.hear().await else { panic!("no credit") };
                credit += bytes;
                assert!(credit <= FEED_BYTES_MAX);
            }
            peer.say_raw(frame("e", chunk())).await;
            (sent, credit) = (sent + FSP_CHUNK_BYTES_MAX as u64, credit - FSP_CHUNK_BYTES_MAX as u64);
        }
        peer.say("e", None, ended()).await;
        peer
    });
    let mut taken = 0;
    while let Some(event) = running.next().await.unwrap() {
        if let Event::Output(_, data) = event {
            taken += data.len() as u64;
        }
    }
    assert_eq!(taken, total);
    served.await.unwrap();
}

#[tokio::test]
async fn without_credit_a_slow_consumer_is_felt_by_the_sandbox() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(&[]).await;
    let mut running = connection.execute(execute("e")).await.unwrap();
    peer.hear_execute().await;
    let text = "x".repeat(FSP_CHUNK_BYTES_MAX);
    let mut sent = 0;
    // Only a full socket stops this.
    while timeout(Duration::from_millis(300), peer.say("e", None, stdout(text.clone()))).await.is_ok() {
        sent += text.len();
        assert!(sent < 4 * FEED_BYTES_MAX as usize, "the client took {sent} bytes that nobody reads");
    }
    let reading = async {
        let mut taken = 0;
        while taken <= sent {
            let Some(Event::Output(_, data)) = running.next().await.unwrap() else { panic!("not output") };
            taken += data.len();
        }
    };
    let ((), ()) = tokio::join!(reading, peer.say("e", None, stdout("y")));
}

#[tokio::test]
async fn a_blocked_connection_still_cancels() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(&[]).await;
    let running = connection.execute(execute("e")).await.unwrap();
    peer.hear_execute().await;
    let text = "x".repeat(FSP_CHUNK_BYTES_MAX);
    for _ in 0..FEED_BYTES_MAX as usize / FSP_CHUNK_BYTES_MAX {
        peer.say("e", None, stdout(text.clone())).await;
    }
    running.control().cancel().await.unwrap();
    assert_eq!(peer.hear().await, Some(ClientMessage::Cancel { id: "e".into() }));
}

#[tokio::test]
async fn output_beyond_the_credit_is_a_fault_of_the_sandbox() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(FLOW).await;
    let running = connection.execute(execute("e")).await.unwrap();
    peer.hear_execute().await;
    for _ in 0..=3 * FEED_BYTES_MAX as usize / FSP_CHUNK_BYTES_MAX {
        peer.say_raw(frame("e", chunk())).await;
    }
    connection.closed().await;
    assert!(matches!(running.outcome(9).await, Err(FspError::Malformed { .. })));
}

#[tokio::test]
async fn stdin_is_sent_as_far_as_the_sandbox_has_room() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(FLOW).await;
    let mut request = execute("e");
    request.extra.stream_stdin = true;
    let running = connection.execute(request).await.unwrap();
    peer.hear_execute().await;
    let control = running.control();
    let window = FSP_STDIN_WINDOW_BYTES as usize;
    let sending = tokio::spawn(async move { control.stdin(Bytes::from(vec![7; window + 10]), true).await });
    let mut got = 0;
    while got < window {
        let Some(ClientMessage::Stdin { data, eof: false, .. }) = peer.hear().await else { panic!("not stdin") };
        got += data.len();
    }
    assert!(timeout(Duration::from_millis(100), peer.hear()).await.is_err(), "more was sent than there was room for");
    peer.say("e", None, ServerBody::StdinCredit { bytes: 10 }).await;
    let last = ClientMessage::Stdin { id: "e".into(), data: Bytes::from(vec![7; 10]), eof: true };
    assert_eq!(peer.hear().await, Some(last));
    sending.await.unwrap().unwrap();
    running.control().signal(Signal::Usr1).await.unwrap();
    assert_eq!(peer.hear().await, Some(ClientMessage::Signal { id: "e".into(), signal: Signal::Usr1 }));
    let control = running.control();
    peer.say_done("e").await;
    running.outcome(9).await.unwrap();
    assert!(matches!(control.stdin("x".into(), true).await, Err(FspError::Ended)));
}
