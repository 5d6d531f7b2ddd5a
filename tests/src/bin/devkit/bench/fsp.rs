//! `fsp_exec`, `fsp_stream`, `fsp_parallel`: the execution protocol over an open connection to a sandbox's sidecar.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use sandbox_fsp::{Connection, Endpoint, Event, Token, UnixSocket};
use sandbox_protocol::fsp::{Execute, Extension, Extensions, Extra, Language, Limits, Status};
use sandbox_protocol::limits::{FSP_OUTPUT_BYTES_MAX, FSP_QUEUED_MAX, FSP_RUNNING_MAX, PIDS_MAX};
use sandbox_tests::engine::{docker, inspect};
use sandbox_tests::wait::until;
use tokio::time::interval;

use super::footprint::{child_of, rss_mib};
use super::twin::Twin;
use super::{Samples, median, report, report_times};

const ROUNDS: usize = 40;
/// Ours are so much shorter that several fit between two of the baseline's.
const OURS_PER_ROUND: usize = 10;
const READY_WITHIN: Duration = Duration::from_secs(20);
const STREAM_ROUNDS: usize = 3;
const STREAM_MIB: u64 = 1_024;
const PARALLEL_ROUNDS: usize = 5;
const PARALLEL: usize = 200;
/// How long the slow reader reads, and how much at a time.
const SLOWLY: Duration = Duration::from_secs(8);
const SLOW_PAUSE: Duration = Duration::from_millis(20);

/// A sandbox's container and a connection to it.
struct Sandbox {
    twin: Twin,
    connection: Connection,
}

impl Sandbox {
    async fn start(number: usize, extensions: impl IntoIterator<Item = Extension>) -> Result<Self> {
        let twin = Twin::new(number)?;
        twin.create()?;
        twin.start()?;
        let client = reqwest::Client::builder().unix_socket(twin.socket()).build().context("client")?;
        let healthy = || async { client.get("http://sidecar/health").send().await.ok().map(drop) };
        until("the sidecar", READY_WITHIN, healthy).await?;
        let socket = UnixSocket::new(twin.socket());
        let wanted: Extensions = extensions.into_iter().collect();
        let endpoint = Endpoint::new(socket, Token::fixed(twin.token.as_str()), wanted);
        Ok(Self { connection: Connection::open(&endpoint).await?, twin })
    }

    async fn run(&self, id: String, code: &str) -> Result<()> {
        let outcome = self.connection.execute(execute(id, code)).await?.outcome(1_024).await?;
        ensure!(outcome.status == Status::Completed, "{outcome:?}");
        Ok(())
    }

    /// The process inside that serves.
    fn sidecar(&self) -> Result<u64> {
        let init = inspect(&self.twin.name)?["State"]["Pid"].as_u64().context("the container does not run")?;
        child_of(init)
    }
}

pub(super) fn execute(id: String, code: &str) -> Execute {
    Execute {
        id,
        language: Language::Shell,
        code: code.into(),
        stdin: None,
        env: [].into(),
        limits: Limits { timeout_ms: 120_000, max_output_bytes: FSP_OUTPUT_BYTES_MAX, ..Limits::default() },
        extra: Extra::default(),
    }
}

/// `true`, from the request to the result, against `docker exec` in the same container.
pub(super) async fn exec() -> Result<()> {
    let sandbox = Sandbox::start(0, []).await?;
    let mut samples = Samples::default();
    for round in 0..=ROUNDS {
        for index in 0..OURS_PER_ROUND {
            let started = Instant::now();
            sandbox.run(format!("{round}-{index}"), "true").await?;
            keep(&mut samples.ours, started, round);
        }
        let started = Instant::now();
        sandbox.twin.exec_true()?;
        keep(&mut samples.baseline, started, round);
    }
    report_times("fsp_exec", &samples)
}

/// The first round warms up.
fn keep(samples: &mut Vec<f64>, started: Instant, round: usize) {
    if round > 0 {
        samples.push(started.elapsed().as_secs_f64() * 1_000.0);
    }
}

/// A gigabyte through the protocol's messages and through its binary frames, against `docker exec`; and what a reader
/// that is slow makes the sidecar hold.
pub(super) async fn stream() -> Result<()> {
    let code = format!("head -c {STREAM_MIB}M /dev/zero | tr '\\0' x");
    let (text, binary) =
        (Sandbox::start(0, []).await?, Sandbox::start(1, [Extension::Binary, Extension::Credit]).await?);
    let (mut of_text, mut of_binary) = (Samples::default(), Samples::default());
    for round in 0..STREAM_ROUNDS {
        of_text.ours.push(text.mib_per_s(format!("t{round}"), &code).await?);
        of_binary.ours.push(binary.mib_per_s(format!("b{round}"), &code).await?);
        let started = Instant::now();
        docker(&["exec", "--user", "1000:1000", &binary.twin.name, "sh", "-c", &format!("{code} | cat > /dev/null")])?;
        let without_a_client = STREAM_MIB as f64 / started.elapsed().as_secs_f64();
        of_text.baseline.push(without_a_client);
        of_binary.baseline.push(without_a_client);
    }
    for (name, samples) in [("text_mib_per_s", &of_text), ("mib_per_s", &of_binary)] {
        report("fsp_stream", name, "MiB/s", samples, (median(&samples.ours), Some(median(&samples.baseline))))?;
    }
    for (name, sandbox) in [("slow_text_growth_mib", &text), ("slow_growth_mib", &binary)] {
        let growth = sandbox.growth_under_a_slow_reader(&code).await?;
        let samples = Samples { ours: vec![growth], baseline: Vec::new() };
        report("fsp_stream", name, "MiB", &samples, (growth, None))?;
    }
    Ok(())
}

impl Sandbox {
    async fn mib_per_s(&self, id: String, code: &str) -> Result<f64> {
        let started = Instant::now();
        let mut execution = self.connection.execute(execute(id, code)).await?;
        let mut bytes = 0;
        while let Some(event) = execution.next().await? {
            if let Event::Output(_, output) = event {
                bytes += output.len() as u64;
            }
        }
        ensure!(bytes == STREAM_MIB * 1024 * 1024, "{bytes} bytes came");
        Ok(STREAM_MIB as f64 / started.elapsed().as_secs_f64())
    }

    async fn growth_under_a_slow_reader(&self, code: &str) -> Result<f64> {
        let sidecar = self.sidecar()?;
        let before = rss_mib(sidecar)?;
        let mut execution = self.connection.execute(execute("slow".into(), code)).await?;
        let (started, mut most) = (Instant::now(), before);
        let mut slowly = interval(SLOW_PAUSE);
        while started.elapsed() < SLOWLY {
            ensure!(execution.next().await?.is_some(), "the stream ended though it was read slowly");
            slowly.tick().await;
            most = most.max(rss_mib(sidecar)?);
        }
        execution.control().cancel().await?;
        while execution.next().await?.is_some() {}
        Ok(most - before)
    }
}

/// So many executions at once, each of which waits a second.
pub(super) async fn parallel() -> Result<()> {
    eprintln!("{FSP_RUNNING_MAX} run at a time and {FSP_QUEUED_MAX} wait; {PIDS_MAX} processes");
    let sandbox = Sandbox::start(0, []).await?;
    let mut samples = Samples::default();
    for round in 0..PARALLEL_ROUNDS {
        let started = Instant::now();
        try_join_all((0..PARALLEL).map(|index| sandbox.run(format!("{round}-{index}"), "sleep 1"))).await?;
        samples.ours.push(started.elapsed().as_secs_f64() * 1_000.0);
    }
    report("fsp_parallel", "total_ms", "ms", &samples, (median(&samples.ours), None))
}
