//! Programs with pipes: their streams, their end, their signals.

use bytes::Bytes;
use sandbox_protocol::channel::{FromProgram, Program, Start, ToProgram};
use sandbox_protocol::fsp::Signal;
use sandbox_protocol::limits::{CHANNEL_FRAME_BYTES_MAX, CHANNEL_WINDOW_BYTES};

use super::client::{Channel, command, ended_by, exited};
use crate::harness::Sidecar;

#[tokio::test]
async fn stdout_and_stderr_come_apart_and_then_the_exit_code() {
    let sidecar = Sidecar::start();
    let mut channel = Channel::sh(&sidecar, "echo out; echo err >&2; exit 7").await;
    assert_eq!(channel.end().await, exited(7));
    assert_eq!(channel.shown(), ("out\n", "err\n"));
}

#[tokio::test]
async fn a_program_that_a_signal_ends_is_told_by_that_signal() {
    let sidecar = Sidecar::start();
    assert_eq!(Channel::sh(&sidecar, "kill -SEGV $$").await.end().await, ended_by(11));
}

#[tokio::test]
async fn a_program_runs_as_the_agent_in_the_workspace_with_what_is_named_and_nothing_else() {
    let sidecar = Sidecar::start();
    let mut start = command(
        "pwd; id -u; echo $0 $GIVEN; env | cut -d= -f1 | sort | tr '\\n' ' '; echo; ls /proc/self/fd | tr '\\n' ' '",
    );
    start.env = [("GIVEN".to_owned(), "a b".to_owned())].into();
    let mut channel = Channel::start(&sidecar, start).await;
    assert_eq!(channel.end().await, exited(0));
    let (shown, _) = channel.shown();
    let mut lines = shown.lines();
    assert_eq!(lines.next().unwrap(), sidecar.workspace().to_str().unwrap());
    let agent = if nix::unistd::geteuid().is_root() { "54321" } else { lines.clone().next().unwrap() };
    assert_eq!(lines.next().unwrap(), agent);
    assert!(["bash a b", "sh a b"].contains(&lines.next().unwrap()), "{shown}");
    let env: Vec<_> =
        lines.next().unwrap().split(' ').filter(|name| !["", "_", "SHLVL", "OLDPWD"].contains(name)).collect();
    assert_eq!(env, ["GIVEN", "HOME", "LANG", "LOGNAME", "PATH", "PWD", "SHELL", "USER"]);
    assert_eq!(lines.next().unwrap().trim(), "0 1 2 3");
}

#[tokio::test]
async fn a_command_is_any_bytes() {
    let sidecar = Sidecar::start();
    let mut channel = Channel::start(&sidecar, command(b"printf '%s' '\xff\xfe'")).await;
    assert_eq!(channel.end().await, exited(0));
    assert_eq!(channel.stdout, b"\xff\xfe");
}

#[tokio::test]
async fn a_shell_is_a_login_shell_and_reads_what_it_is_to_do() {
    let sidecar = Sidecar::start();
    let start = Start { program: Program::Shell, ..command("") };
    let mut channel = Channel::start(&sidecar, start).await;
    channel.type_in("echo $0; exit 3\n").await;
    assert_eq!(channel.end().await, exited(3));
    assert!(["-bash\n", "-sh\n"].contains(&channel.shown().0), "{:?}", channel.shown());
}

#[tokio::test]
async fn stdin_has_its_end_after_all_that_came_before() {
    let sidecar = Sidecar::start();
    let mut channel = Channel::sh(&sidecar, "cat; echo over").await;
    channel.type_in("one ").await;
    channel.type_in("").await;
    channel.type_in("two ").await;
    channel.say(ToProgram::StdinEof).await;
    assert_eq!(channel.end().await, exited(0));
    assert_eq!(channel.shown().0, "one two over\n");
}

#[tokio::test]
async fn much_passes_both_ways_at_once_within_the_window() {
    const BYTES: usize = 64 << 20;
    let sidecar = Sidecar::start();
    let Channel { mut reader, mut writer, .. } = Channel::sh(&sidecar, "cat").await;
    let (granted, mut grants) = tokio::sync::watch::channel(CHANNEL_WINDOW_BYTES);
    let byte = |at: usize| (at % 251) as u8;
    let send = async {
        let mut sent = 0;
        while sent < BYTES {
            let room = *grants.borrow_and_update() - sent;
            // Of all lengths, the longest among them.
            let length = room.min(BYTES - sent).min(if sent % 2 == 0 { CHANNEL_FRAME_BYTES_MAX } else { 33_333 });
            if length == 0 {
                grants.changed().await.unwrap();
                continue;
            }
            let part: Vec<u8> = (sent..sent + length).map(byte).collect();
            writer.say(ToProgram::Stdin(Bytes::from(part))).await;
            sent += length;
        }
        writer.say(ToProgram::StdinEof).await;
    };
    let receive = async {
        let mut got = 0;
        loop {
            match reader.frame().await.unwrap() {
                FromProgram::Stdout(bytes) => {
                    assert!(bytes.iter().enumerate().all(|(index, got_byte)| *got_byte == byte(got + index)));
                    got += bytes.len();
                }
                FromProgram::Taken(bytes) => granted.send_modify(|granted| *granted += bytes as usize),
                FromProgram::Exit(exit) => break (got, exit),
                frame => panic!("{frame:?}"),
            }
        }
    };
    let ((), received) = tokio::join!(send, receive);
    assert_eq!(received, (BYTES, exited(0)));
}

#[tokio::test]
async fn a_signal_does_not_wait_for_a_program_that_does_not_read() {
    let sidecar = Sidecar::start();
    let mut channel =
        Channel::sh(&sidecar, "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.01; done").await;
    channel.until("ready\n").await;
    for _ in 0..CHANNEL_WINDOW_BYTES / CHANNEL_FRAME_BYTES_MAX {
        channel.say(ToProgram::Stdin(vec![0; CHANNEL_FRAME_BYTES_MAX].into())).await;
    }
    channel.say(ToProgram::Signal(Signal::Usr1)).await;
    assert_eq!(channel.end().await, exited(5));
    assert_eq!(channel.shown().0, "got\n");
}

#[tokio::test]
async fn a_signal_reaches_the_whole_process_group() {
    let sidecar = Sidecar::start();
    let mut channel = Channel::sh(
        &sidecar,
        "trap : TERM; sh -c 'trap \"echo child\" TERM; echo ready; while :; do sleep 0.01; done' & while :; do wait; done",
    )
    .await;
    channel.until("ready\n").await;
    channel.say(ToProgram::Signal(Signal::Term)).await;
    channel.until("child\n").await;
    channel.say(ToProgram::Signal(Signal::Kill)).await;
    assert_eq!(channel.end().await, ended_by(9));
}

#[tokio::test]
async fn what_a_program_does_not_read_any_more_counts_as_taken() {
    let sidecar = Sidecar::start();
    let mut channel =
        Channel::sh(&sidecar, "exec < /dev/null; echo closed; while [ ! -e go ]; do sleep 0.01; done").await;
    channel.until("closed\n").await;
    for _ in 0..CHANNEL_WINDOW_BYTES / CHANNEL_FRAME_BYTES_MAX {
        channel.say(ToProgram::Stdin(vec![0; CHANNEL_FRAME_BYTES_MAX].into())).await;
    }
    while channel.taken < CHANNEL_WINDOW_BYTES {
        assert_eq!(channel.next().await, Some(None));
    }
    std::fs::write(sidecar.workspace().join("go"), "").unwrap();
    assert_eq!(channel.end().await, exited(0));
}

#[tokio::test]
async fn a_program_that_writes_more_than_is_read_waits_and_loses_nothing() {
    let sidecar = Sidecar::start();
    let mut channel = Channel::sh(&sidecar, "head -c 8M /dev/zero; head -c 8M /dev/zero >&2; echo done > done").await;
    // Something is there, and more than fits anywhere waits behind it.
    assert_eq!(channel.next().await, Some(None));
    assert!(!sidecar.workspace().join("done").exists());
    assert_eq!(channel.end().await, exited(0));
    assert_eq!((channel.stdout.len(), channel.stderr.len()), (8 << 20, 8 << 20));
    assert_eq!(sidecar.file("done").await, "done");
}
