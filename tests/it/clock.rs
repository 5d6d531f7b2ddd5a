//! A host whose clock is set hours ahead or back. What is reckoned in blocks, or in time that passes, does not notice;
//! what needs the time of day waits until it is right, and then goes on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox_protocol::SandboxId;
use sandbox_protocol::session::Scope;
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::api::sign_in;
use sandbox_sdk::chain::SubmittedJob;
use sandbox_sdk::quotes::{Quotes, cheapest};
use sandbox_sdk::requests::{CreateBuilder, ExecBuilder, JobRequest};
use sandbox_tests::clock::Clock;
use sandbox_tests::engine;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::node::Node;
use sandbox_tests::wait::until;

use crate::world::World;

const BOUND: Duration = Duration::from_secs(60);

/// A world whose operator has a clock of its own, and its customer's account.
struct Timed {
    world: World,
    clock: Clock,
    account: Account,
}

impl Timed {
    async fn new(set: impl FnOnce(&mut Node)) -> Result<Self> {
        let mut clock = None;
        let world = World::with(|node| {
            clock = Some(Clock::of(node));
            set(node);
        });
        let world = world.await?;
        let account = world.ground.account(CUSTOMER).await?;
        Ok(Self { clock: clock.context("no clock")??, account, world })
    }

    /// Submits a job and waits for the chain's word on it: the operator's own is signed for by the time of day.
    async fn done(&self, request: JobRequest) -> Result<SubmittedJob> {
        let submitted = self.account.submit_job(self.world.service, request).await?;
        let completed = || async { self.completed(&submitted).await.ok()?.then_some(()) };
        until(&format!("the receipt of {}", submitted.key), BOUND, completed).await?;
        Ok(submitted)
    }

    async fn completed(&self, job: &SubmittedJob) -> Result<bool> {
        Ok(self.account.chain().job_call(job.key).await?.context("no call")?.completed)
    }

    async fn create(&self, wish: CreateBuilder) -> Result<SandboxId> {
        let created = self.done(wish.build()?).await?;
        Ok(SandboxId { origin: created.key, slot: 0 })
    }

    fn container(&self, sandbox: SandboxId) -> Result<Option<String>> {
        let found = engine::containers(&self.world.node.run_dir())?;
        Ok(found.into_iter().find(|name| name.starts_with(&format!("{sandbox}-"))))
    }

    /// Lines of a file in a sandbox that runs, past its operator.
    fn lines(&self, sandbox: SandboxId) -> Result<usize> {
        let container = self.container(sandbox)?.with_context(|| format!("{sandbox} is gone"))?;
        let counted = engine::docker_text(&["exec", &container, "sh", "-c", "cat /workspace/log 2>/dev/null | wc -l"]);
        Ok(counted.with_context(|| format!("{sandbox} does not run"))?.trim().parse()?)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_by_hours_ends_no_sandbox_before_its_block_and_stops_none_for_idleness() -> Result<()> {
    let timed = Timed::new(|_| {}).await?;
    let short = timed.create(CreateBuilder::new().ttl_blocks(200).idle_timeout_s(3_600)).await?;
    let long = timed.create(CreateBuilder::new().ttl_blocks(400).idle_timeout_s(3_600)).await?;
    let mut runs = 0;
    for hours_ahead in [7, -7, 0, 48, -48] {
        timed.clock.set(hours_ahead).await?;
        timed.world.ground.chain.mine(10).await?;
        runs += 1;
        for sandbox in [short, long] {
            timed.done(ExecBuilder::new(sandbox, "echo run >> /workspace/log").build()?).await?;
            ensure!(timed.lines(sandbox)? == runs, "{sandbox}, {hours_ahead} h ahead");
        }
    }
    let chain = timed.account.chain();
    let expiry = chain.sandbox(short).await?.expiryBlock;
    timed.world.ground.chain.mine(expiry - chain.head().await? - 4).await?;
    timed.done(ExecBuilder::new(short, "echo run >> /workspace/log").build()?).await?;
    assert!(chain.head().await? <= expiry);
    assert_eq!(timed.lines(short)?, runs + 1, "it lives to its last block");
    timed.world.ground.chain.mine(4).await?;
    let gone = || async { timed.container(short).ok()?.is_none().then_some(()) };
    until("the end of the one whose time is over", BOUND, gone).await?;
    assert_eq!(timed.lines(long)?, runs, "the other runs on");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn with_its_clock_hours_ahead_a_node_begins_nothing_and_when_it_is_right_does_everything_once() -> Result<()> {
    let timed = Timed::new(|node| {
        node.set("HEAD_AGE_MAX_SECONDS", "600");
        node.set("RUST_LOG", "debug,hyper=info,sled=info");
    });
    let timed = timed.await?;
    let sandbox = timed.create(CreateBuilder::new()).await?;
    timed.clock.set(7).await?;
    let submitted = timed
        .account
        .submit_job(timed.world.service, ExecBuilder::new(sandbox, "echo run >> /workspace/log").build()?)
        .await?;
    let waits = || async { timed.world.node.log().contains("no effect begins on an old sight").then_some(()) };
    until("the node to see a chain that looks old", BOUND, waits).await?;
    assert_eq!((timed.completed(&submitted).await?, timed.lines(sandbox)?), (false, 0));
    timed.clock.set(0).await?;
    let completed = || async { timed.completed(&submitted).await.ok()?.then_some(()) };
    until("the receipt", BOUND, completed).await?;
    assert_eq!(timed.lines(sandbox)?, 1);
    // A clock that is behind makes no block look old.
    timed.clock.set(-7).await?;
    timed.done(ExecBuilder::new(sandbox, "echo run >> /workspace/log").build()?).await?;
    assert_eq!(timed.lines(sandbox)?, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_refused_by_a_wrong_clock_is_served_when_it_is_right_again() -> Result<()> {
    let timed = Timed::new(|_| {}).await?;
    let url = timed.world.node.api_url();
    let enter = async || sign_in(&timed.account, (Ground::address(OPERATOR), &url), &Scope::ALL).await;
    let session = enter().await?;
    let created = timed.done(CreateBuilder::new().build()?).await?;
    let answers = Answers::new(timed.account.clone())?;
    for hours_ahead in [25, -25] {
        timed.clock.set(hours_ahead).await?;
        let read = answers.look(created.key).await;
        assert!(read.is_err(), "{hours_ahead}: a proof that is not of this time was taken");
        if hours_ahead > 0 {
            let refused = session.all_sandboxes(&Default::default()).await.err().context("an old token was taken")?;
            assert!(refused.is_unauthorized(), "{refused}");
        }
        timed.clock.set(0).await?;
        assert!(answers.look(created.key).await?.answer.is_some());
        assert!(!session.all_sandboxes(&Default::default()).await?.is_empty(), "{hours_ahead}: the session holds");
        enter().await?;
        let request = CreateBuilder::new().ttl_blocks(3_600).build()?;
        let asked = Quotes::new(timed.account.clone())?.of_service(timed.world.service, &request).await?;
        let offer = cheapest(&asked).with_context(|| format!("{hours_ahead}: no quote: {asked:?}"))?.clone();
        let submitted = timed.account.submit_quoted(timed.world.service, request, vec![offer.quote]).await?;
        let answer = answers.wait_until_settled(&submitted, BOUND).await?.answer.context("no answer")?;
        assert_eq!(answer.failure, None, "{}", answer.response_json);
        let sandbox = SandboxId { origin: submitted.key, slot: 0 }.to_string();
        timed.world.customer.text(&["rm", "--within", "60", &sandbox]).await?;
    }
    Ok(())
}
