//! `exec_rtt`: `true` through the sidecar, from request to reply, against `docker exec` in the same container.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox_protocol::exec::{ExecBody, ExecReply};
use sandbox_tests::wait::until;

use super::twin::Twin;
use super::{Samples, report_times};

const ROUNDS: usize = 40;
/// Ours are so much shorter that several fit between two of the baseline's.
const OURS_PER_ROUND: usize = 10;
const READY_WITHIN: Duration = Duration::from_secs(20);

pub(super) async fn run() -> Result<()> {
    let twin = Twin::new(0)?;
    twin.create()?;
    twin.start()?;
    let client = reqwest::Client::builder().unix_socket(twin.socket()).build().context("client")?;
    let healthy = || async { client.get("http://sidecar/health").send().await.ok().map(drop) };
    until("the sidecar", READY_WITHIN, healthy).await?;
    let mut samples = Samples::default();
    for round in 0..=ROUNDS {
        for _ in 0..OURS_PER_ROUND {
            let started = Instant::now();
            exec_true(&client, &twin.token).await?;
            keep(&mut samples.ours, started, round);
        }
        let started = Instant::now();
        twin.exec_true()?;
        keep(&mut samples.baseline, started, round);
    }
    report_times("exec_rtt", &samples)
}

/// The first round warms up.
fn keep(samples: &mut Vec<f64>, started: Instant, round: usize) {
    if round > 0 {
        samples.push(started.elapsed().as_secs_f64() * 1_000.0);
    }
}

async fn exec_true(client: &reqwest::Client, token: &str) -> Result<()> {
    let body: ExecBody = serde_json::from_str(r#"{"command":"true"}"#)?;
    let answer = client.post("http://sidecar/exec").bearer_auth(token).json(&body).send().await.context("no answer")?;
    let reply: ExecReply = answer.error_for_status().context("refused")?.json().await.context("no reply")?;
    ensure!(reply.exit_code == 0, "true ended with {}", reply.exit_code);
    Ok(())
}
