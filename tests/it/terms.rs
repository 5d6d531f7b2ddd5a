//! What operators and customers agree on: which services are taken, how long a sandbox lives.

use std::time::Duration;

use anyhow::Result;
use sandbox_tests::engine;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::wait::until;

use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_pays_too_little_is_rejected_at_once() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.set("CREATE_PRICE_MIN_WEI", "1000000000000000000");
    node.start().await?;
    let customer = ground.client(CUSTOMER)?;
    let operator = Ground::address(OPERATOR).to_string();
    let output = customer.run(&["service", "request", "--within", "60", "--operators", &operator]).await?;
    let (code, _, stderr) = shown(&output);
    assert!(code != Some(0) && stderr.contains("rejected"), "{code:?} {stderr}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_operator_is_not_assigned_another_sandbox_until_one_is_deleted() -> Result<()> {
    let world = World::with(|node| node.set("CAPACITY_SANDBOXES", "1")).await?;
    let first = world.create().await?;
    let refused = world.customer.run(&["create", "--service", &world.service.to_string()]).await?;
    let (code, _, stderr) = shown(&refused);
    assert_eq!(code, Some(121), "{stderr}");
    assert!(stderr.contains("has room for another sandbox"), "{stderr}");
    world.customer.text(&["rm", &first]).await?;
    world.create().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_ends_after_its_expiry_block_and_its_slot_is_given_back_on_chain() -> Result<()> {
    let world = World::new().await?;
    let chain = world.ground.account(OPERATOR).await?.chain().clone();
    let used = || async { chain.operator(Ground::address(OPERATOR)).await.map(|view| view.used) };
    world.customer.create(world.service, &["--ttl-blocks", "100"]).await?;
    world.ground.chain.mine(50).await?;
    assert_eq!(engine::containers(&world.node.run_dir())?.len(), 1, "half its life is left");
    assert_eq!(used().await?, 1);
    world.ground.chain.mine(51).await?;
    let gone = || async { world.leftovers().ok()?.is_empty().then_some(()) };
    until("the sandbox to end", BOUND, gone).await?;
    let freed = || async { used().await.ok().filter(|used| *used == 0) };
    until("its slot to be freed", BOUND, freed).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_service_ends_its_sandboxes() -> Result<()> {
    let world = World::new().await?;
    world.create().await?;
    world.ground.account(CUSTOMER).await?.terminate(world.service).await?;
    let gone = || async { world.leftovers().ok()?.is_empty().then_some(()) };
    until("the sandbox to end", BOUND, gone).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_time_is_over_ends_its_sandboxes_though_nobody_terminates_it() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.start().await?;
    let customer = ground.client(CUSTOMER)?;
    let operator = Ground::address(OPERATOR).to_string();
    let requested =
        customer.json(&["service", "request", "--within", "60", "--ttl", "3600", "--operators", &operator]).await?;
    customer.create(requested["service"].as_u64().unwrap_or_default(), &[]).await?;
    let run_dir = node.run_dir();
    assert_eq!(engine::containers(&run_dir)?.len(), 1);
    ground.chain.pass_time(3_700).await?;
    let gone = || async { engine::containers(&run_dir).ok()?.is_empty().then_some(()) };
    until("the sandbox to end", BOUND, gone).await
}
