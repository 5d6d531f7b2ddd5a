//! `create_warm`: a create that finds a container waiting, from submission to the answer that the operator has signed and
//! the customer has checked: the sandbox runs; on to its receipt on chain, and to the first command that succeeded.
//!
//! The baseline is the engine's own command line from nothing, as in `create_cold`.

use std::time::{Duration, Instant};

use anyhow::Result;
use sandbox_protocol::SandboxId;
use sandbox_sdk::requests::CreateBuilder;
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
    let (mut created, mut on_chain, mut used) = (Samples::default(), Samples::default(), Samples::default());
    for round in 0..ROUNDS + WARM_UP {
        filled(&node, 2 + round).await?;
        let started = Instant::now();
        let submitted = customer.submit(CreateBuilder::new().build()?).await?;
        customer.answered(&submitted).await?;
        let create = started.elapsed();
        let sandbox = SandboxId { origin: customer.settled(&submitted).await?, slot: 0 };
        let settled = started.elapsed();
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
            for (samples, ours, baseline) in [
                (&mut created, create, baseline_create),
                (&mut on_chain, settled, baseline_create),
                (&mut used, first_exec, baseline_exec),
            ] {
                samples.ours.push(ours.as_secs_f64() * 1_000.0);
                samples.baseline.push(baseline.as_secs_f64() * 1_000.0);
            }
        }
        eprintln!(
            "  {:>2}/{} {create:.1?}, settled {settled:.1?}, first exec {first_exec:.1?}",
            round + 1,
            ROUNDS + WARM_UP
        );
    }
    report_times("create_warm", &created)?;
    for (figure, samples) in [("settled_ms", &on_chain), ("first_exec_ms", &used)] {
        let medians = (percentile(&samples.ours, 0.5), Some(percentile(&samples.baseline, 0.5)));
        report("create_warm", figure, "ms", samples, medians)?;
    }
    Ok(())
}

/// Waits until so many containers in all came to wait in the node's pool.
pub(super) async fn filled(node: &Node, count: usize) -> Result<()> {
    let full = || async { (node.log().matches("a container waits in the pool").count() >= count).then_some(()) };
    until("the pool to be filled", FILLED_WITHIN, full).await
}
