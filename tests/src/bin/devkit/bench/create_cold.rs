//! `create_cold`: from asking for a sandbox to the first command that succeeded in it.
//!
//! Ours is the customer's whole road, chain and proofs included; the baseline is the engine's own command line with the
//! same image and host configuration.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox_protocol::SandboxId;
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::requests::{CreateBuilder, ExecBuilder, JobRequest, delete};
use sandbox_tests::engine;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};

use super::twin::Twin;
use super::{Samples, report_times};

const ROUNDS: usize = 20;
const WARM_UP: usize = 2;
const BOUND: Duration = Duration::from_secs(60);

pub(super) async fn run() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.start().await?;
    let service = ground.client(CUSTOMER)?.service(&[Ground::address(OPERATOR)]).await?;
    let account = ground.account(CUSTOMER).await?;
    let customer = Customer { answers: Answers::new(account.clone())?, account, service };
    let mut samples = Samples::default();
    for round in 0..ROUNDS + WARM_UP {
        let started = Instant::now();
        let sandbox = customer.create().await?;
        customer.exec_true(sandbox).await?;
        let ours = started.elapsed();

        let twin = Twin::new(round)?;
        let started = Instant::now();
        twin.create()?;
        twin.start()?;
        twin.exec_true()?;
        let baseline = started.elapsed();
        if round == 0 {
            let container = engine::containers(&node.run_dir())?.pop().context("no container")?;
            twin.must_equal(&container)?;
        }
        drop(twin);
        customer.delete(sandbox).await?;
        if round >= WARM_UP {
            samples.ours.push(ours.as_secs_f64() * 1_000.0);
            samples.baseline.push(baseline.as_secs_f64() * 1_000.0);
        }
        eprintln!("  {:>2}/{} {ours:.0?} against {baseline:.0?}", round + 1, ROUNDS + WARM_UP);
    }
    report_times("create_cold", &samples)
}

struct Customer {
    account: Account,
    answers: Answers,
    service: u64,
}

impl Customer {
    async fn create(&self) -> Result<SandboxId> {
        let origin = self.done(CreateBuilder::new().build()?).await?;
        Ok(SandboxId { origin, slot: 0 })
    }

    async fn exec_true(&self, sandbox: SandboxId) -> Result<()> {
        self.done(ExecBuilder::new(sandbox, "true").build()?).await.map(drop)
    }

    async fn delete(&self, sandbox: SandboxId) -> Result<()> {
        self.done(delete(sandbox)).await.map(drop)
    }

    async fn done(&self, request: JobRequest) -> Result<sandbox_protocol::CallKey> {
        let submitted = self.account.submit_job(self.service, request).await?;
        let body = self.answers.wait_until_settled(&submitted, BOUND).await?;
        let answer = body.answer.context("no answer")?;
        ensure!(answer.receipt.receipt.outcome == 0, "{}", answer.response_json);
        Ok(submitted.key)
    }
}
