//! What a command gets and what comes back from it.

use std::os::unix::fs::PermissionsExt as _;

use sandbox_protocol::exec::{ByteText, ExecBody, ExecEnd};
use sandbox_protocol::limits::EXEC_OUTPUT_BYTES_MAX;

use crate::harness::{Sidecar, body, lives, named, post, text, until};

#[tokio::test]
async fn a_command_gives_its_output_and_its_exit_code() {
    let reply = Sidecar::start().sh("echo out; echo err >&2; exit 3").await;
    assert_eq!((text(&reply.stdout), text(&reply.stderr)), ("out\n", "err\n"));
    assert_eq!((reply.ended, reply.exit_code, reply.truncated), (ExecEnd::Exited, 3, false));
}

#[tokio::test]
async fn output_comes_back_byte_for_byte() {
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let stdin = ByteText(bytes.clone());
    let reply = Sidecar::start().exec(&ExecBody { stdin, ..body("tee /dev/stderr") }).await.unwrap();
    assert!(reply.stdout.0 == bytes && reply.stderr.0 == bytes);
}

#[tokio::test]
async fn stdin_ends_so_that_readers_end() {
    assert_eq!(text(&Sidecar::start().sh("cat; echo end").await.stdout), "end\n");
}

#[tokio::test]
async fn a_command_need_not_read_its_stdin() {
    let stdin = ByteText(vec![b'x'; 500_000]);
    let reply = Sidecar::start().exec(&ExecBody { stdin, ..body("exec <&-; echo done") }).await.unwrap();
    assert_eq!((text(&reply.stdout), reply.exit_code), ("done\n", 0));
}

#[tokio::test]
async fn a_signal_is_told_as_128_and_its_number() {
    assert_eq!(Sidecar::start().sh("kill -TERM $$").await.exit_code, 128 + 15);
}

#[tokio::test]
async fn output_beyond_the_bound_is_dropped_and_marked() {
    let sidecar = Sidecar::start();
    let fits = sidecar.sh(&format!("head -c {EXEC_OUTPUT_BYTES_MAX} /dev/zero; head -c 5 /dev/zero >&2")).await;
    assert_eq!((fits.stdout.0.len(), fits.stderr.0.len(), fits.truncated), (EXEC_OUTPUT_BYTES_MAX, 5, false));
    let exceeds = sidecar.sh(&format!("head -c {} /dev/zero; echo end >&2", 8 * EXEC_OUTPUT_BYTES_MAX + 1)).await;
    assert_eq!((exceeds.stdout.0.len(), text(&exceeds.stderr)), (EXEC_OUTPUT_BYTES_MAX, "end\n"));
    assert!(exceeds.truncated && exceeds.exit_code == 0);
}

#[tokio::test]
async fn a_command_starts_in_the_workspace_or_where_it_asks() {
    let sidecar = Sidecar::start();
    let workspace = std::fs::canonicalize(sidecar.workspace()).unwrap();
    sidecar.sh("mkdir -p deep/er").await;
    for (cwd, expected) in [("", workspace.clone()), ("deep/er", workspace.join("deep/er")), ("/", "/".into())] {
        let reply = sidecar.exec(&ExecBody { cwd: cwd.to_owned(), ..body("pwd -P") }).await.unwrap();
        assert_eq!(text(&reply.stdout).trim_end(), expected.to_str().unwrap());
    }
}

#[tokio::test]
async fn files_are_made_readable_to_all_and_writable_to_the_owner() {
    let sidecar = Sidecar::start();
    sidecar.sh("touch made").await;
    let mode = std::fs::metadata(sidecar.workspace().join("made")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

#[tokio::test]
async fn a_repeat_of_an_id_gives_the_first_reply_and_runs_nothing() {
    let sidecar = Sidecar::start();
    let request = named("once", "echo ran >> ran; cat ran");
    let first = sidecar.exec(&request).await.unwrap();
    let again = sidecar.exec(&request).await.unwrap();
    assert_eq!(first, again);
    assert_eq!((first.id.as_str(), text(&first.stdout)), ("once", "ran\n"));
    assert_eq!(sidecar.exec(&ExecBody { attach_only: true, ..request }).await.unwrap(), first);
}

#[tokio::test]
async fn a_repeat_attaches_to_the_execution_that_runs() {
    let sidecar = Sidecar::start();
    let request = named("twice", "echo ran >> ran; until [ -e go ]; do sleep 0.01; done; cat ran");
    let attach = ExecBody { attach_only: true, ..request.clone() };
    let release = async {
        sidecar.until_running(1).await;
        sidecar.file("ran").await;
        sidecar.sh("touch go").await;
    };
    let (first, second, third, ()) = tokio::join!(
        sidecar.exec(&request),
        sidecar.exec(&request),
        async {
            sidecar.until_running(1).await;
            sidecar.exec(&attach).await
        },
        release
    );
    let first = first.unwrap();
    assert_eq!(text(&first.stdout), "ran\n");
    assert!(second.unwrap() == first && third.unwrap() == first);
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_its_command_running() {
    let sidecar = Sidecar::start();
    let request = named("left", "echo $$ > pid; until [ -e go ]; do sleep 0.01; done; echo done");
    let caller = tokio::spawn({
        let (socket, bytes) = (sidecar.socket.clone(), serde_json::to_vec(&request).unwrap());
        async move { post(&socket, "secret", bytes).await }
    });
    let pid = sidecar.file("pid").await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    assert!(lives(&pid) && sidecar.health().await.running == 1);
    sidecar.sh("touch go").await;
    let reply = sidecar.exec(&ExecBody { attach_only: true, ..request }).await.unwrap();
    assert_eq!(text(&reply.stdout), "done\n");
}

#[tokio::test]
async fn a_background_process_lives_on_and_does_not_hold_the_reply() {
    let sidecar = Sidecar::start();
    let reply = sidecar
        .sh("(until [ -e go ]; do sleep 0.01; done; echo late; echo end > end) & echo $! > pid; echo started")
        .await;
    assert_eq!((text(&reply.stdout), reply.ended), ("started\n", ExecEnd::Exited));
    let pid = sidecar.file("pid").await;
    assert!(lives(&pid));
    // What it writes to the pipe that it was given goes nowhere, and hurts nobody.
    sidecar.sh("touch go").await;
    assert_eq!(sidecar.file("end").await, "end");
    until(|| !lives(&pid)).await;
}

#[tokio::test]
async fn a_finished_execution_no_longer_counts_as_running() {
    let sidecar = Sidecar::start();
    sidecar.sh("true").await;
    assert_eq!(sidecar.health().await.running, 0);
}
