//! Containers that are started ahead become sandboxes like any other, at once, and none is left over.

use std::time::Duration;

use anyhow::{Context, Result};
use sandbox_tests::engine;
use sandbox_tests::node::Node;
use sandbox_tests::wait::{pass, until};

use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(60);

/// Waits until `count` containers in all came to wait in the pool of the node.
async fn filled(node: &Node, count: usize) -> Result<()> {
    let full = || async { (node.log().matches("a container waits in the pool").count() >= count).then_some(()) };
    until("the pool to be filled", BOUND, full).await
}

fn pooled(node: &Node) -> Result<Vec<String>> {
    let mut found = engine::containers(&node.run_dir())?;
    found.retain(|name| name.starts_with("pool-"));
    Ok(found)
}

fn id(container: &str) -> Result<String> {
    Ok(engine::inspect(container)?["Id"].as_str().context("no id")?.to_owned())
}

fn of_sandbox(node: &Node, sandbox: &str) -> Result<String> {
    let found = engine::containers(&node.run_dir())?;
    found.into_iter().find(|name| name.starts_with(sandbox)).context("no container of the sandbox")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_takes_a_container_that_runs_already_and_gives_it_its_own_limits() -> Result<()> {
    let world = World::with(|node| node.set("POOL_SIZE", "1")).await?;
    filled(&world.node, 1).await?;
    let waiting = id(&pooled(&world.node)?[0])?;
    let sandbox =
        world.customer.create(world.service, &["--memory-mb", "2048", "--cpu", "2", "--env", "COLOUR=green"]).await?;
    let container = of_sandbox(&world.node, &sandbox)?;
    let found = engine::inspect(&container)?;
    assert_eq!(found["Id"], waiting);
    assert_eq!(found["HostConfig"]["Memory"], 2048_u64 << 20);
    assert_eq!(found["HostConfig"]["MemorySwap"], 2048_u64 << 20);
    assert_eq!(found["HostConfig"]["NanoCpus"], 2_000_000_000_u64);
    assert_eq!(shown(&world.customer.exec(&sandbox, "echo $COLOUR; ls -A /workspace").await?).1, "green\n");
    filled(&world.node, 2).await?;
    assert_ne!(id(&pooled(&world.node)?[0])?, waiting, "another one waits in its place");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_pool_does_not_have_is_started_from_nothing() -> Result<()> {
    let world = World::with(|node| node.set("POOL_SIZE", "1")).await?;
    filled(&world.node, 1).await?;
    let waiting = id(&pooled(&world.node)?[0])?;
    let sandbox = world.customer.create(world.service, &["--disk-gb", "1"]).await?;
    assert_ne!(id(&of_sandbox(&world.node, &sandbox)?)?, waiting);
    assert_eq!(id(&pooled(&world.node)?[0])?, waiting);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_ends_with_its_node_and_what_a_killed_node_left_of_it_is_removed() -> Result<()> {
    let mut world = World::with(|node| node.set("POOL_SIZE", "2")).await?;
    filled(&world.node, 2).await?;
    world.node.stop().await?;
    assert_eq!(world.leftovers()?, Vec::<String>::new());

    world.node.start().await?;
    filled(&world.node, 4).await?;
    let sandbox = world.create().await?;
    filled(&world.node, 5).await?;
    world.node.kill()?;
    let left: Vec<String> = pooled(&world.node)?;
    assert_eq!(left.len(), 2);
    world.node.start().await?;
    filled(&world.node, 7).await?;
    let replaced = || async {
        let now = pooled(&world.node).ok()?;
        (!now.iter().any(|name| left.contains(name))).then_some(())
    };
    until("the old ones to go", BOUND, replaced).await?;
    assert!(world.customer.exec(&sandbox, "true").await?.status.success(), "a claimed one is a sandbox like any other");
    world.customer.text(&["rm", "--within", "60", &sandbox]).await?;
    world.node.stop().await?;
    assert_eq!(world.leftovers()?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_of_the_pool_that_died_is_replaced_and_one_that_died_unnoticed_is_started() -> Result<()> {
    let world = World::with(|node| node.set("POOL_SIZE", "1")).await?;
    filled(&world.node, 1).await?;
    let died = pooled(&world.node)?.pop().context("no container")?;
    engine::docker_text(&["kill", &died])?;
    let sandbox = world.create().await?;
    assert!(world.customer.exec(&sandbox, "true").await?.status.success());
    filled(&world.node, 2).await?;
    let died = pooled(&world.node)?.pop().context("no container")?;
    engine::docker_text(&["kill", &died])?;
    filled(&world.node, 3).await?;
    assert!(!pooled(&world.node)?.contains(&died));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_killed_while_it_claims_leaves_one_container_for_the_sandbox() -> Result<()> {
    use sandbox_sdk::answers::Answers;
    use sandbox_sdk::requests::CreateBuilder;
    use sandbox_tests::ground::CUSTOMER;

    let mut world = World::with(|node| node.set("POOL_SIZE", "1")).await?;
    let account = world.ground.account(CUSTOMER).await?;
    let answers = Answers::new(account.clone())?;
    for (round, after_ms) in [0, 4, 8, 12, 20, 35].into_iter().enumerate() {
        filled(&world.node, round + 1).await?;
        let submitted = account.submit_job(world.service, CreateBuilder::new().memory_mb(512).build()?).await?;
        pass(Duration::from_millis(after_ms)).await;
        world.node.kill()?;
        // Only what this life makes is counted.
        world.node.start().await?;
        let body = answers.wait_for(&submitted, BOUND).await?;
        let answer = body.answer.context("no answer")?;
        assert_eq!(answer.receipt.receipt.outcome, 0, "after {after_ms} ms: {}", answer.response_json);
        let sandbox = format!("sbx-{}-{}-0", submitted.key.service, submitted.key.call);
        let container = of_sandbox(&world.node, &sandbox)?;
        assert_eq!(engine::inspect(&container)?["HostConfig"]["Memory"], 512_u64 << 20);
        world.customer.text(&["rm", "--within", "60", &sandbox]).await?;
    }
    world.node.stop().await?;
    assert_eq!(world.leftovers()?, Vec::<String>::new());
    Ok(())
}
