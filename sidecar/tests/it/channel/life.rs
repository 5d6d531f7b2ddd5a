//! What becomes of programs, and of what they leave running, when they end, are left, or are to be ended.

use std::time::Instant;

use sandbox_protocol::channel::ToProgram;

use super::client::{Channel, ended_by, exited};
use crate::harness::{PATIENCE, Sidecar, lives, until};

/// Leaves a process of a session of its own that nobody is the parent of, and its number in `left`.
const LEAVE: &str = "(setsid sh -c 'echo $$ > left; exec sleep 1000' &)";

fn kill(pid: &str) {
    std::process::Command::new("kill").args(["-KILL", pid]).status().unwrap();
}

#[tokio::test]
async fn what_a_program_leaves_running_goes_on_and_holds_up_nothing() {
    let sidecar = Sidecar::start();
    let begun = Instant::now();
    // It holds both pipes open.
    let mut channel = Channel::sh(&sidecar, "sleep 1000 & echo $! > left; echo started").await;
    assert_eq!(channel.end().await, exited(0));
    assert_eq!(channel.shown().0, "started\n");
    assert!(begun.elapsed() < PATIENCE / 2);
    let pid = sidecar.file("left").await;
    assert!(lives(&pid));
    kill(&pid);
}

#[tokio::test]
async fn what_others_write_without_end_does_not_hold_up_the_end() {
    let sidecar = Sidecar::start();
    let mut channel = Channel::sh(&sidecar, "yes & echo $! > left").await;
    assert_eq!(channel.end().await, exited(0));
    let pid = sidecar.file("left").await;
    until(|| !lives(&pid)).await;
}

#[tokio::test]
async fn what_a_helper_writes_just_after_the_program_still_comes() {
    let sidecar = Sidecar::start();
    let mut channel = Channel::sh(&sidecar, "(sleep 0.02; echo late) & exit 4").await;
    assert_eq!(channel.end().await, exited(4));
    assert_eq!(channel.shown().0, "late\n");
}

#[tokio::test]
async fn a_program_that_is_left_goes_on_with_all_that_it_started() {
    let sidecar = Sidecar::start();
    // Stdin has its end when the operator has gone.
    let text = format!(
        "{LEAVE}; echo $$ > own; cat > /dev/null; echo yes > gone; until [ -e go ]; do sleep 0.01; done; echo went-on > after"
    );
    let channel = Channel::sh(&sidecar, &text).await;
    let (left, own) = (sidecar.file("left").await, sidecar.file("own").await);
    drop(channel);
    assert_eq!(sidecar.file("gone").await, "yes");
    assert!(lives(&left) && lives(&own));
    std::fs::write(sidecar.workspace().join("go"), "").unwrap();
    assert_eq!(sidecar.file("after").await, "went-on");
    until(|| !lives(&own)).await;
    assert!(lives(&left));
    kill(&left);
}

#[tokio::test]
async fn a_program_that_is_left_finds_its_streams_closed() {
    let sidecar = Sidecar::start();
    let text = "cat > /dev/null; echo end > read; trap '' PIPE; until ! echo x 2> /dev/null; do sleep 0.01; done; echo closed > written";
    let channel = Channel::sh(&sidecar, text).await;
    drop(channel);
    assert_eq!(sidecar.file("read").await, "end");
    assert_eq!(sidecar.file("written").await, "closed");
}

#[tokio::test]
async fn a_program_that_is_to_be_ended_goes_with_all_that_it_started() {
    let sidecar = Sidecar::start();
    let mut channel = Channel::sh(&sidecar, &format!("{LEAVE}; sleep 1000 & echo $! > child; wait")).await;
    let (left, child) = (sidecar.file("left").await, sidecar.file("child").await);
    channel.say(ToProgram::End).await;
    assert_eq!(channel.end().await, ended_by(9));
    assert!(!lives(&left) && !lives(&child));
}

#[tokio::test]
async fn a_program_is_ended_whether_or_not_the_operator_waits_for_it() {
    let sidecar = Sidecar::start();
    let mut channel = Channel::sh(&sidecar, &format!("{LEAVE}; sleep 1000")).await;
    let left = sidecar.file("left").await;
    channel.say(ToProgram::End).await;
    drop(channel);
    until(|| !lives(&left)).await;
}

#[tokio::test]
async fn the_sidecars_end_is_that_of_its_programs_also_of_those_that_were_left() {
    let sidecar = Sidecar::start();
    let mut kept = Channel::sh(&sidecar, "echo $$ > kept; exec sleep 1000").await;
    let left = Channel::sh(&sidecar, "echo $$ > own; exec sleep 1000").await;
    let (of_kept, of_left) = (sidecar.file("kept").await, sidecar.file("own").await);
    drop(left);
    sidecar.stop.cancel();
    tokio::time::timeout(PATIENCE, sidecar.streams.stop()).await.expect("did not stop");
    assert!(!lives(&of_kept) && !lives(&of_left));
    assert_eq!(kept.end().await, ended_by(9));
}
