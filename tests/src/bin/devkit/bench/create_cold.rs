//! `create_cold`: from asking for a sandbox to the first command that succeeded in it.
//!
//! Ours is the customer's whole road, chain and proofs included; the baseline is the engine's own command line with the
//! same image and host configuration.

use std::time::Instant;

use anyhow::{Context, Result};
use sandbox_tests::engine;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};

use super::customer::Customer;
use super::twin::Twin;
use super::{Samples, report_times};

const ROUNDS: usize = 20;
const WARM_UP: usize = 2;

pub(super) async fn run() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.start().await?;
    let service = ground.client(CUSTOMER)?.service(&[Ground::address(OPERATOR)]).await?;
    let customer = Customer::new(ground.account(CUSTOMER).await?, service)?;
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
