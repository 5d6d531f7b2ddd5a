//! What is no channel, and how many there may be.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::BytesMut;
use hyper::{Method, StatusCode};
use sandbox_protocol::channel::{FromProgram, PROTOCOL, ROUTE, ToProgram, stdin_head};
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::limits::{CHANNEL_FRAME_BYTES_MAX, CHANNEL_WINDOW_BYTES, EXEC_COMMAND_BYTES_MAX};
use sandbox_sidecar::channel::Bounds;
use tokio::time::timeout;

use super::client::{Channel, command, exited, opened};
use crate::harness::{PATIENCE, Sidecar, TOKEN, send};

/// A program that waits for the file `go`.
const WAITING: &str = "echo ready; until [ -e go ]; do sleep 0.01; done; echo went-on > after";

/// The operator sends this; the connection ends, and the program goes on.
async fn cut_off(frames: &[ToProgram], rest: &[u8]) {
    let sidecar = Sidecar::start();
    let mut channel = Channel::sh(&sidecar, WAITING).await;
    channel.until("ready\n").await;
    let mut bytes = BytesMut::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes));
    bytes.extend_from_slice(rest);
    channel.writer.provoke(&bytes).await;
    channel.closed().await;
    std::fs::write(sidecar.workspace().join("go"), "").unwrap();
    assert_eq!(sidecar.file("after").await, "went-on");
}

#[tokio::test]
async fn what_is_no_frame_ends_the_connection() {
    cut_off(&[], &[99, 0, 0, 0, 0]).await;
    cut_off(&[], &stdin_head(CHANNEL_FRAME_BYTES_MAX + 1)).await;
    cut_off(&[ToProgram::Start(command("true"))], b"").await;
    cut_off(&[ToProgram::StdinEof, ToProgram::Stdin(b"more".to_vec().into())], b"").await;
}

#[tokio::test]
async fn a_window_that_is_overrun_ends_the_connection_and_one_that_is_filled_does_not() {
    let filled: Vec<_> = (0..CHANNEL_WINDOW_BYTES / CHANNEL_FRAME_BYTES_MAX)
        .map(|_| ToProgram::Stdin(vec![0; CHANNEL_FRAME_BYTES_MAX].into()))
        .collect();
    let sidecar = Sidecar::start();
    let mut channel = Channel::sh(&sidecar, WAITING).await;
    for frame in &filled {
        channel.say(frame.clone()).await;
    }
    std::fs::write(sidecar.workspace().join("go"), "").unwrap();
    assert_eq!(channel.end().await, exited(0));
    // More than the window and all that a pipe takes.
    cut_off(&[filled, vec![ToProgram::Stdin(vec![0; CHANNEL_FRAME_BYTES_MAX].into()); 5]].concat(), b"").await;
}

#[tokio::test]
async fn the_first_frame_is_a_program() {
    let sidecar = Sidecar::start();
    for first in [ToProgram::StdinEof, ToProgram::End, ToProgram::Stdin(b"x".to_vec().into())] {
        assert_eq!(Channel::refusal(&sidecar, first).await.code, SidecarRefusal::BadRequest);
    }
}

#[tokio::test]
async fn a_first_frame_that_does_not_come_in_time_is_not_waited_for() {
    let sidecar = Sidecar::bounded(Bounds { start_read_max: Duration::from_millis(50), ..Bounds::default() });
    let mut channel = Channel::open(&sidecar).await;
    let Some(FromProgram::Refused(refused)) = channel.reader.frame().await else { panic!("not refused") };
    assert_eq!(refused.code, SidecarRefusal::BadRequest);
    let sidecar = Sidecar::start();
    let mut channel = Channel::open(&sidecar).await;
    let mut start = BytesMut::new();
    ToProgram::Start(command("true")).encode(&mut start);
    // In two pieces, the second after the sidecar has seen the first.
    channel.writer.send(&start[..7]).await;
    sidecar.sh("true").await;
    channel.writer.send(&start[7..]).await;
    assert_eq!(channel.reader.frame().await, Some(FromProgram::Started));
    assert_eq!(channel.end().await, exited(0));
}

#[tokio::test]
async fn a_program_that_cannot_be_given_is_refused_with_its_reason() {
    let sidecar = Sidecar::start();
    let mut named = command("true");
    named.env = BTreeMap::from([("A=B".to_owned(), String::new())]);
    for (start, reason) in [
        (command("a\0b"), "command: must not hold NUL"),
        (command("x".repeat(EXEC_COMMAND_BYTES_MAX + 1)), "command: 131072 bytes, at most 131071"),
        (named, "env: \"A=B\" is no variable name"),
    ] {
        let refused = Channel::refusal(&sidecar, ToProgram::Start(start)).await;
        assert_eq!((refused.code, &*refused.message), (SidecarRefusal::BadRequest, reason));
    }
    std::fs::remove_dir(sidecar.workspace()).unwrap();
    let refused = Channel::refusal(&sidecar, ToProgram::Start(command("true"))).await;
    assert_eq!(refused.code, SidecarRefusal::BadRequest);
}

#[tokio::test]
async fn as_many_channels_are_open_as_may() {
    let sidecar = Sidecar::bounded(Bounds { channels_max: 2, ..Bounds::default() });
    let (_one, two) = (Channel::sh(&sidecar, "sleep 1000").await, Channel::sh(&sidecar, "sleep 1000").await);
    let refused = opened(&sidecar.socket, ROUTE, PROTOCOL).await.err();
    assert_eq!(refused, Some((429, "busy".to_owned())));
    // What goes on without a connection takes no place.
    drop(two);
    let again = async { while opened(&sidecar.socket, ROUTE, PROTOCOL).await.is_err() {} };
    timeout(PATIENCE, again).await.expect("no place became free");
}

#[tokio::test]
async fn the_routes_are_for_upgrades_of_administrators() {
    let sidecar = Sidecar::start();
    let bearer = format!("Bearer {TOKEN}");
    for target in [ROUTE, "/unix?path=s", "/listen?port=0", "/accepted/1"] {
        let plain = send(&sidecar.socket, Method::GET, target, &[("authorization", &bearer)], Vec::new()).await;
        assert_eq!(plain.0, StatusCode::UPGRADE_REQUIRED, "{target}");
        let nobody = send(&sidecar.socket, Method::GET, target, &[], Vec::new()).await;
        assert_eq!(nobody.0, StatusCode::UNAUTHORIZED, "{target}");
    }
}
