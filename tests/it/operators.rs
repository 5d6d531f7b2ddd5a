//! Several operators of one service: a create that its operator does not do is another one's, and only that one's.

use std::time::Duration;

use alloy::primitives::Address;
use anyhow::{Context, Result, ensure};
use sandbox_protocol::CallKey;
use sandbox_protocol::http::CallBody;
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::calls;
use sandbox_sdk::chain::SubmittedJob;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::Assignment;
use sandbox_sdk::requests::CreateBuilder;
use sandbox_tests::engine;
use sandbox_tests::faulty_rpc::{FaultyNode, Script};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR, SECOND_OPERATOR};
use sandbox_tests::node::Node;
use sandbox_tests::wait::until;

use crate::world::World;

const BOUND: Duration = Duration::from_secs(90);

/// An operator and its way to the chain.
struct Seat {
    node: Node,
    chain: FaultyNode,
    address: Address,
}

impl Seat {
    async fn take(ground: &Ground, key: usize) -> Result<Self> {
        let chain = FaultyNode::before(ground.deployment.rpc_url.clone()).await?;
        let mut node = ground.node(key)?;
        node.set("HTTP_RPC_URL", chain.url().to_string());
        node.unset("WS_RPC_URL");
        node.start().await?;
        Ok(Self { node, chain, address: Ground::address(key) })
    }

    fn containers(&self) -> Result<usize> {
        Ok(engine::containers(&self.node.run_dir())?.len())
    }

    /// Waits until the operator has so many containers.
    async fn has(&self, count: usize) -> Result<()> {
        let look = || async { (self.containers().ok()? == count).then_some(()) };
        until(&format!("{count} containers"), BOUND, look).await
    }
}

/// Two operators who serve one customer.
struct Pair {
    ground: Ground,
    account: Account,
    service: u64,
    seats: [Seat; 2],
}

impl Pair {
    async fn new() -> Result<Self> {
        let ground = Ground::new().await?;
        let seats = [Seat::take(&ground, OPERATOR).await?, Seat::take(&ground, SECOND_OPERATOR).await?];
        let service = ground.client(CUSTOMER)?.service(&seats.each_ref().map(|seat| seat.address)).await?;
        let account = ground.account(CUSTOMER).await?;
        Ok(Self { ground, account, service, seats })
    }

    /// Submits a create; the operator that it is assigned to sits first from now on.
    async fn create(&mut self) -> Result<SubmittedJob> {
        let submitted = self.account.submit_job(self.service, CreateBuilder::new().build()?).await?;
        if self.assignment(submitted.key).await?.operator == self.seats[1].address {
            self.seats.swap(0, 1);
        }
        Ok(submitted)
    }

    async fn assignment(&self, key: CallKey) -> Result<Assignment> {
        self.account.chain().assignment(key).await?.context("no assignment")
    }

    /// Lets the time of the call's operator pass, but for so many blocks.
    async fn pass_but(&self, key: CallKey, blocks: u64) -> Result<()> {
        let deadline = self.assignment(key).await?.deadlineBlock;
        let head = self.account.chain().head().await?;
        Ok(self.ground.chain.mine(deadline.saturating_sub(head + blocks)).await?)
    }

    /// Has the call given to the other operator, which its time allows.
    async fn move_on(&self, key: CallKey) -> Result<()> {
        self.pass_but(key, 0).await?;
        self.account.send(&calls::reassign(&self.ground.deployment, key)).await?;
        let holder = self.assignment(key).await?.operator;
        ensure!(holder == self.seats[1].address, "the call stays with {holder}");
        Ok(())
    }

    /// The answer, which the second operator alone gave.
    async fn answered_by_the_second(&self, submitted: &SubmittedJob) -> Result<()> {
        let body: CallBody = Answers::new(self.account.clone())?.wait_until_settled(submitted, BOUND).await?;
        let answer = body.answer.context("no answer")?;
        let receipt = &answer.receipt.receipt;
        ensure!((receipt.outcome, receipt.operator) == (0, self.seats[1].address), "{}", answer.response_json);
        self.ground.answered_once(&[submitted.key], BOUND).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_whose_operator_is_down_is_done_by_another_and_left_alone_by_the_first_when_it_comes_back()
-> Result<()> {
    let mut pair = Pair::new().await?;
    for seat in &mut pair.seats {
        seat.node.stop().await?;
    }
    let submitted = pair.create().await?;
    pair.seats[1].node.start().await?;
    pair.move_on(submitted.key).await?;
    pair.answered_by_the_second(&submitted).await?;

    pair.seats[0].node.start().await?;
    pair.seats[0].node.has_read(pair.account.chain().head().await?).await?;
    assert_eq!((pair.seats[0].containers()?, pair.seats[1].containers()?), (0, 1));
    pair.answered_by_the_second(&submitted).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_was_made_for_a_call_which_moved_meanwhile_is_undone() -> Result<()> {
    let mut pair = Pair::new().await?;
    for seat in &pair.seats {
        seat.chain.play(Script::Mute);
    }
    let submitted = pair.create().await?;
    pair.seats[1].chain.play(Script::Well);
    // It does its work, but its receipt reaches no block.
    pair.seats[0].has(1).await?;
    pair.move_on(submitted.key).await?;
    pair.answered_by_the_second(&submitted).await?;
    pair.seats[0].has(0).await?;

    pair.seats[0].chain.play(Script::Well);
    pair.seats[0].node.has_read(pair.account.chain().head().await?).await?;
    pair.answered_by_the_second(&submitted).await?;
    assert_eq!(pair.seats[1].containers()?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_an_operator_has_no_room_for_is_another_ones_at_once() -> Result<()> {
    let mut pair = Pair::new().await?;
    for seat in &mut pair.seats {
        seat.node.stop().await?;
    }
    let submitted = pair.create().await?;
    pair.seats[0].node.set("CAPACITY_MEMORY_MB", "512");
    for seat in &mut pair.seats {
        seat.node.start().await?;
    }
    pair.answered_by_the_second(&submitted).await?;
    assert_eq!((pair.seats[0].containers()?, pair.seats[1].containers()?), (0, 1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_with_too_few_blocks_left_is_not_begun_while_another_operator_may_have_it() -> Result<()> {
    let mut pair = Pair::new().await?;
    for seat in &mut pair.seats {
        seat.node.stop().await?;
    }
    let submitted = pair.create().await?;
    pair.pass_but(submitted.key, 10).await?;
    pair.seats[0].node.start().await?;
    let left = || async { pair.seats[0].node.log().contains("the call is left for another operator").then_some(()) };
    until("the call to be left", BOUND, left).await?;
    assert_eq!(pair.seats[0].containers()?, 0);

    pair.seats[1].node.start().await?;
    pair.move_on(submitted.key).await?;
    pair.answered_by_the_second(&submitted).await?;
    assert_eq!(pair.seats[0].containers()?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_create_that_no_other_operator_could_have_is_done_all_the_same() -> Result<()> {
    let mut world = World::new().await?;
    world.node.stop().await?;
    let account = world.ground.account(CUSTOMER).await?;
    let submitted = account.submit_job(world.service, CreateBuilder::new().build()?).await?;
    let deadline = account.chain().assignment(submitted.key).await?.context("no assignment")?.deadlineBlock;
    world.ground.chain.mine(deadline + 10 - submitted.block).await?;
    world.node.start().await?;
    let body = Answers::new(account)?.wait_until_settled(&submitted, BOUND).await?;
    assert_eq!(body.answer.context("no answer")?.receipt.receipt.outcome, 0);
    Ok(())
}
