//! Several viewers of one terminal: the same bytes for all, one who types.

use sandbox_protocol::pty::{ServerMessage, Signal, ViewerMessage, ViewerRefusal};

use super::view::{Told, View, list};
use crate::harness::Sidecar;

fn refused(code: ViewerRefusal) -> Told {
    Told::Message(ServerMessage::Refused { code })
}

#[tokio::test]
async fn two_viewers_see_the_same_bytes() {
    let sidecar = Sidecar::start();
    let mut first = View::command(&sidecar.socket, "read line; seq 1 20000; echo end").await;
    let mut second = View::attach(&sidecar.socket, &first.id, "since=0").await;
    assert!(first.writer && !second.writer);
    first.type_in("\n").await;
    let ends = tokio::join!(first.end(), second.end());
    assert_eq!(ends, (((Some(0), None), 1000), ((Some(0), None), 1000)));
    assert!(first.shown == second.shown && first.text().ends_with("\r\n20000\r\nend\r\n"));
}

#[tokio::test]
async fn only_the_writer_types_resizes_and_signals() {
    let sidecar = Sidecar::start();
    let mut writer = View::command(&sidecar.socket, "cat").await;
    let mut other = View::attach(&sidecar.socket, &writer.id, "").await;
    other.type_in("not this\n").await;
    assert_eq!(other.next().await, refused(ViewerRefusal::NotWriter));
    other.say(ViewerMessage::Resize { cols: 10, rows: 10 }).await;
    assert_eq!(other.next().await, refused(ViewerRefusal::NotWriter));
    other.say(ViewerMessage::Signal { signal: Signal::Kill }).await;
    assert_eq!(other.next().await, refused(ViewerRefusal::NotWriter));
    writer.type_in("this\n").await;
    writer.until("this\r\nthis\r\n").await;
    assert_eq!(writer.text(), "this\r\nthis\r\n");
    assert_eq!((list(&sidecar.socket).await[0].cols, list(&sidecar.socket).await[0].viewers), (80, 2));
}

#[tokio::test]
async fn who_takes_over_types_and_who_typed_is_told() {
    let sidecar = Sidecar::start();
    let mut first = View::command(&sidecar.socket, "cat").await;
    let mut second = View::attach(&sidecar.socket, &first.id, "writer=take").await;
    assert!(second.writer);
    assert_eq!(first.next().await, Told::Message(ServerMessage::Writer { yours: false }));
    second.type_in("second\n").await;
    first.until("second\r\nsecond\r\n").await;
    first.say(ViewerMessage::TakeWriter).await;
    assert_eq!(first.message().await, Told::Message(ServerMessage::Writer { yours: true }));
    assert_eq!(second.message().await, Told::Message(ServerMessage::Writer { yours: false }));
    second.type_in("no more").await;
    assert_eq!(second.message().await, refused(ViewerRefusal::NotWriter));
}

#[tokio::test]
async fn a_writer_that_leaves_makes_room_for_the_next_and_for_nobody_who_only_looks() {
    let sidecar = Sidecar::start();
    let first = View::command(&sidecar.socket, "cat").await;
    let id = first.id.clone();
    let looks = View::attach(&sidecar.socket, &id, "writer=no").await;
    drop(first);
    crate::harness::until(|| !sidecar.streams.terminals.list().ptys[0].writer).await;
    assert!(!looks.writer && !View::attach(&sidecar.socket, &id, "writer=no").await.writer);
    assert!(View::attach(&sidecar.socket, &id, "").await.writer);
}

#[tokio::test]
async fn what_means_nothing_is_refused_and_the_view_goes_on() {
    let sidecar = Sidecar::start();
    let mut view = View::command(&sidecar.socket, "cat").await;
    for text in ["", "{}", "resize", r#"{"type":"resize","cols":"80","rows":24}"#] {
        view.say_text(text).await;
        assert_eq!(view.next().await, refused(ViewerRefusal::BadMessage), "{text}");
    }
    for message in [
        ViewerMessage::Resize { cols: 0, rows: 24 },
        ViewerMessage::Resize { cols: 80, rows: 1_001 },
        ViewerMessage::Ack { offset: 1 },
    ] {
        view.say(message).await;
        assert_eq!(view.next().await, refused(ViewerRefusal::OutOfBounds), "{message:?}");
    }
    view.type_in("still here\n").await;
    view.until("still here\r\nstill here\r\n").await;
}
