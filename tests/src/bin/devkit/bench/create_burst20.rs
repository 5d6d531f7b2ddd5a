//! `create_burst20`: twenty creates at once, from the first submission until a command succeeded in each; and twenty
//! more at once after it, which find the pool empty.

use std::time::Instant;

use anyhow::{Context, Result};
use sandbox_protocol::SandboxId;
use sandbox_sdk::requests::CreateBuilder;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use tokio::task::JoinSet;

use super::create_warm::filled;
use super::customer::Customer;
use super::{Samples, report};

const BURST: usize = 20;

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
    filled(&node, BURST).await?;
    for figure in ["total_ms", "second_burst_ms"] {
        let started = Instant::now();
        let sandboxes = burst(&customer).await?;
        let total = started.elapsed().as_secs_f64() * 1_000.0;
        eprintln!("  {figure} {total:.0}");
        let samples = Samples { ours: vec![total], baseline: Vec::new() };
        report("create_burst20", figure, "ms", &samples, (total, None))?;
        if figure == "second_burst_ms" {
            for sandbox in sandboxes {
                customer.delete(sandbox).await?;
            }
        }
    }
    Ok(())
}

/// Everything at once, by one account.
async fn burst(customer: &Customer) -> Result<Vec<SandboxId>> {
    let mut using = JoinSet::new();
    for _ in 0..BURST {
        let customer = customer.clone();
        using.spawn(async move {
            let submitted = customer.submit(CreateBuilder::new().build()?).await?;
            let sandbox = SandboxId { origin: customer.settled(&submitted).await?, slot: 0 };
            customer.exec_true(sandbox).await?;
            anyhow::Ok(sandbox)
        });
    }
    let mut sandboxes = Vec::new();
    while let Some(used) = using.join_next().await {
        sandboxes.push(used.context("a customer panicked")??);
    }
    Ok(sandboxes)
}
