//! A chain that fails and goes back, and an operator that does every job once all the same.

use std::time::{Duration, Instant, SystemTime};

use alloy::providers::Provider as _;
use anyhow::{Context, Result};
use sandbox_protocol::{CallKey, SandboxId};
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::requests::{CreateBuilder, ExecBuilder};
use sandbox_tests::engine;
use sandbox_tests::faulty_rpc::{FaultyNode, Script};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::wait::until;
use serde_json::{Value, json};

use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(90);

/// A world whose operator reaches the chain through a node that fails.
struct Shaky {
    world: World,
    node: FaultyNode,
    account: Account,
}

impl Shaky {
    async fn new() -> Result<Self> {
        let ground = Ground::new().await?;
        let faulty = FaultyNode::before(ground.deployment.rpc_url.clone()).await?;
        let mut node = ground.node(OPERATOR)?;
        node.set("HTTP_RPC_URL", faulty.url().to_string());
        node.unset("WS_RPC_URL");
        node.start().await?;
        let customer = ground.client(CUSTOMER)?;
        let service = customer.service(&[Ground::address(OPERATOR)]).await?;
        let account = ground.account(CUSTOMER).await?;
        Ok(Self { world: World { customer, service, node, ground }, node: faulty, account })
    }

    async fn request(&self, method: &'static str, parameters: Value) -> Result<Value> {
        let provider = self.world.ground.chain.provider();
        provider.raw_request::<_, Value>(method.into(), parameters).await.context(method)
    }

    async fn answered_once(&self, calls: &[CallKey]) -> Result<()> {
        self.world.ground.answered_once(calls, BOUND).await
    }

    fn containers(&self) -> Result<Vec<String>> {
        engine::containers(&self.world.node.run_dir())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_flaps_all_the_while_costs_no_job_and_doubles_none() -> Result<()> {
    let shaky = Shaky::new().await?;
    shaky.node.play(Script::Flapping { seed: 4, one_in: 2 });
    let created = shaky.account.submit_job(shaky.world.service, CreateBuilder::new().build()?).await?;
    shaky.answered_once(&[created.key]).await?;
    let sandbox = SandboxId { origin: created.key, slot: 0 };
    let exec = ExecBuilder::new(sandbox, "echo run >> runs").build()?;
    let ran = shaky.account.submit_job(shaky.world.service, exec).await?;
    shaky.answered_once(&[created.key, ran.key]).await?;
    assert!(shaky.node.faults() > 20, "{}", shaky.node.faults());
    shaky.node.play(Script::Well);
    assert_eq!(shaky.containers()?.len(), 1);
    let (_, runs, _) = shown(&shaky.world.customer.exec(&sandbox.to_string(), "cat runs").await?);
    assert_eq!(runs, "run\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_id_that_a_fork_gives_to_other_inputs_is_another_call() -> Result<()> {
    let shaky = Shaky::new().await?;
    let mark = shaky.request("evm_snapshot", json!([])).await?;
    let create = |name: &str| CreateBuilder::new().env("NAME", name).build();
    let first = shaky.account.submit_job(shaky.world.service, create("first")?).await?;
    shaky.answered_once(&[first.key]).await?;
    assert_eq!(shaky.containers()?.len(), 1);

    shaky.request("evm_revert", json!([mark])).await?;
    let second = shaky.account.submit_job(shaky.world.service, create("second")?).await?;
    assert_eq!(second.key, first.key);
    shaky.answered_once(&[second.key]).await?;
    let answer = Answers::new(shaky.account.clone())?.wait_for(&second, BOUND).await?.answer.context("no answer")?;
    assert_eq!(answer.receipt.receipt.outcome, 0, "{}", answer.response_json);
    assert_eq!(shaky.containers()?.len(), 1, "the first one's is gone");
    let sandbox = SandboxId { origin: second.key, slot: 0 }.to_string();
    let (_, name, _) = shown(&shaky.world.customer.exec(&sandbox, "echo $NAME").await?);
    assert_eq!(name, "second\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_whose_block_is_taken_back_is_sent_again() -> Result<()> {
    let shaky = Shaky::new().await?;
    let sandbox = shaky.world.create().await?;
    let exec = ExecBuilder::new(sandbox.parse()?, "echo run >> runs").build()?;
    let ran = shaky.account.submit_job(shaky.world.service, exec).await?;
    shaky.answered_once(&[ran.key]).await?;
    // The last block, with the receipt, is replaced by empty ones; that with the call stays.
    shaky.request("anvil_reorg", json!([1, []])).await?;
    assert!(shaky.world.ground.receipts(ran.key).await?.is_empty());
    shaky.world.ground.chain.mine(1).await?;
    shaky.answered_once(&[ran.key]).await?;
    let (_, runs, _) = shown(&shaky.world.customer.exec(&sandbox, "cat runs").await?);
    assert_eq!(runs, "run\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_became_too_cheap_is_replaced_by_one_that_pays() -> Result<()> {
    let shaky = Shaky::new().await?;
    let sandbox = shaky.world.create().await?;
    let exec = ExecBuilder::new(sandbox.parse()?, "true").build()?;
    shaky.request("evm_setAutomine", json!([false])).await?;
    let (account, service) = (shaky.account.clone(), shaky.world.service);
    let submitting = tokio::spawn(async move { account.submit_job(service, exec).await });
    let pooled = || async {
        let status = shaky.request("txpool_status", json!([])).await.ok()?;
        (status["pending"] != "0x0").then_some(())
    };
    until("the call to wait for a block", BOUND, pooled).await?;
    shaky.request("evm_mine", json!([])).await?;
    let ran = submitting.await??;
    until("the receipt to wait for a block", BOUND, pooled).await?;
    // From here on a block takes only what pays a thousand gwei.
    shaky.request("anvil_setNextBlockBaseFeePerGas", json!(["0xe8d4a51000"])).await?;
    shaky.request("evm_setIntervalMining", json!([1])).await?;
    shaky.answered_once(&[ran.key]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_calls_that_wait_for_a_node_are_each_answered_once() -> Result<()> {
    let mut shaky = Shaky::new().await?;
    let sandbox = shaky.world.create().await?;
    shaky.world.node.stop().await?;
    let mut calls = Vec::new();
    for n in 0..200 {
        let exec = ExecBuilder::new(sandbox.parse()?, format!("echo {n} >> log")).build()?;
        calls.push(shaky.account.submit_job(shaky.world.service, exec).await?.key);
    }
    shaky.world.ground.chain.mine(500).await?;
    let started = Instant::now();
    shaky.world.node.start().await?;
    shaky.answered_once(&calls).await?;
    eprintln!("200 calls drained in {} ms", started.elapsed().as_millis());
    let (_, log, _) = shown(&shaky.world.customer.exec(&sandbox, "sort -n log | uniq | wc -l; wc -l < log").await?);
    assert_eq!(log, "200\n200\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_chain_is_silent_the_api_answers_and_afterwards_the_work_goes_on() -> Result<()> {
    let shaky = Shaky::new().await?;
    let sandbox = shaky.world.create().await?;
    shaky.node.play(Script::Stalled(Duration::from_secs(9)));
    let exec = ExecBuilder::new(sandbox.parse()?, "true").build()?;
    let ran = shaky.account.submit_job(shaky.world.service, exec).await?;
    let health = format!("{}/health", shaky.world.node.api_url());
    let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).build()?;
    for _ in 0..5 {
        assert!(client.get(&health).send().await?.status().is_success());
    }
    assert!(shaky.world.ground.receipts(ran.key).await?.is_empty());
    shaky.node.play(Script::Behind { blocks: 3 });
    shaky.answered_once(&[ran.key]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_log_no_node_told_of_is_found_by_its_id() -> Result<()> {
    let shaky = Shaky::new().await?;
    shaky.node.play(Script::Deaf);
    let submitted = shaky.account.submit_job(shaky.world.service, CreateBuilder::new().build()?).await?;
    shaky.world.node.has_read(submitted.block).await?;
    assert_eq!(shaky.containers()?.len(), 0);
    shaky.node.play(Script::Well);
    shaky.answered_once(&[submitted.key]).await?;
    assert!(shaky.world.node.log().contains("a call that no log told of is taken in"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_begins_while_the_newest_block_is_an_old_one() -> Result<()> {
    let mut world = World::with(|node| {
        node.set("HEAD_AGE_MAX_SECONDS", "3");
        // A heartbeat would make a block.
        node.set("HEARTBEAT_SECONDS", "0");
    })
    .await?;
    world.node.stop().await?;
    let account = world.ground.account(CUSTOMER).await?;
    let submitted = account.submit_job(world.service, CreateBuilder::new().build()?).await?;
    // The local chain's clock runs ahead: each of its blocks is a second after the one before.
    let made = Duration::from_secs(account.chain().time().await?);
    let old = || async { (SystemTime::UNIX_EPOCH.elapsed().ok()? > made + Duration::from_secs(4)).then_some(()) };
    until("the newest block to be old", BOUND, old).await?;
    world.node.start().await?;
    let waits = || async { (world.node.metric("sandbox_calls_queued").await.ok()? == 1.0).then_some(()) };
    until("the call to wait", BOUND, waits).await?;
    assert_eq!(engine::containers(&world.node.run_dir())?.len(), 0);
    world.ground.chain.mine(1).await?;
    Answers::new(account)?.wait_for(&submitted, BOUND).await?;
    Ok(())
}
