//! Figures, not promises: `cargo test --release -p sandbox-sidecar --test it -- --ignored --nocapture channel`.

use std::time::Instant;

use sandbox_protocol::channel::{FromProgram, ToProgram};
use sandbox_protocol::limits::{CHANNEL_FRAME_BYTES_MAX, CHANNEL_WINDOW_BYTES};

use super::client::{Channel, command, exited};
use crate::harness::{Sidecar, TOKEN};
use crate::program::{PROGRAM, Program};

const BYTES: usize = 1 << 30;

fn speed(begun: Instant) -> f64 {
    (BYTES >> 20) as f64 / begun.elapsed().as_secs_f64()
}

/// Processor time of the sidecar so far, in ticks of ten milliseconds each.
fn spent_ms(sidecar: &Program) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", sidecar.pid())).unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap() * 10).sum()
}

#[tokio::test]
#[ignore = "measures"]
async fn the_speed_of_a_channel_in_each_direction() {
    // In a process of its own, as it is.
    let sidecar = Program::start(PROGRAM, &[], Some(TOKEN)).await;
    let socket = sidecar.socket();
    let mut channel = Channel::start_at(&socket, command("head -c 1G /dev/zero")).await;
    let (begun, mut got) = (Instant::now(), 0);
    while let Some(FromProgram::Stdout(bytes)) = channel.reader.frame().await {
        got += bytes.len();
    }
    assert_eq!(got, BYTES);
    eprintln!("from a program: {:.0} MiB/s, {} ms of the sidecar's processor", speed(begun), spent_ms(&sidecar));
    let mut channel = Channel::start_at(&socket, command("cat > /dev/null")).await;
    let (begun, mut sent) = (Instant::now(), 0);
    while sent < BYTES {
        if sent + CHANNEL_FRAME_BYTES_MAX <= channel.taken + CHANNEL_WINDOW_BYTES {
            channel.say(ToProgram::Stdin(vec![0; CHANNEL_FRAME_BYTES_MAX].into())).await;
            sent += CHANNEL_FRAME_BYTES_MAX;
        } else {
            channel.next().await;
        }
    }
    channel.say(ToProgram::StdinEof).await;
    assert_eq!(channel.end().await, exited(0));
    eprintln!("to a program: {:.0} MiB/s, {} ms of the sidecar's processor in all", speed(begun), spent_ms(&sidecar));
}

#[tokio::test]
#[ignore = "measures"]
async fn the_time_from_a_start_to_its_end() {
    const ROUNDS: u32 = 200;
    let sidecar = Program::start(PROGRAM, &[], Some(TOKEN)).await;
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        let mut channel = Channel::start_at(&sidecar.socket(), command("true")).await;
        assert_eq!(channel.end().await, exited(0));
    }
    eprintln!("from start to exit, connecting included: {:?}", begun.elapsed() / ROUNDS);
}

/// A figure of the memory of the process `pid`, in KiB.
fn memory_kb(pid: &str, figure: &str) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
#[ignore = "measures"]
async fn the_memory_of_an_idle_channel() {
    const CHANNELS: u64 = 400;
    let sidecar = Sidecar::start();
    let mut all = vec![Channel::sh(&sidecar, "echo $PPID > supervisor; exec sleep 1000").await];
    let supervisor = sidecar.file("supervisor").await;
    let before = memory_kb("self", "Anonymous");
    for _ in 0..CHANNELS {
        all.push(Channel::sh(&sidecar, "exec sleep 1000").await);
    }
    let after = memory_kb("self", "Anonymous").saturating_sub(before);
    eprintln!("idle channels, their client included: {after} KiB for {CHANNELS}");
    eprintln!("a supervisor: {} KiB of its own", memory_kb(&supervisor, "Private_Dirty"));
    for mut channel in all {
        channel.say(ToProgram::End).await;
    }
}
