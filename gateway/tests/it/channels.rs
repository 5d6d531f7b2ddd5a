//! Programs over SSH: what they write, how they end, what they are told.

use std::process::Stdio;

use sandbox_gateway::Bounds;
use sandbox_gateway::ports::AuditEvent;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::timeout;

use crate::harness::{PATIENCE, Stage, run, text, until};

#[tokio::test]
async fn a_command_has_its_streams_and_its_status() {
    let stage = Stage::start().await;
    let output = run(stage.ssh(&[], &["cat; echo err >&2; exit 7"]), b"to be read").await;
    assert_eq!(output.status.code(), Some(7));
    assert_eq!((text(&output.stdout).as_str(), text(&output.stderr).as_str()), ("to be read", "err\n"));
    let opened = AuditEvent::Opened { channel: 0, kind: "command", detail: "cat; echo err >&2; exit 7".to_owned() };
    until(|| stage.house.audit().iter().any(|event| matches!(event, AuditEvent::Left { .. }))).await;
    let audit = stage.house.audit();
    let closed = AuditEvent::Closed { channel: 0, bytes_in: 10, bytes_out: 14, end: "exit 7".to_owned() };
    assert!(matches!(&audit[0], AuditEvent::Entered { client } if client.starts_with("SSH-2.0-OpenSSH")), "{audit:?}");
    let channels: Vec<_> = audit[1..].iter().filter(|event| !matches!(event, AuditEvent::Left { .. })).collect();
    assert!(channels.len() == 2, "{audit:?}");
    assert!(
        matches!((channels[0], &opened), (AuditEvent::Opened { detail: a, .. }, AuditEvent::Opened { detail: b, .. }) if a == b)
    );
    assert!(
        matches!((channels[1], &closed), (AuditEvent::Closed { bytes_in: a, bytes_out: b, .. }, AuditEvent::Closed { bytes_in: c, bytes_out: d, .. }) if (a, b) == (c, d)),
        "{audit:?}"
    );
    assert!(stage.house.touched() > 0);
}

#[tokio::test]
async fn a_program_that_a_signal_ends_is_told_as_such() {
    let stage = Stage::start().await;
    let output = run(stage.ssh(&["-v"], &["kill -SEGV $$"]), b"").await;
    // OpenSSH has no status for it but its own.
    assert_eq!(output.status.code(), Some(255));
    assert!(text(&output.stderr).contains("exit-signal"), "{output:?}");
}

#[tokio::test]
async fn what_is_written_to_cat_comes_back_whole_however_much_it_is() {
    let stage = Stage::start().await;
    let bytes: Vec<u8> = (0..48u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let output = run(stage.ssh(&[], &["cat"]), &bytes).await;
    assert!(output.status.success() && output.stdout == bytes, "{} bytes of {}", output.stdout.len(), bytes.len());
}

#[tokio::test]
async fn keys_are_exchanged_anew_in_the_midst_of_it() {
    let stage = Stage::with(Bounds { rekey_bytes: 1 << 20, ..Bounds::default() }).await;
    let bytes = vec![b'x'; 12 << 20];
    let output = run(stage.ssh(&["-v"], &["cat"]), &bytes).await;
    assert!(output.status.success() && output.stdout == bytes);
    let exchanges = text(&output.stderr).matches("SSH2_MSG_KEXINIT received").count();
    assert!(exchanges > 5, "{exchanges}");
}

#[tokio::test]
async fn a_program_that_reads_nothing_holds_up_no_other_channel() {
    let stage = Stage::start().await;
    let control = stage.outside().join("control");
    let control = control.to_str().unwrap();
    let mut master =
        stage.ssh(&["-M", "-S", control], &["touch deaf; while [ ! -e heard ]; do sleep 0.1; done; cat | wc -c"]);
    let mut master = master.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = master.stdin.take().unwrap();
    let length = 64 << 20;
    let feeding = tokio::spawn(async move {
        stdin.write_all(&vec![1; length]).await.unwrap();
    });
    until(|| stage.workspace().join("deaf").exists()).await;
    for number in 0..5 {
        let mut other = stage.ssh(&["-S", control], &["cat"]);
        other.stdin(Stdio::piped());
        let bytes = vec![number; 3 << 20];
        let output = timeout(PATIENCE, run(other, &bytes)).await.expect("held up");
        assert!(output.stdout == bytes, "{}: {}", output.stdout.len(), text(&output.stderr));
    }
    std::fs::write(stage.workspace().join("heard"), b"").unwrap();
    let output = timeout(PATIENCE, master.wait_with_output()).await.unwrap().unwrap();
    feeding.await.unwrap();
    assert_eq!(text(&output.stdout).trim(), length.to_string());
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_up_no_other_channel() {
    let stage = Stage::start().await;
    let control = stage.outside().join("control");
    let control = control.to_str().unwrap();
    let mut master = stage.ssh(&["-M", "-S", control], &["touch loud; head -c 100000000 /dev/zero"]).spawn().unwrap();
    until(|| stage.workspace().join("loud").exists()).await;
    for _ in 0..5 {
        let output = timeout(PATIENCE, run(stage.ssh(&["-S", control], &["echo heard"]), b"")).await.expect("held up");
        assert_eq!(text(&output.stdout), "heard\n");
    }
    let mut rest = Vec::new();
    master.stdout.take().unwrap().read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest.len(), 100_000_000);
}

#[tokio::test]
async fn what_a_command_leaves_running_goes_on_and_holds_nothing_up() {
    let stage = Stage::start().await;
    let said = stage.sh("(while [ ! -e go ]; do sleep 0.1; done; touch later) & echo at once").await;
    assert_eq!(said, "at once\n");
    std::fs::write(stage.workspace().join("go"), b"").unwrap();
    until(|| stage.workspace().join("later").exists()).await;
}

#[tokio::test]
async fn a_terminal_has_the_clients_size_kind_and_modes() {
    let stage = Stage::start().await;
    let mut command =
        stage.ssh(&["-tt"], &["stty size; echo $TERM; stty -a | grep -o -- '-echo '; read line; stty size"]);
    command.env("TERM", "vt220");
    let output = run(command, b"\n").await;
    let lines: Vec<String> = text(&output.stdout).lines().map(|line| line.trim().to_owned()).collect();
    // No terminal, no size: the usual one.
    assert!(lines.contains(&"24 80".to_owned()) && lines.contains(&"vt220".to_owned()), "{lines:?} {output:?}");
}

#[tokio::test]
async fn a_shell_is_a_login_shell_in_the_workspace() {
    let stage = Stage::start().await;
    let output = run(stage.ssh(&[], &[]), b"pwd; echo $0; echo $HOME; exit 3\n").await;
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(lines[0].ends_with("/workspace") && lines[1].starts_with('-'), "{lines:?}");
}

#[tokio::test]
async fn an_interrupt_typed_at_a_terminal_reaches_the_program() {
    let stage = Stage::start().await;
    let mut command = stage.ssh(&["-tt"], &["trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = async || timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap_or_default();
    while !line().await.contains("ready") {}
    child.stdin.as_mut().unwrap().write_all(b"\x03").await.unwrap();
    while !line().await.contains("caught") {}
    assert_eq!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().code(), Some(5));
}

#[tokio::test]
async fn variables_of_text_are_taken_and_others_are_not() {
    let stage = Stage::start().await;
    let mut command = stage.ssh(&["-o", "SendEnv=LC_TEST LD_TEST"], &["echo $LC_TEST.$LD_TEST"]);
    command.env("LC_TEST", "yes").env("LD_TEST", "no");
    assert_eq!(text(&run(command, b"").await.stdout), "yes.\n");
}

#[tokio::test]
async fn a_program_is_told_whence_its_guest_came() {
    let stage = Stage::start().await;
    let said = stage.sh("echo $SSH_CONNECTION").await;
    let words: Vec<&str> = said.split_whitespace().collect();
    let port = stage.address.port().to_string();
    assert!(matches!(words[..], ["127.0.0.1", _, "127.0.0.1", own] if own == port), "{said}");
}

#[tokio::test]
async fn sixty_four_channels_of_one_connection_work_at_once() {
    let stage = Stage::start().await;
    let control = stage.outside().join("control");
    let control = control.to_str().unwrap().to_owned();
    let mut master = stage.ssh(&["-M", "-S", &control], &["touch up; cat"]);
    let mut master = master.stdin(Stdio::piped()).spawn().unwrap();
    until(|| stage.workspace().join("up").exists()).await;
    let mut children = Vec::new();
    for number in 0..64 {
        let command = format!("touch in-{number}; while [ ! -e go ]; do sleep 0.05; done; echo {number}");
        children.push(stage.ssh(&["-S", &control], &[&command]).spawn().unwrap());
    }
    until(|| (0..64).all(|number| stage.workspace().join(format!("in-{number}")).exists())).await;
    std::fs::write(stage.workspace().join("go"), b"").unwrap();
    for (number, child) in children.into_iter().enumerate() {
        let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
        assert_eq!(text(&output.stdout), format!("{number}\n"));
    }
    drop(master.stdin.take());
    timeout(PATIENCE, master.wait()).await.unwrap().unwrap();
}

#[tokio::test]
async fn x11_is_refused_and_the_command_runs_all_the_same() {
    let stage = Stage::start().await;
    let mut command = stage.ssh(&["-X"], &["echo ran"]);
    command.env("DISPLAY", ":77");
    let output = run(command, b"").await;
    assert!(output.status.success() && text(&output.stdout) == "ran\n", "{output:?}");
}
