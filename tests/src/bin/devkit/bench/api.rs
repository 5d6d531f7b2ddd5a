//! `api`: `GET` of an answered call in an open loop, proven by its caller's signature, while commands run in a sandbox.
//!
//! A request is timed from the instant at which it was due, so a stall counts for all that it delays.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox_protocol::CallKey;
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::requests::{ExecBuilder, delete};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::parts::proof;
use tokio::task::{JoinHandle, JoinSet};

use super::{Samples, percentile, report};

const PER_SECOND: u32 = 500;
const SECONDS: u32 = 20;
/// Within which every command and the clean-up end.
const WITHIN: Duration = Duration::from_secs(120);

pub(super) async fn run() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.start().await?;
    let customer = ground.client(CUSTOMER)?;
    let service = customer.service(&[Ground::address(OPERATOR)]).await?;
    let sandbox = customer.create(service, &[]).await?;
    let account = ground.account(CUSTOMER).await?;
    let load = load(account.clone(), &sandbox)?;
    let key = CallKey { service, call: 0 };
    let url = format!("{}/v1/services/{service}/calls/0", node.api_url());
    let samples = Samples {
        ours: asked(&url, &proof(&account, Ground::address(OPERATOR), key)?.to_string()).await?,
        ..Samples::default()
    };
    let commands = load.await.context("the load ended early")??;
    eprintln!("{commands} commands ran meanwhile");
    let p99 = percentile(&samples.ours, 0.99);
    report("api", "median_ms", "ms", &samples, (percentile(&samples.ours, 0.5), None))?;
    report("api", "p99_ms", "ms", &samples, (p99, None))
}

/// Commands, one after the other, for as long as it is asked; then the sandbox is deleted.
fn load(account: Account, sandbox: &str) -> Result<JoinHandle<Result<usize>>> {
    let id = sandbox.parse()?;
    Ok(tokio::spawn(async move {
        let answers = Answers::new(account.clone())?;
        let (begun, mut commands) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_secs(u64::from(SECONDS)) {
            let command = ExecBuilder::new(id, "head -c 1000000 /dev/urandom | sha256sum").build()?;
            let submitted = account.submit_job(id.origin.service, command).await?;
            answers.wait_for(&submitted, WITHIN).await?;
            commands += 1;
        }
        let submitted = account.submit_job(id.origin.service, delete(id)).await?;
        answers.wait_for(&submitted, WITHIN).await?;
        Ok(commands)
    }))
}

/// Milliseconds from when each request was due to the end of its answer.
async fn asked(url: &str, proof: &str) -> Result<Vec<f64>> {
    let client = reqwest::Client::new();
    let mut requests = JoinSet::new();
    let mut due = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
    for _ in 0..PER_SECOND * SECONDS {
        let instant = due.tick().await;
        let request = client.get(url).header("authorization", proof);
        requests.spawn(async move {
            let answer = request.send().await?.error_for_status()?.bytes().await?;
            Ok::<_, reqwest::Error>((instant.elapsed().as_secs_f64() * 1_000.0, answer.len()))
        });
    }
    let mut times = Vec::new();
    while let Some(asked) = requests.join_next().await {
        let (time_ms, length) = asked?.context("a request failed")?;
        ensure!(length > 0, "an empty answer");
        times.push(time_ms);
    }
    Ok(times)
}
