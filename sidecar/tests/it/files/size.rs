//! Large files in small memory.

use std::fmt::Write as _;
use std::time::Instant;

use http_body_util::{BodyExt as _, StreamBody};
use hyper::Method;
use hyper::body::{Bytes, Frame};
use sandbox_protocol::files::{FilesQuery as _, WriteReply};
use sha2::Digest as _;
use tokio_stream::StreamExt as _;

use super::desk::{Desk, at};
use crate::harness::PATIENCE;

const MIB: u64 = 1 << 20;
/// What sidecar and worker may grow by, each.
const GROWTH_KB_MAX: u64 = 8 * 1024;

/// The most memory that a process has had, in KiB.
fn peak_kb(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn forget_peak(process: u32) {
    std::fs::write(format!("/proc/{process}/clear_refs"), "5").unwrap();
}

/// Puts and gets `mib` MiB and gives what the worker grew by, in KiB, and the MiB/s of both ways.
async fn through(desk: &Desk, mib: u64) -> (u64, f64, f64) {
    desk.wrote("warm", &[0; 65_536]).await;
    desk.get(b"warm", &[]).await;
    let worker = desk.worker().await;
    forget_peak(worker);
    let before = peak_kb(worker);
    let piece = Bytes::from(vec![7; MIB as usize]);
    let frames = tokio_stream::iter(std::iter::repeat_n(piece.clone(), mib as usize)).map(Frame::data);
    let body = StreamBody::new(frames.map(Ok::<_, std::io::Error>));
    let begun = Instant::now();
    let (answer, _driver) = desk.stream(Method::PUT, &at("big").target(), &[], body).await;
    let status = answer.status();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(status, 201, "{bytes:?}");
    let reply: WriteReply = serde_json::from_slice(&bytes).unwrap();
    let put = mib as f64 / begun.elapsed().as_secs_f64();
    let mut hash = sha2::Sha256::new();
    (0..mib).for_each(|_| hash.update(&piece));
    assert_eq!((reply.bytes, reply.sha256.0), (mib * MIB, <[u8; 32]>::from(hash.finalize())));
    let begun = Instant::now();
    let (answer, _driver) = desk.stream(Method::GET, "/files/content?path=big", &[], String::new()).await;
    assert_eq!(answer.headers()["content-length"], (mib * MIB).to_string());
    let (mut body, mut got) = (answer.into_body(), 0);
    while let Some(frame) = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap() {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.iter().all(|byte| *byte == 7));
        got += data.len() as u64;
    }
    assert_eq!(got, mib * MIB);
    (peak_kb(worker).saturating_sub(before), put, mib as f64 / begun.elapsed().as_secs_f64())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_goes_both_ways_in_bounded_memory() {
    let desk = Desk::open();
    let (grown_kb, put, got) = through(&desk, 128).await;
    let mut told = String::new();
    write!(told, "128 MiB: worker grew {grown_kb} KiB, put {put:.0} MiB/s, got {got:.0} MiB/s").unwrap();
    eprintln!("{told}");
    assert!(grown_kb <= GROWTH_KB_MAX, "{told}");
}
