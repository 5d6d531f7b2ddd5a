//! `negotiate`: what a negotiation takes beside its model. Of one move of ten rounds: the time from the model's first request to
//! its last answer, less 21 times the model's own delay. Of fifteen moves, five at a time: the whole command of a customer,
//! sandboxes made and removed, beside what the model alone takes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox_tests::client::Client;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::models;
use scripted_provider::{Place, Provider, Script};
use serde_json::json;

use super::{Samples, percentile, report};

const DELAY: Duration = Duration::from_millis(100);
/// Of a move of ten rounds, one after the other.
const STAGES: u32 = 21;
const CALLS: u64 = 61;
const ROUNDS: usize = 5;
const MOVES: usize = 15;
const AT_A_TIME: usize = 5;

pub(super) async fn run() -> Result<()> {
    let provider = Provider::start_at(Place::Port(0), Script::negotiation(), DELAY).await?;
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    models::offer(&mut node, &provider)?;
    node.set("POOL_SIZE", AT_A_TIME.to_string());
    node.start().await?;
    let customer = ground.client(CUSTOMER)?;
    let service = customer.service(&[Ground::address(OPERATOR)]).await?;
    let sandbox = customer.create(service, &[]).await?;
    let stage = Stage { customer, sandbox, provider, file: node.dir().join("moves.json") };
    let model = DELAY * STAGES;
    let mut one = Samples::default();
    for _ in 0..ROUNDS {
        stage.negotiate(1).await?;
        let overhead = stage.answering()?.saturating_sub(model);
        one.ours.push(overhead.as_secs_f64() * 1_000.0);
        eprintln!("  a move: {overhead:.1?} beside its model");
    }
    report("negotiate", "overhead_ms", "ms", &one, (percentile(&one.ours, 0.5), None))?;
    let mut all = Samples::default();
    for _ in 0..2 {
        let started = Instant::now();
        stage.negotiate(MOVES).await?;
        all.ours.push(started.elapsed().as_secs_f64() * 1_000.0);
        all.baseline.push((model * MOVES.div_ceil(AT_A_TIME) as u32).as_secs_f64() * 1_000.0);
        eprintln!("  {MOVES} moves: {:.1?}", started.elapsed());
    }
    let medians = (percentile(&all.ours, 0.5), Some(percentile(&all.baseline, 0.5)));
    report("negotiate", "fifteen_moves_ms", "ms", &all, medians)
}

struct Stage {
    customer: Client,
    sandbox: String,
    provider: Provider,
    file: std::path::PathBuf,
}

impl Stage {
    async fn negotiate(&self, count: usize) -> Result<()> {
        let moves: Vec<_> =
            (1..=count).map(|number| json!({"move_id": format!("m{number}"), "content": "buy them"})).collect();
        std::fs::write(&self.file, json!(moves).to_string()).context("cannot write moves")?;
        let (file, at_a_time) = (self.file.display().to_string(), AT_A_TIME.to_string());
        let args = ["negotiate", &self.sandbox, &file, "--ticker", "ACME", "--concurrency", &at_a_time];
        let before = self.provider.calls();
        let output = self.customer.run(&args).await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let calls = self.provider.calls() - before;
        ensure!(calls == CALLS * count as u64, "{calls} calls for {count} moves");
        Ok(())
    }

    /// From the first request of the last move to its last answer.
    fn answering(&self) -> Result<Duration> {
        let requests = self.provider.requests();
        let last = requests.last().context("no request")?;
        let first = requests.len().checked_sub(CALLS as usize).and_then(|index| requests.get(index));
        Ok(last.at.duration_since(first.context("too few requests")?.at) + DELAY)
    }
}
