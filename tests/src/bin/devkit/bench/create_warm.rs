//! `create_warm`: a create that finds a container waiting, from submission to the settled answer, and on to the first
//! command that succeeded.
//!
//! The baseline is the engine's own command line from nothing, as in `create_cold`.

use std::time::{Duration, Instant};

use anyhow::Result;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::node::Node;
use sandbox_tests::wait::until;

use super::customer::Customer;
use super::twin::Twin;
use super::{Samples, percentile, report, report_times};

const ROUNDS: usize = 20;
const WARM_UP: usize = 2;
/// Time for the pool to be full again.
const FILLED_WITHIN: Duration = Duration::from_secs(60);

pub(super) async fn run() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.set("POOL_SIZE", "2");
    node.start().await?;
    let service = ground.client(CUSTOMER)?.service(&[Ground::address(OPERATOR)]).await?;
    let customer = Customer::new(ground.account(CUSTOMER).await?, service)?;
    let (mut created, mut used) = (Samples::default(), Samples::default());
    for round in 0..ROUNDS + WARM_UP {
        filled(&node, 2 + round).await?;
        let started = Instant::now();
        let sandbox = customer.create().await?;
        let create = started.elapsed();
        customer.exec_true(sandbox).await?;
        let first_exec = started.elapsed();

        let twin = Twin::new(round)?;
        let started = Instant::now();
        twin.create()?;
        twin.start()?;
        let baseline_create = started.elapsed();
        twin.exec_true()?;
        let baseline_exec = started.elapsed();
        drop(twin);
        customer.delete(sandbox).await?;
        if round >= WARM_UP {
            for (samples, ours, baseline) in
                [(&mut created, create, baseline_create), (&mut used, first_exec, baseline_exec)]
            {
                samples.ours.push(ours.as_secs_f64() * 1_000.0);
                samples.baseline.push(baseline.as_secs_f64() * 1_000.0);
            }
        }
        eprintln!("  {:>2}/{} {create:.1?}, to first exec {first_exec:.1?}", round + 1, ROUNDS + WARM_UP);
    }
    report_times("create_warm", &created)?;
    let medians = (percentile(&used.ours, 0.5), Some(percentile(&used.baseline, 0.5)));
    report("create_warm", "first_exec_ms", "ms", &used, medians)
}

/// Waits until so many containers in all came to wait in the node's pool.
pub(super) async fn filled(node: &Node, count: usize) -> Result<()> {
    let full = || async { (node.log().matches("a container waits in the pool").count() >= count).then_some(()) };
    until("the pool to be filled", FILLED_WITHIN, full).await
}
