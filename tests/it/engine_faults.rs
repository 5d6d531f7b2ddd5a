//! An engine that answers single requests wrongly, breaks off, stands still, or restarts: what becomes of sandboxes then.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hyper::Method;
use sandbox_protocol::SandboxId;
use sandbox_protocol::http::AnswerBody;
use sandbox_protocol::session::Scope;
use sandbox_sdk::Account;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::api::sign_in;
use sandbox_sdk::chain::SubmittedJob;
use sandbox_sdk::requests::{self, CreateBuilder, ExecBuilder, JobRequest};
use sandbox_tests::engine as docker;
use sandbox_tests::faults::{Engine, Fault, FaultKind, Mode};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::wait::until;
use tempfile::TempDir;

use crate::engine::world_with;
use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(120);
/// An answer that waits for the engine takes for ever; one that does not takes milliseconds.
const AT_ONCE: Duration = Duration::from_secs(10);
/// What the metrics say of the pool may be some seconds old, so a create may find none there.
const CLAIMS_MAX: usize = 10;

/// A world whose engine fails when told to, and its customer's account.
struct Shaky {
    world: World,
    engine: Engine,
    account: Account,
    answers: Answers,
    _dir: TempDir,
}

impl Shaky {
    async fn new(pool_size: usize) -> Result<Self> {
        let (world, engine, dir) = world_with(|node| node.set("POOL_SIZE", pool_size.to_string())).await?;
        let account = world.ground.account(CUSTOMER).await?;
        let answers = Answers::new(account.clone())?;
        Ok(Self { world, engine, account, answers, _dir: dir })
    }

    async fn submit(&self, request: JobRequest) -> Result<SubmittedJob> {
        Ok(self.account.submit_job(self.world.service, request).await?)
    }

    async fn answer(&self, submitted: &SubmittedJob) -> Result<AnswerBody> {
        self.answers.wait_until_settled(submitted, BOUND).await?.answer.context("no answer")
    }

    async fn ask(&self, request: JobRequest) -> Result<AnswerBody> {
        self.answer(&self.submit(request).await?).await
    }

    async fn create(&self) -> Result<SandboxId> {
        Ok(self.world.create().await?.parse()?)
    }

    async fn says(&self, sandbox: SandboxId, script: &str) -> Result<String> {
        let (code, stdout, stderr) = shown(&self.world.customer.exec(&sandbox.to_string(), script).await?);
        ensure!(code == Some(0), "{script}: {code:?} {stderr}");
        Ok(stdout)
    }

    fn container(&self, sandbox: SandboxId) -> Result<String> {
        let found = docker::containers(&self.world.node.run_dir())?;
        found.into_iter().find(|name| name.starts_with(&format!("{sandbox}-"))).context("no container")
    }

    fn runs(&self, sandbox: SandboxId) -> Result<bool> {
        Ok(docker::inspect(&self.container(sandbox)?)?["State"]["Running"] == true)
    }

    async fn metrics(&self) -> Result<String> {
        Ok(reqwest::get(format!("{}/metrics", self.world.node.api_url())).await?.text().await?)
    }

    async fn nothing_is_left(&self) -> Result<()> {
        let gone = || async {
            let mut left = self.world.leftovers().ok()?;
            left.retain(|what| !what.contains("pool-"));
            left.is_empty().then_some(())
        };
        until("nothing to be left", BOUND, gone).await.with_context(|| format!("{:?}", self.world.leftovers()))
    }

    /// A create that meets this fault: a sandbox that works, or a typed answer of the operator's; nothing else is left.
    async fn create_meets(&self, (method, path): (Method, &'static str), kind: FaultKind) -> Result<()> {
        let case = format!("{method} {path} {kind:?}");
        self.engine.meet(Fault { method, path, kind });
        self.create_and_look(case.clone()).await?;
        ensure!(self.engine.has_met_all(), "{case}: there was no such request");
        Ok(())
    }

    /// The same for a request of creates that find a container in the pool.
    async fn claim_meets(&self, path: &'static str, kind: FaultKind) -> Result<()> {
        self.engine.meet(Fault { method: Method::POST, path, kind });
        for _ in 0..CLAIMS_MAX {
            let full = || async { self.metrics().await.ok()?.contains("sandbox_pool_ready 1").then_some(()) };
            until("the pool to be filled", BOUND, full).await?;
            self.create_and_look(format!("{path} {kind:?}")).await?;
            if self.engine.has_met_all() {
                return Ok(());
            }
        }
        anyhow::bail!("{path} {kind:?}: there was no such request")
    }

    async fn create_and_look(&self, case: String) -> Result<()> {
        let submitted = self.submit(CreateBuilder::new().memory_mb(512).build()?).await?;
        let answer = self.answer(&submitted).await.with_context(|| case.clone())?;
        let sandbox = SandboxId { origin: submitted.key, slot: 0 };
        match answer.outcome.id() {
            0 => {
                ensure!(self.says(sandbox, "echo works").await? == "works\n", "{case}");
                self.world.customer.text(&["rm", "--within", "60", &sandbox.to_string()]).await?;
            }
            2 => ensure!(answer.response_json.to_string().contains("engine"), "{case}: {}", answer.response_json),
            other => anyhow::bail!("{case}: outcome {other}: {}", answer.response_json),
        }
        self.nothing_is_left().await.context(case)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_the_engine_refuses_or_breaks_off_once_ends_in_a_sandbox_or_in_a_typed_answer() -> Result<()> {
    let shaky = Shaky::new(0).await?;
    let (create, start, inspect) = ("/containers/create", "/start", "/json");
    for kind in [FaultKind::Status(409), FaultKind::Status(500), FaultKind::Cut] {
        for path in [create, start] {
            shaky.create_meets((Method::POST, path), kind).await?;
        }
        shaky.create_meets((Method::GET, inspect), kind).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_from_the_pool_that_the_engine_refuses_or_breaks_off_ends_likewise() -> Result<()> {
    let shaky = Shaky::new(1).await?;
    for kind in [FaultKind::Status(409), FaultKind::Status(500), FaultKind::Cut] {
        for path in ["/rename", "/update"] {
            shaky.claim_meets(path, kind).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_or_rests_does_so_whatever_single_answers_of_the_engine_say() -> Result<()> {
    let shaky = Shaky::new(0).await?;
    for kind in [FaultKind::Status(409), FaultKind::Status(500), FaultKind::Cut] {
        let sandbox = shaky.create().await?;
        shaky.says(sandbox, "echo kept > note").await?;
        shaky.engine.meet(Fault { method: Method::POST, path: "/stop", kind });
        let stopped = shaky.ask(requests::stop(sandbox)).await?;
        assert_eq!((stopped.failure, shaky.runs(sandbox)?), (None, false), "{kind:?}: {}", stopped.response_json);

        // A start that failed is answered as such, and what is in the sandbox stays.
        shaky.engine.meet(Fault { method: Method::POST, path: "/start", kind });
        let refused = shaky.ask(requests::resume(sandbox, None)?).await?;
        assert_eq!((refused.outcome.id(), shaky.runs(sandbox)?), (2, false), "{kind:?}: {}", refused.response_json);
        let resumed = shaky.ask(requests::resume(sandbox, None)?).await?;
        assert_eq!(resumed.failure, None, "{kind:?}: {}", resumed.response_json);
        assert_eq!(shaky.says(sandbox, "cat note").await?, "kept\n", "{kind:?}");

        for (method, path) in [(Method::POST, "/kill"), (Method::DELETE, "/containers/")] {
            shaky.engine.meet(Fault { method, path, kind });
        }
        let deleted = shaky.ask(requests::delete(sandbox)).await?;
        assert_eq!(deleted.failure, None, "{kind:?}: {}", deleted.response_json);
        assert!(shaky.engine.has_met_all(), "{kind:?}");
        assert_eq!(shaky.world.leftovers()?, Vec::<String>::new(), "{kind:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_engine_stalls_all_that_needs_no_engine_is_answered_at_once() -> Result<()> {
    let shaky = Shaky::new(1).await?;
    let sandbox = shaky.create().await?;
    let session =
        sign_in(&shaky.account, (Ground::address(OPERATOR), &shaky.world.node.api_url()), &Scope::ALL).await?;
    let before = shaky.submit(ExecBuilder::new(sandbox, "true").build()?).await?;
    shaky.answer(&before).await?;
    shaky.engine.set(Mode::Stall);
    // More of them than the engine would ever be asked at a time.
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(shaky.submit(CreateBuilder::new().build()?).await?);
    }
    let health = format!("{}/health", shaky.world.node.api_url());
    for round in 0..20 {
        let begun = Instant::now();
        assert!(reqwest::get(&health).await?.status().is_success());
        assert!(shaky.answers.look(before.key).await?.answer.is_some());
        assert!(session.all_sandboxes(&Default::default()).await?.iter().any(|found| found.id == sandbox));
        assert!(begun.elapsed() < AT_ONCE, "round {round} took {:?}", begun.elapsed());
    }
    let begun = Instant::now();
    assert_eq!(shaky.says(sandbox, "echo served").await?, "served\n");
    assert!(begun.elapsed() < 3 * AT_ONCE, "an exec took {:?}", begun.elapsed());
    shaky.engine.set(Mode::Pass);
    for submitted in &waiting {
        let answer = shaky.answer(submitted).await?;
        assert_eq!(answer.failure, None, "{}", answer.response_json);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_the_engine_what_ran_runs_what_rested_rests_and_what_was_asked_is_done() -> Result<()> {
    let shaky = Shaky::new(0).await?;
    let (ran, rested, unwanted) = (shaky.create().await?, shaky.create().await?, shaky.create().await?);
    for sandbox in [ran, rested, unwanted] {
        shaky.says(sandbox, "echo kept > note").await?;
    }
    shaky.ask(requests::stop(rested)).await?;
    shaky.engine.set(Mode::Away);
    for sandbox in [ran, unwanted] {
        docker::docker_text(&["kill", &shaky.container(sandbox)?])?;
    }
    let asked = shaky.submit(ExecBuilder::new(ran, "echo asked >> note; cat note").build()?).await?;
    let ended = shaky.submit(requests::delete(unwanted)).await?;
    let tried = || async { shaky.world.node.log().contains("what=\"remove\"").then_some(()) };
    until("the first try", BOUND, tried).await?;
    assert_eq!(docker::containers(&shaky.world.node.run_dir())?.len(), 3, "nothing is destroyed meanwhile");
    shaky.engine.set(Mode::Pass);

    let answer = shaky.answer(&asked).await?;
    assert_eq!(answer.failure, None, "{}", answer.response_json);
    assert_eq!(shaky.answer(&ended).await?.failure, None);
    assert_eq!(shaky.says(ran, "cat note").await?, "kept\nasked\n");
    assert!(!shaky.runs(rested)?, "what rested was not woken");
    assert_eq!(shaky.ask(requests::resume(rested, None)?).await?.failure, None);
    assert_eq!(shaky.says(rested, "cat note").await?, "kept\n");
    assert_eq!(docker::containers(&shaky.world.node.run_dir())?.len(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_while_the_engine_is_away_waits_for_it_and_finds_everything() -> Result<()> {
    let mut shaky = Shaky::new(0).await?;
    let (ran, rested) = (shaky.create().await?, shaky.create().await?);
    for sandbox in [ran, rested] {
        shaky.says(sandbox, "echo kept > note").await?;
    }
    shaky.ask(requests::stop(rested)).await?;
    shaky.world.node.kill()?;
    shaky.engine.set(Mode::Away);
    docker::docker_text(&["kill", &shaky.container(ran)?])?;
    shaky.world.node.spawn()?;
    let waits = || async { shaky.world.node.log().contains("container engine").then_some(()) };
    until("the node to say that it waits", BOUND, waits).await?;
    shaky.engine.set(Mode::Pass);
    shaky.world.node.ready().await?;
    let runs = || async { shaky.runs(ran).ok()?.then_some(()) };
    until("what ran to run again", BOUND, runs).await?;
    assert_eq!(shaky.says(ran, "cat note").await?, "kept\n");
    assert!(!shaky.runs(rested)?);
    assert_eq!(shaky.ask(requests::resume(rested, None)?).await?.failure, None);
    assert_eq!(shaky.says(rested, "cat note").await?, "kept\n");
    Ok(())
}
