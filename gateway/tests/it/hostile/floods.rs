//! What all strangers together may have the gateway hold.

use std::process::Stdio;
use std::time::Duration;

use sandbox_gateway::Bounds;
use sandbox_gateway::limits::{STRANGERS_MAX, STRANGERS_PER_ADDRESS_MAX};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::timeout;

use super::garbage::{AGREED, connected, kexinit, packet};
use crate::harness::{PATIENCE, Stage, run_within, text};

/// What one stranger may cost at most: a message of the largest kind, as it came and as it was understood, and the
/// beginning of another.
const STRANGER_BYTES_MAX: usize = 1024 * 1024;
/// About as many as russh takes of this length in a list.
const NAMES: usize = 1_000;
/// As long as an SSH packet may be.
const LONGEST_BYTES: usize = 255 * 1024;

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Sends as much as may come before keys are exchanged.
async fn filled(stage: &Stage, number: usize) -> TcpStream {
    let mut peer = connected(stage, number / STRANGERS_PER_ADDRESS_MAX).await;
    let lists = AGREED.map(|list| format!("{list}{}", ",as-long-as-this".repeat(NAMES)));
    let mut lists = lists.each_ref().map(String::as_str);
    // Languages, of which nobody has any.
    lists[8..].fill("");
    let next = [&u32::try_from(LONGEST_BYTES).unwrap().to_be_bytes()[..], &vec![0; LONGEST_BYTES - 1]].concat();
    let bytes = [b"SSH-2.0-test\r\n".as_slice(), &packet(&kexinit(&lists, false)), &next].concat();
    timeout(PATIENCE, peer.write_all(&bytes)).await.expect("it is not read").unwrap();
    peer
}

#[tokio::test]
#[ignore = "measured in a process of its own, by the test below"]
async fn strangers_alone() {
    let stage = Stage::with(Bounds { login_max: Duration::from_secs(600), ..Bounds::default() }).await;
    stage.sh("true").await;
    let before = resident_bytes();
    let mut peers = Vec::new();
    for number in 0..STRANGERS_MAX {
        peers.push(filled(&stage, number).await);
    }
    // One more is sent away, so all of them are here.
    let mut next = connected(&stage, STRANGERS_MAX).await;
    let read = timeout(PATIENCE, tokio::io::AsyncReadExt::read(&mut next, &mut [0; 1])).await;
    assert!(matches!(read.expect("it is let in"), Ok(0) | Err(_)));
    let grown = resident_bytes().saturating_sub(before);
    println!("{grown} bytes for {STRANGERS_MAX} strangers");
    assert!(grown < STRANGERS_MAX * STRANGER_BYTES_MAX, "{grown}");
    drop(peers);
    // And when they are gone, others get in.
    let again = async { while !get_in(&stage).await {} };
    timeout(PATIENCE, again).await.expect("nobody gets in any more");
}

async fn get_in(stage: &Stage) -> bool {
    crate::harness::run(stage.ssh(&[], &["true"]), b"").await.status.success()
}

#[tokio::test]
async fn all_strangers_together_hold_so_much_memory_and_no_more() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "hostile::floods::strangers_alone", "--ignored", "--nocapture"]);
    command.kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = run_within(command, b"", 3 * PATIENCE).await;
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said} {}", text(&output.stderr));
}
