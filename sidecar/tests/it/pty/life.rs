//! When a terminal goes on, and when it and all that runs in it end.

use std::time::Duration;

use sandbox_protocol::events::Happening;
use sandbox_protocol::pty::{PtyCause, PtyEnd};
use sandbox_sidecar::events::Told;
use tokio::time::timeout;

use super::view::{View, delete, list};
use crate::harness::{PATIENCE, Sidecar, lives, until};

/// Starts what survives a hang-up: in a session of its own, deaf to signals, its parent gone.
const SURVIVOR: &str = "(setsid sh -c 'trap \"\" HUP TERM; echo $$ > pid; while :; do sleep 0.1; done' &); until [ -s pid ]; do sleep 0.01; done";

#[tokio::test]
async fn a_terminal_outlives_a_dropped_link_and_not_its_deletion() {
    let sidecar = Sidecar::start();
    let mut view = View::command(&sidecar.socket, &format!("{SURVIVOR}; echo $$ > shell; cat")).await;
    let (survivor, shell) = (sidecar.file("pid").await, sidecar.file("shell").await);
    view.type_in("before\n").await;
    view.until("before\r\nbefore\r\n").await;
    let (id, offset) = (view.id.clone(), view.offset());
    drop(view);
    until(|| sidecar.streams.terminals.list().ptys[0].viewers == 0).await;
    let mut back = View::attach(&sidecar.socket, &id, &format!("since={offset}")).await;
    assert!(back.writer && back.start == offset);
    back.type_in("after\n").await;
    back.until("after\r\nafter\r\n").await;

    let (deleted, (exit, code)) = tokio::join!(delete(&sidecar.socket, &id), back.end());
    assert_eq!((deleted.as_u16(), exit, code), (204, (None, Some(1)), 4000));
    assert!(!lives(&survivor) && !lives(&shell));
    assert!(list(&sidecar.socket).await.is_empty());
    assert_eq!(delete(&sidecar.socket, &id).await, 404);
    let refused = View::at(&sidecar.socket, &format!("/pty/{id}")).await.err().unwrap();
    assert_eq!(refused, (404, "unknown_terminal".to_owned()));
}

#[tokio::test]
async fn what_a_shell_leaves_running_ends_with_it() {
    let sidecar = Sidecar::start();
    let mut view = View::command(&sidecar.socket, &format!("{SURVIVOR}; echo last words; exit 5")).await;
    assert_eq!(view.end().await, ((Some(5), None), 1000));
    assert!(view.text().ends_with("last words\r\n"));
    assert!(!lives(&sidecar.file("pid").await));
}

#[tokio::test]
async fn a_terminal_that_ended_while_nobody_looked_still_tells_how() {
    let sidecar = Sidecar::start();
    let view = View::command(&sidecar.socket, "until [ -e go ]; do sleep 0.01; done; echo bye; exit 4").await;
    let id = view.id.clone();
    drop(view);
    sidecar.sh("touch go").await;
    until(|| sidecar.streams.terminals.list().ptys[0].ended.is_some()).await;
    let ended = PtyEnd { cause: PtyCause::Exited, exit_code: Some(4), signal: None };
    assert_eq!(list(&sidecar.socket).await[0].ended, Some(ended));
    let mut back = View::attach(&sidecar.socket, &id, "since=0").await;
    assert_eq!(back.end().await, ((Some(4), None), 1000));
    assert_eq!(back.text(), "bye\r\n");
    assert_eq!(delete(&sidecar.socket, &id).await, 204);
    assert!(list(&sidecar.socket).await.is_empty());
}

#[tokio::test]
async fn a_terminal_that_nobody_comes_back_to_is_hung_up() {
    let sidecar = Sidecar::keeping(Duration::from_millis(200));
    let view = View::command(
        &sidecar.socket,
        "trap 'echo yes > hung-up; exit' HUP; echo $$ > pid; while :; do sleep 0.01; done",
    )
    .await;
    let pid = sidecar.file("pid").await;
    let mut events = sidecar.streams.events.read(None);
    drop(view);
    assert_eq!(sidecar.file("hung-up").await, "yes");
    until(|| sidecar.streams.terminals.list().ptys.is_empty()).await;
    assert!(!lives(&pid));
    let Told::Event(event) = timeout(PATIENCE, events.next()).await.unwrap() else { panic!("no event") };
    assert!(matches!(&event.happening, Happening::PtyClosed { end: PtyEnd { cause: PtyCause::Abandoned, .. }, .. }));
}

#[tokio::test]
async fn a_terminal_with_a_viewer_is_kept_however_long() {
    let sidecar = Sidecar::keeping(Duration::from_millis(100));
    let mut view = View::command(&sidecar.socket, "cat").await;
    view.quiet().await;
    view.type_in("here\n").await;
    view.until("here\r\nhere\r\n").await;
}

#[tokio::test]
async fn terminals_and_views_end_with_the_sidecar() {
    let sidecar = Sidecar::start();
    let mut view = View::command(&sidecar.socket, &format!("trap '' HUP; {SURVIVOR}; cat")).await;
    let pid = sidecar.file("pid").await;
    // It answers nothing, not even the close.
    let _deaf = View::attach(&sidecar.socket, &view.id, "").await;
    sidecar.stop.cancel();
    let stopped = timeout(sandbox_sidecar::limits::STOP_MAX, sidecar.streams.stop());
    let (stopped, (exit, code)) = tokio::join!(stopped, view.end());
    stopped.expect("did not stop in time");
    assert_eq!((exit, code), ((None, Some(9)), 1001));
    assert!(!lives(&pid));
    assert!(sidecar.streams.terminals.open(Default::default()).await.is_err());
}
