//! The bounds of terminals, on both sides, and requests that open none.

use hyper::Method;
use sandbox_protocol::limits::{PTY_COLS_MAX, PTY_INPUT_BYTES_MAX, PTY_ROWS_MAX, PTY_TERMINALS_MAX, PTY_VIEWERS_MAX};

use super::view::{View, delete, escaped};
use crate::harness::{Sidecar, TOKEN, send, until};

#[tokio::test]
async fn as_many_terminals_run_as_may_and_the_next_takes_the_place_of_one_that_has_ended() {
    let sidecar = Sidecar::start();
    let mut views = Vec::new();
    for _ in 0..PTY_TERMINALS_MAX {
        views.push(View::command(&sidecar.socket, "cat").await);
    }
    let busy = || async { View::at(&sidecar.socket, "/pty").await.err() };
    assert_eq!(busy().await, Some((429, "busy".to_owned())));
    let mut last = views.pop().unwrap();
    last.type_in("\x04").await;
    last.end().await;
    let ended = last.id.clone();
    drop(last);
    until(|| sidecar.streams.terminals.list().ptys.iter().any(|pty| pty.ended.is_some() && pty.viewers == 0)).await;
    views.push(View::command(&sidecar.socket, "cat").await);
    assert_eq!(delete(&sidecar.socket, &ended).await, 404);
    assert_eq!(busy().await, Some((429, "busy".to_owned())));
}

#[tokio::test]
async fn as_many_view_a_terminal_as_may() {
    let sidecar = Sidecar::start();
    let first = View::command(&sidecar.socket, "cat").await;
    let mut views = Vec::new();
    for _ in 1..PTY_VIEWERS_MAX {
        views.push(View::attach(&sidecar.socket, &first.id, "").await);
    }
    let path = format!("/pty/{}", first.id);
    assert_eq!(View::at(&sidecar.socket, &path).await.err(), Some((429, "busy".to_owned())));
    views.pop();
    until(|| sidecar.streams.terminals.list().ptys[0].viewers < PTY_VIEWERS_MAX).await;
    View::at(&sidecar.socket, &path).await.unwrap();
}

#[tokio::test]
async fn sizes_have_bounds() {
    let sidecar = Sidecar::start();
    let largest = View::open(&sidecar.socket, &format!("cols={PTY_COLS_MAX}&rows={PTY_ROWS_MAX}")).await;
    assert_eq!(largest.size, (PTY_COLS_MAX, PTY_ROWS_MAX));
    for query in
        ["cols=0", "rows=0", "cols=1001", "rows=1001", "cols=65536", "cols=-1", "term=", "cwd=..", "env=x", "x=1"]
    {
        let refused = View::at(&sidecar.socket, &format!("/pty?{query}")).await.err();
        assert_eq!(refused, Some((400, "bad_request".to_owned())), "{query}");
    }
}

#[tokio::test]
async fn the_longest_message_is_typed_and_a_longer_one_ends_the_view() {
    let sidecar = Sidecar::start();
    let command = format!("stty raw -echo; echo ready; head -c {PTY_INPUT_BYTES_MAX} | tr -d x | wc -c; cat");
    let mut view = View::open(&sidecar.socket, &format!("command={}", escaped(&command))).await;
    view.until("ready").await;
    view.type_in("x".repeat(PTY_INPUT_BYTES_MAX)).await;
    view.until("0\n").await;
    view.type_in("x".repeat(PTY_INPUT_BYTES_MAX + 1)).await;
    assert_eq!(view.message().await, super::view::Told::Closed(1009));
    until(|| sidecar.streams.terminals.list().ptys[0].viewers == 0).await;
}

#[tokio::test]
async fn a_request_without_a_token_or_a_websocket_opens_nothing() {
    let sidecar = Sidecar::start();
    for path in ["/pty", "/pty/x"] {
        let (status, _) = send(&sidecar.socket, Method::GET, path, &[], Vec::new()).await;
        assert_eq!(status, 401);
        let bearer = format!("Bearer {TOKEN}");
        let (status, _) = send(&sidecar.socket, Method::GET, path, &[("authorization", &bearer)], Vec::new()).await;
        assert_eq!(status, 426);
    }
    assert!(sidecar.streams.terminals.list().ptys.is_empty());
}

#[tokio::test]
async fn a_directory_that_cannot_be_entered_is_refused_before_the_upgrade() {
    let sidecar = Sidecar::start();
    let refused = View::at(&sidecar.socket, "/pty?cwd=nowhere").await.err();
    assert_eq!(refused, Some((400, "bad_request".to_owned())));
    assert!(sidecar.streams.terminals.list().ptys.is_empty());
}
