//! An engine that stalls or fails costs what needs it, and nothing else.

use std::time::Duration;

use anyhow::{Context, Result};
use sandbox_sdk::answers::Answers;
use sandbox_sdk::requests::CreateBuilder;
use sandbox_tests::faults::{Engine, Mode};
use sandbox_tests::ground::CUSTOMER;
use sandbox_tests::node::Node;
use sandbox_tests::wait::{pass, until};

use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(60);

async fn world() -> Result<(World, Engine, tempfile::TempDir)> {
    world_with(|_| {}).await
}

/// A world whose operator reaches the engine through one that fails when told to.
pub(crate) async fn world_with(set: impl FnOnce(&mut Node)) -> Result<(World, Engine, tempfile::TempDir)> {
    let dir = tempfile::Builder::new().prefix("sbx").tempdir()?;
    let engine = Engine::start(dir.path())?;
    let world = World::with(|node| {
        node.set("DOCKER_HOST", engine.host());
        set(node);
    });
    Ok((world.await?, engine, dir))
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_engine_stalls_running_sandboxes_and_the_api_serve_and_afterwards_all_is_done() -> Result<()> {
    let (world, engine, _dir) = world().await?;
    let sandbox = world.create().await?;
    let account = world.ground.account(CUSTOMER).await?;
    engine.set(Mode::Stall);
    let submitted = account.submit_job(world.service, CreateBuilder::new().build()?).await?;
    assert_eq!(
        shown(&world.customer.exec(&sandbox, "echo served").await?),
        (Some(0), "served\n".into(), String::new())
    );
    let metrics = reqwest::get(format!("{}/metrics", world.node.api_url())).await?;
    assert!(metrics.status().is_success());
    engine.set(Mode::Pass);
    let body = Answers::new(account)?.wait_for(&submitted, BOUND).await?;
    let answer = body.answer.context("no answer")?;
    assert_eq!(answer.receipt.receipt.outcome, 0, "{}", answer.response_json);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_the_engine_fails_is_the_operators_matter_and_leaves_nothing() -> Result<()> {
    let (world, engine, _dir) = world().await?;
    let account = world.ground.account(CUSTOMER).await?;
    engine.set(Mode::Fail);
    let submitted = account.submit_job(world.service, CreateBuilder::new().build()?).await?;
    // What failed is cleared away with the engine's help.
    let tried = || async { world.node.log().contains("effect failed").then_some(()) };
    until("the failure", BOUND, tried).await?;
    engine.set(Mode::Pass);
    let body = Answers::new(account)?.wait_for(&submitted, BOUND).await?;
    let answer = body.answer.context("no answer")?;
    assert_eq!(answer.receipt.receipt.outcome, 2, "{}", answer.response_json);
    assert!(answer.response_json.to_string().contains("engine"), "{}", answer.response_json);
    let clean = || async { world.leftovers().ok()?.is_empty().then_some(()) };
    until("nothing to be left", BOUND, clean).await?;
    world.create().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_deleted_when_the_engine_answers_again_and_not_before() -> Result<()> {
    let (world, engine, _dir) = world().await?;
    let sandbox = world.create().await?;
    engine.set(Mode::Fail);
    let account = world.ground.account(CUSTOMER).await?;
    let submitted = account.submit_job(world.service, sandbox_sdk::requests::delete(sandbox.parse()?)).await?;
    let tried = || async { world.node.log().contains("what=\"remove\"").then_some(()) };
    until("the first try", BOUND, tried).await?;
    pass(Duration::from_millis(200)).await;
    assert!(!world.leftovers()?.is_empty());
    engine.set(Mode::Pass);
    Answers::new(account)?.wait_for(&submitted, BOUND).await?;
    assert_eq!(world.leftovers()?, Vec::<String>::new());
    Ok(())
}
