//! An operator that dies at any instant does every job once and answers it once.

use std::time::Duration;

use alloy::providers::Provider as _;
use anyhow::{Context, Result};
use sandbox_protocol::SandboxId;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::requests::{CreateBuilder, ExecBuilder};
use sandbox_tests::engine;
use sandbox_tests::ground::CUSTOMER;
use sandbox_tests::wait::{pass, until};

use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(60);

impl World {
    async fn automine(&self, on: bool) -> Result<()> {
        let set = self.ground.chain.provider().raw_request::<_, ()>("evm_setAutomine".into(), [on]);
        set.await.context("evm_setAutomine")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_between_create_and_receipt_leaves_one_container_and_one_receipt() -> Result<()> {
    let mut world = World::new().await?;
    let account = world.ground.account(CUSTOMER).await?;
    let submitted = account.submit_job(world.service, CreateBuilder::new().build()?).await?;
    // Without blocks no receipt can be mined, however fast the operator is.
    world.automine(false).await?;
    let run_dir = world.node.run_dir();
    let made = || {
        let found = engine::containers(&run_dir).ok().filter(|found| !found.is_empty());
        async move { found }
    };
    until("the container", BOUND, made).await?;
    world.node.kill()?;
    world.automine(true).await?;
    assert!(world.ground.receipts(submitted.key).await?.is_empty());

    world.node.start().await?;
    Answers::new(account)?.wait_for(&submitted, BOUND).await?;
    world.ground.answered_once(&[submitted.key], BOUND).await?;
    assert_eq!(engine::containers(&run_dir)?.len(), 1);
    let sandbox = SandboxId { origin: submitted.key, slot: 0 }.to_string();
    assert!(world.customer.exec(&sandbox, "true").await?.status.success(), "and it works");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_instant_of_a_create_leaves_one_container_and_one_receipt() -> Result<()> {
    let mut world = World::new().await?;
    let account = world.ground.account(CUSTOMER).await?;
    let answers = Answers::new(account.clone())?;
    for after_ms in [0, 15, 40, 90, 160, 240, 330, 450, 700] {
        let submitted = account.submit_job(world.service, CreateBuilder::new().build()?).await?;
        pass(Duration::from_millis(after_ms)).await;
        world.node.kill()?;
        world.node.start().await?;
        answers.wait_for(&submitted, BOUND).await?;
        world
            .ground
            .answered_once(&[submitted.key], BOUND)
            .await
            .with_context(|| format!("killed after {after_ms} ms"))?;
        assert_eq!(engine::containers(&world.node.run_dir())?.len(), 1, "killed after {after_ms} ms");
        let sandbox = SandboxId { origin: submitted.key, slot: 0 }.to_string();
        world.customer.text(&["rm", &sandbox]).await?;
        assert_eq!(world.leftovers()?, Vec::<String>::new(), "killed after {after_ms} ms");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_outlives_its_operator_runs_once_and_its_answer_arrives() -> Result<()> {
    let mut world = World::new().await?;
    let sandbox = world.create().await?;
    let account = world.ground.account(CUSTOMER).await?;
    let script = "echo run >> runs; while [ ! -e go ]; do sleep 0.05; done; echo done";
    let long = ExecBuilder::new(sandbox.parse()?, script).timeout_ms(300_000).build()?;
    let submitted = account.submit_job(world.service, long).await?;
    let begun = || async {
        let output = world.customer.exec(&sandbox, "cat runs").await.ok()?;
        output.status.success().then_some(())
    };
    until("the command to begin", BOUND, begun).await?;
    world.node.kill()?;
    world.node.start().await?;
    assert!(world.customer.exec(&sandbox, "touch go").await?.status.success());
    let body = Answers::new(account)?.wait_for(&submitted, BOUND).await?;
    let answer = body.answer.context("no answer")?;
    assert_eq!(answer.receipt.receipt.outcome, 0, "{}", answer.response_json);
    let (_, runs, _) = shown(&world.customer.exec(&sandbox, "cat runs").await?);
    assert_eq!(runs, "run\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_submitted_while_the_operator_is_down_are_each_done_once() -> Result<()> {
    let mut world = World::new().await?;
    let sandbox = world.create().await?;
    world.node.stop().await?;
    let account = world.ground.account(CUSTOMER).await?;
    let mut submitted = Vec::new();
    for n in 0..5 {
        let exec = ExecBuilder::new(sandbox.parse()?, format!("echo {n} >> log")).build()?;
        submitted.push(account.submit_job(world.service, exec).await?);
        world.ground.chain.mine(50).await?;
    }
    world.node.start().await?;
    let answers = Answers::new(account)?;
    for job in &submitted {
        answers.wait_for(job, BOUND).await?;
    }
    let (_, log, _) = shown(&world.customer.exec(&sandbox, "sort log").await?);
    assert_eq!(log, "0\n1\n2\n3\n4\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn told_to_end_a_node_finishes_the_command_in_hand() -> Result<()> {
    let mut world = World::new().await?;
    let sandbox = world.create().await?;
    let account = world.ground.account(CUSTOMER).await?;
    let exec = ExecBuilder::new(sandbox.parse()?, "touch begun; sleep 1; echo finished").build()?;
    let submitted = account.submit_job(world.service, exec).await?;
    let begun = || async { world.customer.exec(&sandbox, "test -e begun").await.ok()?.status.success().then_some(()) };
    until("the command to begin", BOUND, begun).await?;
    world.node.stop().await?;
    assert_eq!(engine::containers(&world.node.run_dir())?.len(), 1, "sandboxes outlive their operator's process");
    world.node.start().await?;
    let body = Answers::new(account)?.wait_for(&submitted, BOUND).await?;
    let response = &body.answer.context("no answer")?.response_json;
    assert_eq!(response["stdout"], "0x66696e69736865640a", "{response}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_was_stopped_behind_the_operators_back_is_started_again_when_it_is_needed() -> Result<()> {
    let world = World::new().await?;
    let sandbox = world.create().await?;
    assert!(world.customer.exec(&sandbox, "echo kept > note").await?.status.success());
    let container = engine::containers(&world.node.run_dir())?.pop().context("no container")?;
    engine::docker_text(&["kill", &container])?;
    assert_eq!(shown(&world.customer.exec(&sandbox, "cat note").await?), (Some(0), "kept\n".into(), String::new()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_of_the_host_sandboxes_run_again() -> Result<()> {
    let mut world = World::new().await?;
    let sandbox = world.create().await?;
    assert!(world.customer.exec(&sandbox, "echo kept > note").await?.status.success());
    let container = engine::containers(&world.node.run_dir())?.pop().context("no container")?;
    world.node.kill()?;
    engine::docker_text(&["kill", &container])?;
    // Sockets are kept where a reboot clears everything.
    std::fs::remove_dir_all(world.node.run_dir())?;
    world.node.start().await?;
    assert_eq!(shown(&world.customer.exec(&sandbox, "cat note").await?), (Some(0), "kept\n".into(), String::new()));
    Ok(())
}
