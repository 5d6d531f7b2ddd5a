//! Programs with a terminal.

use sandbox_protocol::channel::{Program, Start, Terminal, TerminalSize, ToProgram};
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::fsp::Signal;

use super::client::{Channel, command, ended_by, exited, in_terminal};
use crate::harness::{Sidecar, lives, until};

fn size(cols: u16, rows: u16) -> TerminalSize {
    TerminalSize { cols, rows, width_px: 0, height_px: 0 }
}

#[tokio::test]
async fn a_terminal_has_its_name_its_size_and_then_that_of_a_resize() {
    let sidecar = Sidecar::start();
    let start = in_terminal(command("echo $TERM; tty; stty size; read line; stty size"), &[]);
    let mut channel = Channel::start(&sidecar, start).await;
    channel.until("vt100\r\n/dev/pts/").await;
    channel.until("40 100\r\n").await;
    channel.say(ToProgram::Resize(size(133, 50))).await;
    channel.type_in("\n").await;
    channel.until("50 133\r\n").await;
    assert_eq!(channel.end().await, exited(0));
}

#[tokio::test]
async fn a_size_of_nought_is_eighty_columns_and_a_missing_name_is_none() {
    let sidecar = Sidecar::start();
    let terminal = Terminal { term: String::new(), size: size(0, 0), modes: Vec::new() };
    let start = Start { terminal: Some(terminal), ..command("stty size; echo term=$TERM.") };
    let mut channel = Channel::start(&sidecar, start).await;
    channel.until("24 80\r\n").await;
    assert_eq!(channel.end().await, exited(0));
    assert!(["term=.\r\n", "term=dumb.\r\n"].contains(&channel.shown().0), "{:?}", channel.shown());
}

#[tokio::test]
async fn a_name_that_is_none_is_refused() {
    let sidecar = Sidecar::start();
    let mut start = in_terminal(command("true"), &[]);
    start.terminal.as_mut().unwrap().term = "../x".to_owned();
    assert_eq!(Channel::refusal(&sidecar, ToProgram::Start(start)).await.code, SidecarRefusal::BadRequest);
}

#[tokio::test]
async fn modes_are_the_customers() {
    let sidecar = Sidecar::start();
    // ECHO off, ONLCR off, VINTR Ctrl-X; the last means nothing.
    let modes = [(53, 0), (72, 0), (1, 24), (99, 1)];
    let mut channel = Channel::start(&sidecar, in_terminal(command("echo ready; cat"), &modes)).await;
    channel.until("ready\n").await;
    channel.type_in("once\n").await;
    channel.until("once\n").await;
    channel.type_in("\x18").await;
    assert_eq!(channel.end().await, ended_by(2));
    assert_eq!(channel.shown().0, "");
}

#[tokio::test]
async fn ctrl_c_interrupts_what_runs_and_leaves_the_shell() {
    let sidecar = Sidecar::start();
    let mut channel =
        Channel::start(&sidecar, in_terminal(Start { program: Program::Shell, ..command("") }, &[])).await;
    channel.type_in("sh -c 'echo began-$((1 + 1)); exec sleep 1000'\n").await;
    channel.until("began-2").await;
    channel.type_in("\x03").await;
    channel.type_in("echo interrupted-$?-${0%sh}\n").await;
    channel.until("interrupted-130--").await;
    channel.type_in("exit 3\n").await;
    assert_eq!(channel.end().await, exited(3));
}

#[tokio::test]
async fn a_signal_reaches_the_foreground() {
    let sidecar = Sidecar::start();
    let mut channel =
        Channel::start(&sidecar, in_terminal(Start { program: Program::Shell, ..command("") }, &[])).await;
    channel
        .type_in("sh -c 'trap \"echo got-$((1+1))\" USR1; echo ready-$((1 + 1)); while :; do sleep 0.01; done'\n")
        .await;
    channel.until("ready-2").await;
    channel.say(ToProgram::Signal(Signal::Usr1)).await;
    channel.until("got-2").await;
    channel.type_in("\x03").await;
    channel.type_in("exit 0\n").await;
    assert_eq!(channel.end().await, exited(0));
}

#[tokio::test]
async fn an_end_of_stdin_does_nothing_to_a_terminal() {
    let sidecar = Sidecar::start();
    let text = "trap 'echo still; exit 6' USR1; echo ready; while :; do sleep 0.01; done";
    let mut channel = Channel::start(&sidecar, in_terminal(command(text), &[])).await;
    channel.until("ready").await;
    channel.say(ToProgram::StdinEof).await;
    channel.say(ToProgram::Signal(Signal::Usr1)).await;
    channel.until("still").await;
    assert_eq!(channel.end().await, exited(6));
}

#[tokio::test]
async fn a_terminal_that_is_left_is_hung_up_and_what_heeds_that_not_goes_on() {
    let sidecar = Sidecar::start();
    let text = "setsid sh -c 'echo $$ > left; exec sleep 1000' & \
                trap 'echo hung-up > heard; exit' HUP; echo $$ > own; while :; do sleep 0.01; done";
    let channel = Channel::start(&sidecar, in_terminal(command(text), &[])).await;
    let (left, own) = (sidecar.file("left").await, sidecar.file("own").await);
    drop(channel);
    assert_eq!(sidecar.file("heard").await, "hung-up");
    until(|| !lives(&own)).await;
    assert!(lives(&left));
    std::process::Command::new("kill").args(["-KILL", &left]).status().unwrap();
}

#[tokio::test]
async fn a_terminal_shows_all_before_its_program_has_ended() {
    let sidecar = Sidecar::start();
    let mut channel = Channel::start(&sidecar, in_terminal(command("seq 100000"), &[(70, 0)])).await;
    assert_eq!(channel.end().await, exited(0));
    let expected: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert!(channel.shown().0 == expected);
}

#[tokio::test]
async fn what_a_terminals_program_leaves_running_goes_on() {
    let sidecar = Sidecar::start();
    let text = "setsid sh -c 'echo $$ > left; exec sleep 1000' > /dev/null 2>&1 < /dev/null & until [ -s left ]; do sleep 0.01; done";
    let mut channel = Channel::start(&sidecar, in_terminal(command(text), &[])).await;
    assert_eq!(channel.end().await, exited(0));
    let left = sidecar.file("left").await;
    assert!(lives(&left));
    std::process::Command::new("kill").args(["-KILL", &left]).status().unwrap();
}
