//! Replay by offset, gaps, and viewers that do not keep up.

use std::time::Duration;

use sandbox_protocol::limits::{PTY_CHUNK_BYTES_MAX, PTY_INPUT_BYTES_MAX, PTY_KEPT_BYTES, PTY_WINDOW_BYTES};
use sandbox_protocol::pty::{ServerMessage, ViewerMessage};
use sandbox_sidecar::limits::PTY_SILENT_MAX;
use tokio::time::{Instant, timeout};

use super::view::{Told, View, delete};
use crate::harness::{Sidecar, TOKEN, until};
use crate::program::{PROGRAM, Program};

/// Of a line.
const LINE: u64 = 16;

/// Shows lines that are their own numbers, so that any byte can be foretold.
fn lines(from: u64, until: u64) -> String {
    format!("seq -f %014.0f. {from} {}", until - 1)
}

fn line_byte(offset: u64) -> u8 {
    format!("{:014}.\n", offset / LINE).as_bytes()[(offset % LINE) as usize]
}

fn check_lines(view: &View) {
    let wrong = view.shown.iter().zip(view.start..).position(|(byte, offset)| *byte != line_byte(offset));
    assert_eq!(wrong, None);
}

#[tokio::test]
async fn a_viewer_that_comes_back_gets_exactly_what_it_has_not() {
    let sidecar = Sidecar::start();
    let command = format!("stty raw -echo; {}; read line; {}", lines(0, 2_000), lines(2_000, 4_000));
    let mut view = View::command(&sidecar.socket, &command).await;
    view.until_offset(32_000).await;
    for since in [0, 1, 31_999, 32_000] {
        let mut back = View::attach(&sidecar.socket, &view.id, &format!("since={since}&writer=no")).await;
        assert_eq!(back.start, since);
        back.until_offset(32_000).await;
        check_lines(&back);
        assert_eq!(back.offset(), 32_000);
    }
    let refused = View::at(&sidecar.socket, &format!("/pty/{}?since=32001", view.id)).await;
    assert_eq!(refused.err().unwrap(), (400, "bad_request".to_owned()));
    let mut now = View::attach(&sidecar.socket, &view.id, "writer=no").await;
    assert_eq!(now.start, 32_000);
    view.type_in("\n").await;
    now.until_offset(64_000).await;
    check_lines(&now);
}

#[tokio::test]
async fn what_is_not_kept_any_more_is_announced_as_a_gap() {
    let sidecar = Sidecar::start();
    let shown = PTY_KEPT_BYTES as u64 + 80_000;
    let command = format!("stty raw -echo; {}; read line", lines(0, shown / LINE));
    let mut view = View::command(&sidecar.socket, &command).await;
    view.until_offset(shown).await;
    check_lines(&view);
    let kept_from = 80_000;
    for (since, gap) in [(kept_from - 1, true), (kept_from, false)] {
        let mut back = View::attach(&sidecar.socket, &view.id, &format!("since={since}")).await;
        if gap {
            assert_eq!(back.next().await, Told::Message(ServerMessage::Gap { from: since, to: kept_from }));
            back.start = kept_from;
        }
        back.until_offset(shown).await;
        check_lines(&back);
    }
}

#[tokio::test]
async fn a_viewer_alone_holds_up_the_program_and_loses_nothing() {
    let sidecar = Sidecar::start();
    let shown = 4_000_000;
    let mut view = View::command(&sidecar.socket, &format!("stty raw -echo; {}", lines(0, shown / LINE))).await;
    // It reads nothing until the terminal shows no more.
    let offset = || sidecar.streams.terminals.list().ptys[0].offset;
    until(|| offset() > PTY_WINDOW_BYTES).await;
    view.until_offset(shown).await;
    check_lines(&view);
    assert_eq!(view.end().await, ((Some(0), None), 1000));
}

#[tokio::test]
async fn a_viewer_that_acknowledges_is_sent_no_more_than_a_window_ahead() {
    let sidecar = Sidecar::start();
    let shown = 4 * PTY_WINDOW_BYTES;
    let mut view = View::command(&sidecar.socket, &on_demand(shown)).await;
    view.until_offset(LINE).await;
    view.say(ViewerMessage::Ack { offset: LINE }).await;
    view.type_in("\n").await;
    view.until_offset(LINE + PTY_WINDOW_BYTES).await;
    timeout(Duration::from_millis(500), view.next()).await.expect_err("more than the window");
    assert_eq!(view.offset(), LINE + PTY_WINDOW_BYTES);
    while view.offset() < shown {
        let offset = view.offset();
        view.say(ViewerMessage::Ack { offset }).await;
        view.until_offset(offset + 1).await;
    }
    check_lines(&view);
}

/// Shows one line, which says that it is ready, and after a line of input the rest of so many bytes.
fn on_demand(bytes: u64) -> String {
    format!("stty raw -echo; {}; read line; {}; read line", lines(0, 1), lines(1, bytes / LINE))
}

#[tokio::test]
async fn who_types_more_than_is_read_still_gets_what_is_shown() {
    let sidecar = Sidecar::start();
    let (typed, shown) = (4 * PTY_INPUT_BYTES_MAX, 4 * PTY_WINDOW_BYTES);
    let command =
        format!("{}; head -c {typed} > /dev/null; echo; printf over", on_demand(shown).replace("; read line", ""));
    let mut view = View::command(&sidecar.socket, &command).await;
    view.until_offset(LINE).await;
    view.say(ViewerMessage::Ack { offset: LINE }).await;
    for _ in 0..4 {
        view.type_in("x".repeat(PTY_INPUT_BYTES_MAX)).await;
    }
    let mut missed = 0;
    loop {
        let offset = view.offset() + missed;
        view.say(ViewerMessage::Ack { offset }).await;
        match view.next().await {
            Told::Message(ServerMessage::Gap { from, to }) => missed += to - from,
            Told::Message(ServerMessage::Exit { exit_code, .. }) => break assert_eq!(exit_code, Some(0)),
            Told::Bytes(_) | Told::Message(_) => {}
            Told::Closed(code) => panic!("closed with {code}"),
        }
    }
    assert!(view.text().ends_with("\nover") && view.offset() + missed >= shown);
}

#[tokio::test]
async fn a_viewer_of_whom_nothing_is_heard_is_given_up() {
    let sidecar = Sidecar::start();
    let mut view = View::command(&sidecar.socket, "cat").await;
    let ptys = || sidecar.streams.terminals.list().ptys;
    tokio::time::pause();
    // Reads nothing, and so answers no ping.
    tokio::time::advance(PTY_SILENT_MAX).await;
    until(|| ptys()[0].viewers == 0).await;
    tokio::time::resume();
    assert_eq!(view.next().await, Told::Closed(4001));
    assert!(ptys()[0].ended.is_none());
}

/// Bytes of memory that the process has.
fn resident(program: &Program) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_viewer_that_does_not_read_neither_stalls_the_other_nor_grows_memory() {
    let program = Program::start(PROGRAM, &[], Some(TOKEN)).await;
    let socket = program.socket();
    let shown = 16 * 1024 * 1024;
    let mut reads = View::command(&socket, &on_demand(shown)).await;
    reads.until_offset(LINE).await;
    let mut does_not = View::attach(&socket, &reads.id, "").await;
    let before = resident(&program);
    let begun = Instant::now();
    reads.type_in("\n").await;
    let mut held = 0;
    while reads.offset() < shown {
        let Told::Bytes(bytes) = reads.next().await else { panic!("not only bytes") };
        assert!(bytes.len() <= PTY_CHUNK_BYTES_MAX);
        held = held.max(resident(&program).saturating_sub(before));
    }
    check_lines(&reads);
    eprintln!("16 MiB beside a viewer that does not read: {:?}, {held} bytes of growth", begun.elapsed());
    assert!(held <= 8 * 1024 * 1024, "{held} bytes of growth");

    let Told::Message(ServerMessage::Gap { from, to }) = does_not.message().await else { panic!("no gap") };
    assert_eq!((from, to), (does_not.offset(), shown - PTY_KEPT_BYTES as u64));
    check_lines(&does_not);
    (does_not.start, does_not.shown) = (to, Vec::new());
    does_not.until_offset(shown).await;
    check_lines(&does_not);
    assert_eq!(delete(&socket, &reads.id).await, 204);
}

/// A figure, not a promise: `cargo test --profile sidecar -p sandbox-sidecar --test it -- --ignored --nocapture speed`.
#[tokio::test]
#[ignore = "measures"]
async fn the_speed_of_a_terminal_with_one_viewer_and_with_one_that_does_not_read_beside_it() {
    const BYTES: u64 = 256 * 1024 * 1024;
    let program = Program::start(PROGRAM, &[], Some(TOKEN)).await;
    for beside in [false, true] {
        let command = format!("stty raw -echo; echo ready; read line; head -c {BYTES} /dev/zero; read line");
        let mut view = View::command(&program.socket(), &command).await;
        view.until("ready\n").await;
        let _does_not_read = match beside {
            true => Some(View::attach(&program.socket(), &view.id, "").await),
            false => None,
        };
        view.type_in("\n").await;
        let begun = Instant::now();
        let mut left = BYTES;
        while left > 0 {
            let Told::Bytes(bytes) = view.next().await else { panic!("not only bytes") };
            left = left.saturating_sub(bytes.len() as u64);
            view.shown.clear();
        }
        let speed = (BYTES >> 20) as f64 / begun.elapsed().as_secs_f64();
        eprintln!("beside one that does not read: {beside}, {speed:.0} MiB/s");
        assert_eq!(delete(&program.socket(), &view.id).await, 204);
    }
}
