//! Figures, not promises: `cargo test --release -p sandbox-sidecar --test it -- --ignored --nocapture channel`.

use std::time::Instant;

use sandbox_protocol::channel::{FromProgram, ToProgram};
use sandbox_protocol::limits::{CHANNEL_FRAME_BYTES_MAX, CHANNEL_WINDOW_BYTES};

use super::client::{Channel, exited};
use crate::harness::Sidecar;

const BYTES: usize = 1 << 30;

fn speed(begun: Instant) -> f64 {
    (BYTES >> 20) as f64 / begun.elapsed().as_secs_f64()
}

#[tokio::test]
#[ignore = "measures"]
async fn the_speed_of_a_channel_in_each_direction() {
    let sidecar = Sidecar::start();
    let mut channel = Channel::sh(&sidecar, "head -c 1G /dev/zero").await;
    let (begun, mut got) = (Instant::now(), 0);
    while let Some(FromProgram::Stdout(bytes)) = channel.reader.frame().await {
        got += bytes.len();
    }
    assert_eq!(got, BYTES);
    eprintln!("from a program: {:.0} MiB/s", speed(begun));
    let mut channel = Channel::sh(&sidecar, "cat > /dev/null").await;
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
    eprintln!("to a program: {:.0} MiB/s", speed(begun));
}

#[tokio::test]
#[ignore = "measures"]
async fn the_time_from_a_start_to_its_end() {
    const ROUNDS: u32 = 200;
    let sidecar = Sidecar::start();
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        assert_eq!(Channel::sh(&sidecar, "true").await.end().await, exited(0));
    }
    eprintln!("from start to exit, connecting included: {:?}", begun.elapsed() / ROUNDS);
}

/// What the process `pid` has to itself, in KiB.
fn own_kb(pid: &str) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let figures = rollup.lines().filter(|line| line.starts_with("Private_"));
    figures.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test]
#[ignore = "measures"]
async fn the_memory_of_an_idle_channel() {
    const CHANNELS: u64 = 200;
    let sidecar = Sidecar::start();
    let mut first = Channel::sh(&sidecar, "echo $PPID > supervisor; exec sleep 1000").await;
    let supervisor = sidecar.file("supervisor").await;
    let before = own_kb("self");
    let mut all = Vec::new();
    for _ in 0..CHANNELS {
        all.push(Channel::sh(&sidecar, "exec sleep 1000").await);
    }
    eprintln!("an idle channel, its client included: {} KiB", own_kb("self").saturating_sub(before) / CHANNELS);
    eprintln!("its supervisor: {} KiB", own_kb(&supervisor));
    first.say(ToProgram::End).await;
}
