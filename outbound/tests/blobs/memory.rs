//! How much memory a long snapshot takes: a GiB to and from S3 and a directory. Without the usual harness, because
//! the process is measured, and the S3 server is this program again in a process of its own.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests end a test as its own body would
#![allow(dead_code)] // the harness serves another binary too

mod harness;

use std::fs;
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};
use std::time::Instant;

use sandbox_outbound::blobs::{Location, Stores, StoresConfig};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader, ReadBuf};
use tokio::process::Command;

use harness::s3::{Fault, S3};
use harness::{Names, at, offering_nothing};

/// The argument that makes this the server.
const SERVE: &str = "serve-s3";
const MIB: u64 = 1024 * 1024;
const SNAPSHOT_MIB: u64 = 1024;
/// Over what the process had before.
const GROWTH_MIB_MAX: u64 = 64;

const BLOCK_BYTES: usize = 64 * 1024;

/// Bytes without end in memory: one block, stamped with how much is left.
struct Generated {
    left: u64,
    block: Vec<u8>,
}

impl Generated {
    fn snapshot() -> Self {
        Self { left: SNAPSHOT_MIB * MIB, block: harness::some_bytes(BLOCK_BYTES) }
    }
}

impl AsyncRead for Generated {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let length = self.left.min(out.remaining().min(BLOCK_BYTES) as u64) as usize;
        let stamp = self.left.to_le_bytes();
        self.block[..8].copy_from_slice(&stamp);
        out.put_slice(&self.block[..length]);
        self.left -= length as u64;
        Poll::Ready(Ok(()))
    }
}

fn status_mib(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// The most memory that `work` takes over what there was, and the pace.
async fn check(what: &str, work: impl Future<Output = ()>) {
    // The peak begins anew.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let (before, began) = (status_mib("VmRSS:"), Instant::now());
    work.await;
    let growth = status_mib("VmHWM:").saturating_sub(before);
    let pace = SNAPSHOT_MIB as f64 / began.elapsed().as_secs_f64();
    println!("{what}: {SNAPSHOT_MIB} MiB at {pace:.0} MiB/s, {growth} MiB over the {before} MiB before");
    assert!(growth <= GROWTH_MIB_MAX, "{what} took {growth} MiB");
}

async fn there_and_back(what: &str, stores: &Stores, place: &Location) {
    let mut uri = String::new();
    check(&format!("put to {what}"), async {
        let stored = stores.put(place, Generated::snapshot(), None).await.unwrap();
        assert_eq!(stored.size_bytes, SNAPSHOT_MIB * MIB);
        uri = stored.uri;
    })
    .await;
    check(&format!("get from {what}"), async {
        let (mut reader, _) = stores.get(&at(&uri)).await.unwrap();
        let (mut buffer, mut read) = (vec![0; 64 * 1024], 0);
        loop {
            match reader.read(&mut buffer).await.unwrap() {
                0 => break,
                length => read += length as u64,
            }
        }
        assert_eq!(read, SNAPSHOT_MIB * MIB);
    })
    .await;
}

/// Serves S3 until its standard input ends.
async fn serve() {
    let s3 = S3::start(Fault::None, None).await;
    println!("{}", s3.server.address);
    tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await.unwrap();
}

async fn measure() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let address = lines.next_line().await.unwrap().unwrap();
    let s3 = Some(harness::s3::config(&address));
    let stores = Stores::new(StoresConfig { s3, ..offering_nothing("", Names::new(&[])) }).unwrap();
    there_and_back("S3", &stores, &at("s3://snapshots/a")).await;
    // It ends by itself, with its directory.
    drop(server.stdin.take());
    server.wait().await.unwrap();

    let directory = tempfile::tempdir().unwrap();
    let roots = vec![directory.path().to_owned()];
    let stores = Stores::new(StoresConfig { file_roots: roots, ..offering_nothing("", Names::new(&[])) }).unwrap();
    there_and_back("a directory", &stores, &at(&format!("file://{}/a", directory.path().display()))).await;
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    match std::env::args().nth(1).as_deref() {
        Some(SERVE) => serve().await,
        _ => {
            measure().await;
            println!("4 passed, 0 failed");
        }
    }
}
