//! Large files in small memory: of a sidecar in a process of its own, and of its worker.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::{Method, Request, Response};
use nix::unistd::geteuid;
use sandbox_process::link::Driver;
use sandbox_protocol::files::{FilesQuery as _, WriteReply};
use sha2::Digest as _;
use tokio::process::{Child, Command};
use tokio_stream::StreamExt as _;

use super::desk::{at, exchange, workers};
use crate::harness::{PATIENCE, TOKEN, until};

const MIB: u64 = 1 << 20;
/// What sidecar and worker may grow by, each.
const GROWTH_KB_MAX: u64 = 8 * 1024;

/// The most memory that a process has had, in KiB.
fn peak_kb(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

async fn started(directory: &Path) -> Child {
    let workspace = directory.join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    if geteuid().is_root() {
        for path in [directory, &workspace] {
            std::os::unix::fs::chown(path, Some(1_000), Some(1_000)).unwrap();
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox-sidecar"));
    command.env_clear().env("SIDECAR_SOCKET", directory.join("socket")).env("AGENT_WORKSPACE_ROOT", &workspace);
    command.env("SIDECAR_AUTH_TOKEN", TOKEN).env("AGENT_HOME", directory.join("home"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    until(|| directory.join("socket").exists()).await;
    child
}

async fn ask<B>(directory: &Path, method: Method, target: &str, body: B) -> (Response<Incoming>, Driver)
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let request = Request::builder().method(method).uri(target).header("authorization", format!("Bearer {TOKEN}"));
    exchange(&directory.join("socket"), request.body(body).unwrap()).await
}

async fn put(directory: &Path, name: &str, mib: u64, piece: &Bytes) -> WriteReply {
    let frames = tokio_stream::iter(std::iter::repeat_n(piece.clone(), mib as usize)).map(Frame::data);
    let body = StreamBody::new(frames.map(Ok::<_, std::io::Error>));
    let (answer, _driver) = ask(directory, Method::PUT, &at(name).target(), body).await;
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"))
}

async fn get(directory: &Path, name: &str, piece: &Bytes) -> u64 {
    let target = format!("/files/content?path={name}");
    let (answer, _driver) = ask(directory, Method::GET, &target, String::new()).await;
    let (mut body, mut got) = (answer.into_body(), 0);
    while let Some(frame) = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap() {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data == piece.slice(..data.len()));
        got += data.len() as u64;
    }
    got
}

/// Puts and gets `mib` MiB and tells what both processes grew by and how fast it went.
async fn check(mib: u64) {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let sidecar = started(directory).await;
    let piece = Bytes::from(vec![7; MIB as usize]);
    put(directory, "warm", 1, &piece).await;
    get(directory, "warm", &piece).await;
    let processes = [sidecar.id().unwrap(), workers(&directory.join("workspace"))[0]];
    let before = processes.map(peak_kb);
    let begun = Instant::now();
    let reply = put(directory, "big", mib, &piece).await;
    let (put_s, begun) = (begun.elapsed().as_secs_f64(), Instant::now());
    assert_eq!(get(directory, "big", &piece).await, mib * MIB);
    let get_s = begun.elapsed().as_secs_f64();
    let mut hash = sha2::Sha256::new();
    (0..mib).for_each(|_| hash.update(&piece));
    assert_eq!((reply.bytes, reply.sha256.0), (mib * MIB, <[u8; 32]>::from(hash.finalize())));
    let after = processes.map(peak_kb);
    let grown = [after[0] - before[0], after[1] - before[1]];
    let rate = |seconds: f64| mib as f64 / seconds;
    eprintln!(
        "{mib} MiB: sidecar grew {} KiB, worker {} KiB; put {:.0} MiB/s, got {:.0} MiB/s",
        grown[0],
        grown[1],
        rate(put_s),
        rate(get_s)
    );
    assert!(grown.iter().all(|kb| *kb <= GROWTH_KB_MAX), "{grown:?} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_goes_both_ways_in_bounded_memory() {
    check(128).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes a GiB: run it by name, with a release build for figures"]
async fn a_gib_goes_both_ways_in_bounded_memory() {
    check(1_024).await;
}
