//! How executions end: by timeout, with the sidecar, and with all that they started.

use std::time::{Duration, Instant};

use sandbox_protocol::exec::{ExecBody, ExecEnd};
use tokio::time::timeout;

use crate::harness::{Sidecar, body, lives, named, text};

/// Starts children of every kind, writes their ids to `pids`, and would go on for ever.
const FAMILY: &str = "
    sleep 1000 & echo $! >> pids
    setsid sh -c 'echo $$ >> pids; exec sleep 1000' &
    (setsid sh -c '(setsid sh -c \"echo \\$\\$ >> pids; trap : TERM HUP INT; while :; do sleep 1000; done\" &) ' &)
    env -i sh -c 'echo $$ >> pids; exec sleep 1000' &
    echo $$ >> pids
    until [ $(wc -l < pids) -eq 5 ]; do sleep 0.01; done
    echo complete > complete
    wait
    sleep 1000";

async fn family(sidecar: &Sidecar) -> Vec<String> {
    sidecar.file("complete").await;
    let pids: Vec<_> = sidecar.file("pids").await.lines().map(str::to_owned).collect();
    assert_eq!(pids.len(), 5);
    pids
}

#[tokio::test]
async fn a_timeout_kills_the_whole_tree() {
    let sidecar = Sidecar::start();
    let request = ExecBody { timeout_ms: 3_000, ..body(&format!("echo kept; {FAMILY}")) };
    let (reply, pids) = tokio::join!(sidecar.exec(&request), family(&sidecar));
    let reply = reply.unwrap();
    assert_eq!((reply.ended, reply.exit_code, text(&reply.stdout)), (ExecEnd::TimedOut, 137, "kept\n"));
    assert!(reply.duration_ms >= 3_000);
    // Killed before the reply: there is nothing to wait for.
    assert_eq!(pids.iter().filter(|pid| lives(pid)).count(), 0);
}

#[tokio::test]
async fn a_timeout_spares_other_executions() {
    let sidecar = Sidecar::start();
    let other = named("other", "echo $$ > other; until [ -e go ]; do sleep 0.01; done; echo spared");
    let ended = async {
        sidecar.file("other").await;
        let reply = sidecar.exec(&ExecBody { timeout_ms: 50, ..body("sleep 1000 & wait") }).await.unwrap();
        sidecar.sh("touch go").await;
        reply.ended
    };
    let (other, ended) = tokio::join!(sidecar.exec(&other), ended);
    assert_eq!((text(&other.unwrap().stdout), ended), ("spared\n", ExecEnd::TimedOut));
}

#[tokio::test]
async fn a_timeout_outruns_what_forks_without_end() {
    let sidecar = Sidecar::start();
    let command = "f() { while :; do sh -c 'echo $$ >> all; exec sleep 0.02' & done; }; f & f & f & wait";
    let reply = sidecar.exec(&ExecBody { timeout_ms: 300, ..body(command) }).await.unwrap();
    assert_eq!(reply.ended, ExecEnd::TimedOut);
    let all = sidecar.file("all").await;
    assert!(all.lines().count() > 10);
    assert_eq!(all.lines().filter(|pid| lives(pid)).count(), 0);
    assert_eq!(sidecar.sh("cat all").await.stdout.0.trim_ascii_end(), all.as_bytes());
}

#[tokio::test]
async fn the_supervisor_leaves_no_dead_behind_while_the_command_runs() {
    let sidecar = Sidecar::start();
    let reply = sidecar
        .sh("(setsid sh -c 'echo $$ > orphan' &); until [ -s orphan ]; do sleep 0.01; done
             read orphan < orphan; until [ ! -e /proc/$orphan ]; do sleep 0.01; done; echo reaped")
        .await;
    assert_eq!(text(&reply.stdout), "reaped\n");
}

#[tokio::test]
async fn stopping_ends_what_runs_and_refuses_what_comes() {
    let sidecar = Sidecar::start();
    let request = named("running", FAMILY);
    let begun = Instant::now();
    let stopping = async {
        let pids = family(&sidecar).await;
        sidecar.stop.cancel();
        sidecar.engine.stop().await;
        pids
    };
    let (refusal, pids) = tokio::join!(sidecar.refusal(&request), stopping);
    assert_eq!(refusal, (503, "interrupted".to_owned()));
    assert_eq!(pids.iter().filter(|pid| lives(pid)).count(), 0);
    assert!(begun.elapsed() < Duration::from_secs(10));
    let refused = sidecar.engine.execute(body("true")).await.unwrap_err();
    assert_eq!(refused.to_string(), "the sidecar is ending");
    timeout(Duration::from_secs(5), sidecar.doorway.closed()).await.unwrap();
}
