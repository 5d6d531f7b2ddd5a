//! The link breaks before every message of a conversation, and at random: nothing is doubled, and nothing is lost
//! without a word.

use bytes::Bytes;
use sandbox_fsp::{Event, Execution, FspError};
use sandbox_protocol::fsp::{ClientMessage, Extension, ServerBody, Status, Stream};
use tokio_tungstenite::tungstenite::Message;

use crate::stage::{Stage, ended, execute, stdout};

const REPLAY: &[Extension] = &[Extension::Replay, Extension::Credit];

/// A conversation as the sandbox keeps it: message n has the number n + 1.
fn conversation() -> Vec<ServerBody> {
    let stderr = |text: &'static str| ServerBody::Output(Stream::Stderr, Bytes::from(text));
    vec![
        ServerBody::Ack,
        ServerBody::Status(Status::Running),
        stdout("one "),
        stderr("warn "),
        stdout("two "),
        stdout("three "),
        stderr("error "),
        ServerBody::Status(Status::Completed),
        ended(),
    ]
}

/// Everything that the consumer is told, as text.
async fn told(mut running: Execution) -> Result<(String, usize), FspError> {
    let (mut text, mut states) = (String::new(), 0);
    while let Some(event) = running.next().await? {
        match event {
            Event::Output(_, data) => text.push_str(std::str::from_utf8(&data).unwrap()),
            Event::Gap { from_seq, to_seq, bytes } => text.push_str(&format!("[{from_seq}-{to_seq}: {bytes}] ")),
            Event::Ack | Event::Status(_) | Event::Ended(_) | Event::Detached => states += 1,
        }
    }
    Ok((text, states))
}

/// Serves the conversation over as many links as it takes; each carries what `links` says of it, and the last the rest.
/// Every new link repeats `repeated` messages that the client has.
async fn serve(stage: &mut Stage, links: &[usize], repeated: usize) -> String {
    let endpoint = stage.endpoint(REPLAY);
    let (connection, mut peer) = {
        let (connection, peer) = tokio::join!(sandbox_fsp::Connection::open(&endpoint), stage.accept());
        (connection.unwrap(), peer)
    };
    let running = connection.execute(execute("e")).await.unwrap();
    let told = tokio::spawn(told(running));
    peer.hear_execute().await;
    let (conversation, mut at, mut furthest) = (conversation(), 0_usize, 0);
    for carried in links.iter().copied().chain([usize::MAX]) {
        let until = at.saturating_add(carried).min(conversation.len());
        while at < until {
            peer.say("e", Some(at as u64 + 1), conversation[at].clone()).await;
            at += 1;
        }
        if at == conversation.len() {
            break;
        }
        drop(peer);
        peer = stage.accept().await;
        let Some(ClientMessage::Attach { after_seq, .. }) = peer.hear().await else { panic!("not looked for") };
        furthest = furthest.max(at);
        assert!(after_seq as usize <= furthest);
        at = (after_seq as usize).saturating_sub(repeated);
        peer.say("e", None, ServerBody::Attached { next_seq: at as u64 + 1 }).await;
    }
    let (text, states) = told.await.unwrap().unwrap();
    assert_eq!(states, 4);
    text
}

#[tokio::test(start_paused = true)]
async fn a_link_may_break_before_any_message() {
    for carried in 0..conversation().len() {
        for repeated in [0, 1, 9] {
            let text = serve(&mut Stage::new(), &[carried], repeated).await;
            let (out, err): (Vec<_>, Vec<_>) =
                text.split_whitespace().partition(|word| ["one", "two", "three"].contains(word));
            assert_eq!((out, err), (vec!["one", "two", "three"], vec!["warn", "error"]), "{carried} {repeated}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_may_break_again_and_again() {
    // Every way to cut the conversation into links of up to three messages, by a counter in base four.
    for plan in 0..256_usize {
        let links: Vec<_> = (0..4).map(|digit| plan >> (2 * digit) & 3).collect();
        let text = serve(&mut Stage::new(), &links, plan % 3).await;
        assert_eq!(text, "one warn two three error ", "{links:?}");
    }
}

#[tokio::test]
async fn an_announced_gap_is_handed_on_and_what_overlaps_it_is_not_doubled() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(REPLAY).await;
    let running = connection.execute(execute("e")).await.unwrap();
    peer.hear_execute().await;
    peer.say("e", Some(1), ServerBody::Ack).await;
    peer.say("e", Some(2), stdout("a ")).await;
    peer.say("e", None, ServerBody::Gap { from_seq: 1, to_seq: 2, bytes: 2 }).await;
    peer.say("e", None, ServerBody::Gap { from_seq: 2, to_seq: 5, bytes: 72 }).await;
    peer.say("e", Some(5), stdout("lost ")).await;
    peer.say("e", Some(6), stdout("b ")).await;
    peer.say("e", Some(7), ended()).await;
    assert_eq!(told(running).await.unwrap(), ("a [3-5: 70] b ".to_owned(), 2));
}

#[tokio::test]
async fn a_loss_without_a_word_is_a_fault_of_the_sandbox() {
    let jumps: [&[(Option<u64>, ServerBody)]; 3] = [
        &[(Some(1), ServerBody::Ack), (Some(3), stdout("x"))],
        &[(Some(1), ServerBody::Ack), (None, stdout("x"))],
        &[(Some(1), ServerBody::Ack), (None, ServerBody::Gap { from_seq: 4, to_seq: 6, bytes: 1 })],
    ];
    for jump in jumps {
        let mut stage = Stage::new();
        let (connection, mut peer) = stage.connect(REPLAY).await;
        let running = connection.execute(execute("e")).await.unwrap();
        peer.hear_execute().await;
        for (seq, body) in jump {
            peer.say("e", *seq, body.clone()).await;
        }
        assert!(matches!(told(running).await, Err(FspError::Malformed { .. })));
    }
}

#[tokio::test]
async fn a_frame_cut_short_is_a_broken_link_and_nothing_else() {
    let mut stage = Stage::new();
    let (connection, mut peer) = stage.connect(&[]).await;
    let running = connection.execute(execute("e")).await.unwrap();
    peer.hear_execute().await;
    peer.say_raw(Message::Close(None)).await;
    let error = running.outcome(9).await.unwrap_err();
    assert!(matches!(error, FspError::Disconnected { .. }), "{error:?}");
}
