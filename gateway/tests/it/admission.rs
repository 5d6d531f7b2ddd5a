//! Who is let in, who is told why not, and who is told nothing.

use std::time::Duration;

use sandbox_gateway::Bounds;
use sandbox_gateway::ports::{AuditEvent, Barred, Over, Standing};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{Key, PATIENCE, SANDBOX, Stage, run, text, until};

/// In which a guest has left: a second is promised, two more are a busy machine's.
const AT_ONCE: Duration = Duration::from_secs(3);

/// What a client is told that is not let in, on its stderr.
async fn told(stage: &Stage, user: &str, key: &Key) -> String {
    let output = run(stage.ssh_as(user, key, &[], &["true"]), b"").await;
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    text(&output.stderr)
}

#[tokio::test]
async fn strangers_are_told_nothing_whatever_they_get_wrong() {
    let stage = Stage::start().await;
    let stranger = Key::new(&stage.outside(), "stranger");
    let denied = |told: &str| told.lines().last().unwrap().contains("Permission denied (publickey).");
    for user in [SANDBOX, "sbx-1-2-1", "sbx-9-9-0+resume", "root"] {
        assert!(denied(&told(&stage, user, &stranger).await), "{user}");
    }
    // The right key at another's door is a stranger's.
    assert!(denied(&told(&stage, "sbx-1-3-0", &stage.key).await));
    assert!(stage.house.audit().is_empty());
}

#[tokio::test]
async fn who_has_proven_a_key_on_record_is_told_why_it_opens_nothing() {
    let stage = Stage::start().await;
    let late = Key::new(&stage.outside(), "late");
    stage.house.stands(&late.public, Standing::Expired { at_block: 77 });
    assert!(told(&stage, SANDBOX, &late).await.contains("the key expired at block 77"));
    for (barred, reason) in [
        (Barred::NotRunning("it was deleted".to_owned()), "does not run: it was deleted"),
        (Barred::NotResumed("no room".to_owned()), "could not be resumed: no room"),
        (Barred::Later, "cannot let you in now"),
        (Barred::Stopped, "the sandbox is stopped"),
    ] {
        stage.house.bar(barred);
        assert!(told(&stage, SANDBOX, &stage.key).await.contains(reason), "{reason}");
    }
    assert_eq!(stage.house.audit().len(), 5);
}

#[tokio::test]
async fn a_stopped_sandbox_is_resumed_for_who_asks_for_it() {
    let stage = Stage::start().await;
    stage.house.bar(Barred::Stopped);
    let user = format!("{SANDBOX}+resume");
    let output = run(stage.ssh_as(&user, &stage.key, &[], &["echo in"]), b"").await;
    assert_eq!(text(&output.stdout), "in\n", "{output:?}");
}

#[tokio::test]
async fn the_key_that_signed_decides_and_not_one_that_was_offered() {
    let stage = Stage::start().await;
    let other = Key::new(&stage.outside(), "other");
    // Offered first, and not taken; the right one comes after it.
    let options = stage.options(&other);
    let mut command = tokio::process::Command::new("ssh");
    command.args(&options).arg("-i").arg(&stage.key.file).arg("-p").arg(stage.address.port().to_string());
    command.arg(format!("{SANDBOX}@127.0.0.1")).arg("true").stderr(std::process::Stdio::piped());
    let output = run(command, b"").await;
    assert!(output.status.success(), "{output:?}");
    let fingerprint = stage.key.public.fingerprint();
    assert!(stage.house.entries().iter().all(|entry| entry.key.as_deref() == Some(&fingerprint)));
}

#[tokio::test]
async fn keys_of_every_kind_that_is_taken_open_a_sandbox() {
    let stage = Stage::start().await;
    for (name, kind) in [("p256", "256"), ("p384", "384"), ("p521", "521")] {
        let key = Key::of_kind(&stage.outside(), name, &["-t", "ecdsa", "-b", kind]);
        stage.house.stands(&key.public, Standing::Open);
        let output = run(stage.ssh_as(SANDBOX, &key, &[], &["echo $0"]), b"").await;
        assert!(output.status.success(), "{name}: {output:?}");
    }
}

#[tokio::test]
async fn who_has_to_leave_is_told_why_at_once_and_leaves_nothing_running() {
    for (over, reason) in [
        (Over::Revoked, "the key was revoked"),
        (Over::Expired, "the key has expired"),
        (Over::Sandbox, "the sandbox does not run any more"),
    ] {
        let stage = Stage::start().await;
        let [left, own] = [1, 2].map(|which| format!("sleep {}{which}", 1_000_000 + std::process::id()));
        let mut child = stage.ssh(&[], &[&format!("touch here; (setsid {left} &) ; {own}")]).spawn().unwrap();
        until(|| stage.workspace().join("here").exists()).await;
        stage.house.end(over);
        let status = timeout(AT_ONCE, child.wait()).await.expect("still there").unwrap();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
        assert!(status.code() == Some(255) && stderr.contains(reason), "{status}: {stderr}");
        if over != Over::Sandbox {
            until(|| !runs(&left) && !runs(&own)).await;
        }
        until(|| stage.house.audit().iter().any(|event| matches!(event, AuditEvent::Left { .. }))).await;
        std::process::Command::new("pkill").args(["-f", &format!("{left}|{own}")]).status().unwrap();
    }
}

/// Whether a process of this command line is there.
fn runs(line: &str) -> bool {
    std::process::Command::new("pgrep").args(["-fx", line]).output().unwrap().status.success()
}

#[tokio::test]
async fn guests_have_so_many_places_and_the_next_is_told() {
    let stage = Stage::with(Bounds { guests_max: 1, ..Bounds::default() }).await;
    let mut first = stage.ssh(&[], &["touch here; cat"]);
    let mut first = first.stdin(std::process::Stdio::piped()).spawn().unwrap();
    until(|| stage.workspace().join("here").exists()).await;
    assert!(told(&stage, SANDBOX, &stage.key).await.contains("as many connections are open as may be"));
    drop(first.stdin.take());
    assert!(timeout(PATIENCE, first.wait()).await.unwrap().unwrap().success());
    assert!(!stage.sh("echo again").await.is_empty());
}

#[tokio::test]
async fn strangers_have_so_many_places_and_so_much_time() {
    let bounds = Bounds { strangers_max: 2, login_max: Duration::from_secs(4), ..Bounds::default() };
    let stage = Stage::with(bounds).await;
    let greeting = async |stream: &mut TcpStream| {
        let mut bytes = [0; 8];
        stream.read_exact(&mut bytes).await.map(|_| bytes)
    };
    let mut first = TcpStream::connect(stage.address).await.unwrap();
    let mut second = TcpStream::connect(stage.address).await.unwrap();
    assert_eq!(&greeting(&mut first).await.unwrap(), b"SSH-2.0-");
    second.write_all(b"SSH-2.0-slow\r\n").await.unwrap();
    assert_eq!(&greeting(&mut second).await.unwrap(), b"SSH-2.0-");
    let mut third = TcpStream::connect(stage.address).await.unwrap();
    assert!(greeting(&mut third).await.is_err());
    // Both are sent away when their time is over, whether they said something or not.
    for mut slow in [first, second] {
        let mut rest = Vec::new();
        timeout(PATIENCE, slow.read_to_end(&mut rest)).await.expect("still there").ok();
    }
    stage.sh("true").await;
}

#[tokio::test]
async fn the_gateway_ends_with_its_guests_told_and_their_programs_left_alone() {
    let stage = Stage::start().await;
    let child = stage.ssh(&[], &["touch here; sleep 4; touch done"]).spawn().unwrap();
    until(|| stage.workspace().join("here").exists()).await;
    stage.stop.cancel();
    let output = timeout(PATIENCE, child.wait_with_output()).await.unwrap().unwrap();
    assert!(text(&output.stderr).contains("the operator is ending"), "{output:?}");
    until(|| stage.workspace().join("done").exists()).await;
}
