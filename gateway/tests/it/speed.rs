//! Figures for people, of this very build: `cargo test -p sandbox-gateway --test it speed -- --ignored --nocapture`.

use std::process::Stdio;
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::Stage;

const MIB: usize = 512;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a figure, no promise"]
async fn so_fast_are_bytes_to_a_program() {
    let stage = Stage::start().await;
    let mut child = stage.ssh(&["-c", "aes128-gcm@openssh.com"], &["cat > /dev/null"]);
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let (piece, begun) = (vec![0; 1 << 20], Instant::now());
    for _ in 0..MIB {
        stdin.write_all(&piece).await.unwrap();
    }
    drop(stdin);
    assert!(child.wait().await.unwrap().success());
    println!("up: {:.0} MiB/s", MIB as f64 / begun.elapsed().as_secs_f64());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a figure, no promise"]
async fn so_fast_are_bytes_from_a_program() {
    let stage = Stage::start().await;
    let begun = Instant::now();
    let mut child =
        stage.ssh(&["-c", "aes128-gcm@openssh.com"], &[&format!("head -c {MIB}M /dev/zero")]).spawn().unwrap();
    let (mut stdout, mut buffer, mut all) = (child.stdout.take().unwrap(), vec![0; 1 << 20], 0);
    while let Ok(read @ 1..) = stdout.read(&mut buffer).await {
        all += read;
    }
    assert!(child.wait().await.unwrap().success() && all == MIB << 20);
    println!("down: {:.0} MiB/s", MIB as f64 / begun.elapsed().as_secs_f64());
}
