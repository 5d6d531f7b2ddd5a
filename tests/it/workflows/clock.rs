//! The clock: an instant is fired once, over restarts, and the chain is told.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use sandbox_tests::ground::CUSTOMER;
use sandbox_tests::wait::until;
use serde_json::{Value, json};

use super::{BOUND, create, key, runs, step};
use crate::world::{World, shown};

const EVERY_SECOND: &str = "* * * * * *";

#[tokio::test(flavor = "multi_thread")]
async fn an_instant_fires_once_over_restarts_and_the_chain_is_told_of_the_last() -> Result<()> {
    let mut world = World::with(|node| {
        node.set("WORKFLOW_CRON_SCHEDULE", EVERY_SECOND);
        node.set("WORKFLOW_REPORT_SECONDS", "5");
    })
    .await?;
    let sandbox = world.create().await?;
    let body = json!({"sandbox_id": sandbox, "steps": [step("tick", "date >> ticks", &[])]});
    let workflow = create(&world, &body, &["--cron", EVERY_SECOND, "--catch-up", "all"]).await?;
    let customer = world.customer.clone();
    let at_least = async |count: usize| {
        let look = || async { runs(&customer, &workflow).await.ok().filter(|runs| runs.len() >= count) };
        until("runs by the clock", BOUND, look).await
    };
    let before = at_least(3).await?.len();
    for _ in 0..2 {
        world.node.kill()?;
        world.node.start().await?;
    }
    let all = at_least(before + 4).await?;
    let slots = super::slots(&all)?;
    ensure!(slots.windows(2).all(|pair| pair[1] == pair[0] + 1), "each second once, and none left out: {slots:?}");
    assert_eq!(slots.iter().collect::<BTreeSet<_>>().len(), slots.len());

    let chain = world.ground.account(CUSTOMER).await?.chain().clone();
    let told = || async {
        let (row, _) = chain.workflow(key(&workflow).ok()?).await.ok()??;
        (row.lastTriggered >= u64::try_from(*slots.first()?).ok()?).then_some(())
    };
    until("the chain to be told", BOUND, told).await?;

    world.customer.text(&["workflow", "pause", &workflow]).await?;
    let node = &world.node;
    let quiet = || async { node.log().contains("paused by its owner").then_some(()) };
    until("the operator to know of the pause", BOUND, quiet).await?;
    let number = |runs: &[Value]| runs.first().and_then(|run| run["number"].as_u64()).unwrap_or_default();
    let paused = number(&runs(&world.customer, &workflow).await?);
    world.customer.text(&["workflow", "resume", &workflow]).await?;
    let look = || async { runs(&customer, &workflow).await.ok().filter(|runs| number(runs) >= paused + 2) };
    let resumed = until("runs after the pause", BOUND, look).await?;
    ensure!(super::slots(&resumed)?.windows(2).all(|pair| pair[1] > pair[0]), "an instant fired twice");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn with_its_service_a_workflow_ends_also_after_a_restart() -> Result<()> {
    let mut world = World::with(|node| node.set("WORKFLOW_CRON_SCHEDULE", EVERY_SECOND)).await?;
    let sandbox = world.create().await?;
    let body = json!({"sandbox_id": sandbox, "steps": [step("tick", "date >> ticks", &[])]});
    let workflow = create(&world, &body, &["--cron", EVERY_SECOND]).await?;
    let customer = world.customer.clone();
    let fired = || async { runs(&customer, &workflow).await.ok().filter(|runs| !runs.is_empty()) };
    until("a run by the clock", BOUND, fired).await?;
    world.ground.account(CUSTOMER).await?.terminate(world.service).await?;
    let node = &world.node;
    until("the operator to know", BOUND, || async { node.log().contains("fired no more").then_some(()) }).await?;
    // Neither the contract's list nor its own records bring it back.
    world.node.kill()?;
    world.node.start().await?;
    let unknown = || async {
        let asked = customer.run(&["workflow", "runs", &workflow]).await.ok()?;
        shown(&asked).2.contains("no such workflow").then_some(())
    };
    until("the operator to have no such workflow", BOUND, unknown).await
}
