//! It is a real terminal: sizes, signals, job control, editors.

use sandbox_protocol::pty::{ServerMessage, Signal, ViewerMessage};

use super::view::{Told, View, escaped};
use crate::harness::Sidecar;

/// A shell that echoes nothing, and shows no prompt.
const QUIET: &str = "stty -echo; PS1= exec sh";

#[tokio::test]
async fn a_terminal_has_the_size_that_is_asked_for_and_then_that_of_a_resize() {
    let sidecar = Sidecar::start();
    let command = escaped("stty size; read line; stty size");
    let mut view = View::open(&sidecar.socket, &format!("cols=100&rows=40&command={command}")).await;
    assert_eq!(view.size, (100, 40));
    view.until("40 100\r\n").await;
    view.say(ViewerMessage::Resize { cols: 133, rows: 50 }).await;
    assert_eq!(view.message().await, Told::Message(ServerMessage::Resized { cols: 133, rows: 50 }));
    view.type_in("\n").await;
    view.until("50 133\r\n").await;
    assert_eq!(view.end().await, ((Some(0), None), 1000));
}

#[tokio::test]
async fn a_program_is_told_when_its_terminal_changes_its_size() {
    let sidecar = Sidecar::start();
    let command = "trap 'stty size; exit 7' WINCH; echo ready; while :; do sleep 0.01; done";
    let mut view = View::command(&sidecar.socket, command).await;
    view.until("ready").await;
    view.say(ViewerMessage::Resize { cols: 90, rows: 30 }).await;
    assert_eq!(view.end().await, ((Some(7), None), 1000));
    assert!(view.text().contains("30 90"), "{}", view.text());
}

#[tokio::test]
async fn ctrl_c_interrupts_what_runs_and_leaves_the_shell() {
    let sidecar = Sidecar::start();
    let mut view = View::open(&sidecar.socket, "").await;
    view.type_in("sh -c 'echo began-$((1 + 1)); exec sleep 1000'\n").await;
    view.until("began-2").await;
    view.type_in("\x03").await;
    view.type_in("echo interrupted-$?\n").await;
    view.until("interrupted-130").await;
    view.type_in("exit 3\n").await;
    assert_eq!(view.end().await, ((Some(3), None), 1000));
}

#[tokio::test]
async fn a_signal_reaches_the_foreground_and_the_one_that_ends_the_shell_is_told() {
    let sidecar = Sidecar::start();
    let mut view =
        View::command(&sidecar.socket, "trap 'echo got-usr1' USR1; echo ready; while :; do sleep 0.01; done").await;
    view.until("ready").await;
    view.say(ViewerMessage::Signal { signal: Signal::Usr1 }).await;
    view.until("got-usr1").await;
    view.say(ViewerMessage::Signal { signal: Signal::Kill }).await;
    assert_eq!(view.end().await, ((None, Some(9)), 1000));
}

#[tokio::test]
async fn a_login_shell_has_a_clean_environment_and_the_terminals_name() {
    let sidecar = Sidecar::start();
    let query = format!("term=vt100&cwd=deep&env={}", escaped(r#"{"GIVEN":"a b","LANG":"C"}"#));
    sidecar.sh("mkdir deep").await;
    let mut view = View::open(&sidecar.socket, &query).await;
    view.type_in("echo $TERM+$GIVEN+$LANG+$SHELL+${0#-}+$(tty)+$(pwd); env | grep -ci sidecar\n").await;
    let deep = sidecar.workspace().join("deep");
    let shell = if std::path::Path::new("/bin/bash").exists() { "bash" } else { "sh" };
    view.until(&format!("vt100+a b+C+/bin/{shell}+/bin/{shell}+/dev/pts/")).await;
    view.until(&format!("+{}\r\n0\r\n", deep.display())).await;
}

#[tokio::test]
async fn the_terminal_is_the_shells_own_and_jobs_are_controlled() {
    let sidecar = Sidecar::start();
    let mut view = View::command(&sidecar.socket, QUIET).await;
    view.type_in("echo ok > /dev/tty; stat -c 'owner %u' $(tty)\n").await;
    view.until("ok\r\n").await;
    let owner = if nix::unistd::geteuid().is_root() { 54_321 } else { nix::unistd::geteuid().as_raw() };
    view.until(&format!("owner {owner}\r\n")).await;
    view.type_in("sh -c 'echo $((1 + 1)) began; exec sleep 1000'\n").await;
    view.until("2 began\r\n").await;
    view.type_in("\x1a").await;
    view.until("Stopped").await;
    view.type_in("jobs\nexit\nexit\n").await;
    assert_eq!(view.end().await.1, 1000);
}

#[tokio::test]
async fn a_character_of_four_bytes_passes_whole_however_it_is_cut() {
    let sidecar = Sidecar::start();
    let show = "printf '\\360\\237'; read line; printf '\\230\\200.'";
    let command = format!("stty raw -echo; echo ready; head -c 4 > got; {show}");
    let mut view = View::command(&sidecar.socket, &command).await;
    view.until("ready").await;
    let emoji = "😀".as_bytes();
    view.type_in(&emoji[..1]).await;
    view.type_in(&emoji[1..3]).await;
    view.type_in(&emoji[3..]).await;
    while !view.shown.ends_with(&emoji[..2]) {
        view.next().await;
    }
    view.type_in("\n").await;
    view.until("😀.").await;
    assert_eq!(std::fs::read(sidecar.workspace().join("got")).unwrap(), emoji);
}

#[tokio::test]
async fn a_full_screen_editor_draws_follows_a_resize_and_saves() {
    let found = std::process::Command::new("vim").arg("--version").output();
    assert!(found.is_ok_and(|found| found.status.success()), "vim is not installed; `cargo xtask setup` does that");
    let sidecar = Sidecar::start();
    let command = escaped("vim -N -u NONE -n -c 'set ruler laststatus=2' note.txt");
    let mut view = View::open(&sidecar.socket, &format!("cols=80&rows=24&command={command}")).await;
    // The status line stands in the last row but one.
    view.until("\x1b[?1049h").await;
    view.until("\x1b[23;1H").await;
    view.type_in("ihello from a terminal").await;
    view.until("hello from a terminal").await;
    view.say(ViewerMessage::Resize { cols: 100, rows: 50 }).await;
    assert_eq!(view.message().await, Told::Message(ServerMessage::Resized { cols: 100, rows: 50 }));
    view.until("\x1b[49;1H").await;
    view.type_in("\x1b:wq\r").await;
    assert_eq!(view.end().await, ((Some(0), None), 1000));
    assert!(view.text().contains("\x1b[?1049l"));
    assert_eq!(std::fs::read_to_string(sidecar.workspace().join("note.txt")).unwrap(), "hello from a terminal\n");
}

#[tokio::test]
async fn a_shell_in_a_terminal_reaches_nothing_of_the_sidecars() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("a_shell_in_a_terminal_reaches_nothing_of_the_sidecars: left out, needs root");
        return;
    }
    let sidecar = Sidecar::start();
    let own = std::process::id();
    let attempts = format!(
        "id -u; grep -E '^(NoNewPrivs|CapEff)' /proc/self/status; ls /proc/$$/fd | tr '\\n' ' '
         for pid in {own} $PPID; do kill -0 $pid || cat /proc/$pid/environ || : < /proc/$pid/mem || echo kept-out; done
         : > {} && echo in; exit 0",
        sidecar.socket.display()
    );
    let mut view = View::command(&sidecar.socket, &attempts).await;
    assert_eq!(view.end().await, ((Some(0), None), 1000));
    let text = view.text();
    assert!(
        text.contains("54321\r\n") && text.contains("NoNewPrivs:\t1") && text.contains("CapEff:\t0000000000000000")
    );
    assert!(text.contains("0 1 2 ") && !text.contains("0 1 2 3 4"), "{text}");
    assert!(text.matches("kept-out").count() == 2 && !text.contains("in\r\n"), "{text}");
}
