//! `batch20`: a batch create of twenty sandboxes against twenty single creates at once, both of one operator that finds as many
//! containers waiting in its pool, in turns. Timed from the first submission until every answer is signed and checked.

use std::time::{Duration, Instant};

use alloy::primitives::U256;
use anyhow::{Context, Result, ensure};
use sandbox_protocol::http::CallStatus;
use sandbox_protocol::{CallKey, SandboxId};
use sandbox_sdk::requests::CreateBuilder;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::node::Node;
use sandbox_tests::{parts, requests};
use tokio::task::JoinSet;

use super::create_warm::filled;
use super::customer::Customer;
use super::{Samples, percentile, report};

const COUNT: usize = 20;
const ROUNDS: usize = 5;
/// Time for the answer of a batch.
const WITHIN: Duration = Duration::from_secs(120);

pub(super) async fn run() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    for (name, value) in [
        ("POOL_SIZE", "20"),
        ("CAPACITY_SANDBOXES", "60"),
        ("CAPACITY_CPU_CORES", "64"),
        ("CAPACITY_MEMORY_MB", "65536"),
        ("CAPACITY_DISK_GB", "1000"),
    ] {
        node.set(name, value);
    }
    node.start().await?;
    let service = ground.client(CUSTOMER)?.service(&[Ground::address(OPERATOR)]).await?;
    let customer = Customer::new(ground.account(CUSTOMER).await?, service)?;
    let stage = Stage { ground, node, customer };
    let (mut samples, mut filled) = (Samples::default(), 0);
    for round in 0..=ROUNDS {
        // Who goes first changes, so that neither has the other's warmth alone.
        for of_batch in [round % 2 == 0, round % 2 != 0] {
            filled += COUNT;
            let total_ms = stage.round(of_batch, filled).await?;
            eprintln!("  {round}/{ROUNDS} {} {total_ms:.0} ms", if of_batch { "batch  " } else { "singles" });
            // The first round warms up.
            if round > 0 {
                (if of_batch { &mut samples.ours } else { &mut samples.baseline }).push(total_ms);
            }
        }
    }
    let medians = (percentile(&samples.ours, 0.5), Some(percentile(&samples.baseline, 0.5)));
    report("batch20", "total_ms", "ms", &samples, medians)
}

struct Stage {
    ground: Ground,
    node: Node,
    customer: Customer,
}

impl Stage {
    /// Milliseconds of one way, from a pool that `waiting` containers have come to in all and that is full; nothing stays.
    async fn round(&self, of_batch: bool, waiting: usize) -> Result<f64> {
        filled(&self.node, waiting).await?;
        let started = Instant::now();
        let sandboxes = if of_batch { self.batch().await? } else { self.singles().await? };
        let total = started.elapsed();
        ensure!(sandboxes.len() == COUNT, "{} sandboxes", sandboxes.len());
        let calls: Vec<CallKey> = sandboxes.iter().map(|sandbox| sandbox.origin).collect();
        self.ground.answered_once(&calls, WITHIN).await?;
        let mut deleting = JoinSet::new();
        for sandbox in sandboxes {
            let customer = self.customer.clone();
            deleting.spawn(async move { customer.delete(sandbox).await });
        }
        for deleted in deleting.join_all().await {
            deleted?;
        }
        Ok(total.as_secs_f64() * 1_000.0)
    }

    async fn batch(&self) -> Result<Vec<SandboxId>> {
        let operators = vec![Ground::address(OPERATOR)];
        let submitted = self.customer.submit(requests::batch_create(COUNT as u32, operators)).await?;
        let account = self.customer.account();
        let answers = parts::answers(account, &submitted, CallStatus::Answered, WITHIN).await?;
        let receipt = &answers.first().context("no part")?.receipt.receipt;
        let all = (U256::ONE << COUNT) - U256::ONE;
        ensure!(receipt.outcome == 0 && receipt.detail == all, "{:#}", answers[0].response_json);
        let sandbox = |slot| SandboxId { origin: submitted.key, slot };
        Ok((0..COUNT as u8).map(sandbox).collect())
    }

    async fn singles(&self) -> Result<Vec<SandboxId>> {
        let mut creating = JoinSet::new();
        for _ in 0..COUNT {
            let customer = self.customer.clone();
            creating.spawn(async move {
                let submitted = customer.submit(CreateBuilder::new().build()?).await?;
                customer.answered(&submitted).await?;
                anyhow::Ok(SandboxId { origin: submitted.key, slot: 0 })
            });
        }
        creating.join_all().await.into_iter().collect()
    }
}
