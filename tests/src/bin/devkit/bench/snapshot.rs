//! `snapshot`: 2 GiB of mixed data in a sandbox's workspace, exported by job 4 to a file, against
//! `tar | zstd | sha256sum` on the host over the same mounted directory, with the same level and as many threads.
//!
//! Ours is timed from the submission of the job to its receipt on chain. Meanwhile the memory is watched that it takes: what the
//! operator grows by, and what the process in the sandbox holds that exports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox_protocol::SandboxId;
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::requests::{Contents, CreateBuilder, ExecBuilder, JobRequest, snapshot};
use sandbox_tests::engine::{containers, inspect};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::wait::pass;

use super::footprint::rss_mib;
use super::{Samples, percentile, report};

const ROUNDS: usize = 3;
const CORES: u64 = 2;
const DISK_GB: u64 = 6;
const MIB: f64 = 2_048.0;
/// What zstd does by itself, which is what the sidecar asks of it.
const LEVEL: i32 = 3;
/// Time for the data to be made, and for one snapshot.
const WITHIN: Duration = Duration::from_secs(600);
/// Pause between two looks at the memory.
const LOOK: Duration = Duration::from_millis(20);

/// Half of it cannot be compressed, a quarter is text, an eighth zeros, nearly an eighth a hole, the rest ten thousand small
/// files.
const FILL: &str = "set -e
head -c 1073741824 /dev/urandom > random
seq 100000000 | sed 's/.*/& the quick brown fox jumps over the lazy dog, line & of a log/' | head -c 536870912 > text
head -c 268435456 /dev/zero > zeros
truncate -s 227540992 hole
mkdir small
head -c 40960000 text | split -a 4 -b 4096 - small/";

pub(super) async fn run() -> Result<()> {
    // The baseline keeps nothing, so ours is kept where that costs no disk.
    let kept = tempfile::tempdir_in("/dev/shm").context("no file system in memory")?;
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.set("SNAPSHOT_DIRS", kept.path().display().to_string());
    node.start().await?;
    let service = ground.client(CUSTOMER)?.service(&[Ground::address(OPERATOR)]).await?;
    let account = ground.account(CUSTOMER).await?;
    let customer = Owner { answers: Answers::new(account.clone())?, account, service };
    let create = CreateBuilder::new().cpu_cores(CORES).disk_gb(DISK_GB).build()?;
    let sandbox = SandboxId { origin: customer.done(create).await?, slot: 0 };
    let fill = ExecBuilder::new(sandbox, FILL).timeout_ms(300_000).build()?;
    customer.done(fill).await?;
    let workspace = workspace(&containers(&node.run_dir())?.pop().context("no container")?)?;

    let operator = u64::from(node.pid()?);
    let (mut speed, mut extra) = (Samples::default(), Samples::default());
    for round in 0..=ROUNDS {
        let place = kept.path().join(format!("{:#x}", customer.account.address())).join(format!("{round}.tar.zst"));
        let to = Some(format!("file://{}", place.display()));
        let request = snapshot(sandbox, to, Contents::Workspace)?;
        let begun = Instant::now();
        let extra_mib = watched(operator, async { customer.done(request).await.map(drop) }).await?;
        let ours = begun.elapsed();
        fs::remove_file(&place).context("the snapshot is not where it should be")?;
        let begun = Instant::now();
        piped(&workspace)?;
        let baseline = begun.elapsed();
        eprintln!("  {round}/{ROUNDS} {ours:.1?} against {baseline:.1?}, {extra_mib:.0} MiB");
        // The first round warms up, its memory counts all the same.
        extra.ours.push(extra_mib);
        if round > 0 {
            speed.ours.push(MIB / ours.as_secs_f64());
            speed.baseline.push(MIB / baseline.as_secs_f64());
        }
    }
    let medians = (percentile(&speed.ours, 0.5), Some(percentile(&speed.baseline, 0.5)));
    report("snapshot", "mib_per_s", "MiB/s", &speed, medians)?;
    report("snapshot", "extra_rss_mib", "MiB", &extra, (percentile(&extra.ours, 1.0), None))
}

/// The owner of the sandbox.
struct Owner {
    account: Account,
    answers: Answers,
    service: u64,
}

impl Owner {
    /// Has a job done.
    async fn done(&self, request: JobRequest) -> Result<sandbox_protocol::CallKey> {
        let submitted = self.account.submit_job(self.service, request).await?;
        let answer = self.answers.wait_until_settled(&submitted, WITHIN).await?.answer.context("no answer")?;
        ensure!(answer.receipt.receipt.outcome == 0, "{}", answer.response_json);
        if let Some(code) = answer.response_json["exit_code"].as_i64() {
            ensure!(code == 0, "{}", answer.response_json);
        }
        Ok(submitted.key)
    }
}

/// Where the host sees a container's workspace.
fn workspace(container: &str) -> Result<PathBuf> {
    let inspected = inspect(container)?;
    let mounts = inspected["Mounts"].as_array().context("no mounts")?;
    let mount = mounts.iter().find(|mount| mount["Destination"] == "/workspace").context("no workspace")?;
    Ok(mount["Source"].as_str().context("a workspace without a source")?.into())
}

/// The baseline.
fn piped(workspace: &Path) -> Result<()> {
    let script = format!("set -o pipefail; tar --sparse -C \"$0\" -cf - . | zstd -q -{LEVEL} -T{CORES} | sha256sum");
    let output = Command::new("bash").arg("-c").arg(script).arg(workspace).output().context("no bash")?;
    ensure!(output.status.success(), "the baseline failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Does `work`, and looks at the memory over and over meanwhile: the most that was taken beyond what the operator had, in
/// MiB.
async fn watched(operator: u64, work: impl Future<Output = Result<()>>) -> Result<f64> {
    let before = rss_mib(operator)?;
    let (mut most, mut is_seen) = (0.0_f64, false);
    let mut work = std::pin::pin!(work);
    let ended = loop {
        tokio::select! {
            ended = &mut work => break ended,
            () = pass(LOOK) => {}
        }
        let exporting = exporting();
        is_seen |= exporting.is_some();
        most = most.max(rss_mib(operator)? - before + exporting.unwrap_or(0.0));
    };
    ended?;
    ensure!(is_seen, "no process was seen that exports");
    Ok(most)
}

/// Memory of the process that exports, while there is one.
fn exporting() -> Option<f64> {
    let pids =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
    let exports = |pid: &u64| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"sandbox-sidecar\0export\0"))
    };
    rss_mib(pids.into_iter().find(exports)?).ok()
}
