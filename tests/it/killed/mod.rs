//! A node that dies at any step of its work, again and again, while two customers go on with theirs.
//!
//! A node built as the tests are counts its steps (commits, changes of containers and disks, transactions) and dies right
//! before or right after the one it is told. What is drawn comes from a seed, said when a walk fails; `KILL_SEED` walks
//! it again.

mod tenant;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use sandbox_process::source::{Environment, optional};
use sandbox_protocol::{FailureCode, Job, SandboxId};
use sandbox_sdk::answers::Answers;
use sandbox_sdk::chain::SubmittedJob;
use sandbox_sdk::devchain::checkout;
use sandbox_sdk::requests::{self, Contents, CreateBuilder};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR, STRANGER};
use sandbox_tests::node::Node;
use sandbox_tests::wait::{pass, until};
use tempfile::TempDir;

use crate::world::{World, shown};
use tenant::Tenant;

/// A job may take several lives.
const BOUND: Duration = Duration::from_secs(240);
/// Steps, each with a beginning and an end, up to which a life is drawn: some of its own start, and some jobs.
const DIE_AT_MAX: u64 = 90;
/// Of so many lives one ends at no step but at an instant, within so many milliseconds of its start.
const INSTANTS_ONE_IN: u32 = 6;
const INSTANT_MS_MAX: u64 = 3_000;
/// What a create does with a container of the pool.
const CLAIM_STEPS: [&str; 2] = ["engine rename", "engine update"];
/// Far more than a round has.
const TTL_BLOCKS: u64 = 200;
/// A busy host takes its time for many blocks.
const MINED_AT_ONCE: u64 = 20;
/// `pool-` and the number of one that waits there.
const VESSEL_LETTERS: usize = 21;
const SEED: u64 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_fifty_steps_a_node_does_and_answers_every_call_once() -> Result<()> {
    walk("short", 50, optional(&Environment, "KILL_SEED")?.unwrap_or(SEED)).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes a quarter of an hour: cargo xtask test --long"]
async fn killed_at_five_hundred_steps_a_node_does_and_answers_every_call_once() -> Result<()> {
    walk("long", 500, optional(&Environment, "KILL_SEED")?.unwrap_or_else(rand::random)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_writes_a_snapshot_a_node_writes_it_whole_and_leaves_no_half_of_one() -> Result<()> {
    let mut walk = Walk::new(SEED).await?;
    walk.world.node.start().await?;
    let tenant = &walk.tenants[0];
    let created = tenant.done(tenant.wish.clone().build()?).await?;
    let sandbox = SandboxId { origin: created.key, slot: 0 };
    tenant.inside(sandbox, "head -c 400M /dev/urandom > /workspace/much")?;
    let to = format!("file://{}/much.tar.zst", tenant.store.display());
    let request = requests::snapshot(sandbox, Some(to), Contents::Workspace)?;
    let submitted = tenant.account.submit_job(tenant.service, request).await?;
    let half = || async { (!walk.drafts().ok()?.is_empty()).then_some(()) };
    until("half a snapshot", BOUND, half).await?;
    walk.world.node.kill()?;
    assert_eq!(walk.drafts()?.len(), 1, "killed too late");
    walk.world.node.start().await?;
    let body = Answers::new(tenant.account.clone())?.wait_until_settled(&submitted, BOUND).await?;
    let answer = body.answer.context("no answer")?;
    assert_eq!(answer.failure, None, "{}", answer.response_json);
    assert_eq!(walk.drafts()?, Vec::<String>::new());
    let whole = std::fs::metadata(tenant.store.join("much.tar.zst"))?.len();
    assert_eq!(answer.response_json["size_bytes"], whole, "{}", answer.response_json);
    assert_eq!(tenant.receipts(submitted.key).await?.len(), 1);
    Ok(())
}

/// Lives of sandboxes in a node that is killed, until it was killed `kills` times.
async fn walk(suite: &str, kills: usize, seed: u64) -> Result<()> {
    let started = Instant::now();
    let mut walk = Walk::new(seed).await?;
    let mut lives = 0;
    while walk.deaths().len() < kills {
        lives += 1;
        if let Err(error) = walk.round(lives).await {
            let log = walk.world.node.log();
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(150)..].join("\n");
            return Err(error.context(format!("KILL_SEED={seed}, round {lives}, after\n{end}")));
        }
    }
    walk.read_out(suite, &format!("seed {seed}, {lives} rounds in {} s", started.elapsed().as_secs()))
}

struct Walk {
    world: World,
    tenants: [Tenant; 2],
    /// A sandbox that nobody touches.
    witness: String,
    /// What there is while it is the only one.
    expected: Vec<String>,
    draw: StdRng,
    kept: TempDir,
}

impl Walk {
    async fn new(seed: u64) -> Result<Self> {
        let kept = tempfile::tempdir()?;
        let world = World::with(|node| {
            node.set("POOL_SIZE", "1");
            node.set("SSH_BIND", "127.0.0.1:0");
            node.set("SNAPSHOT_DIRS", kept.path().display().to_string());
        });
        let mut world = world.await?;
        let witness = world.create().await?;
        ensure!(world.customer.exec(&witness, "echo kept > note").await?.status.success());
        let others = world.ground.client(STRANGER)?.service(&[Ground::address(OPERATOR)]).await?;
        let tenants = [
            Tenant::new(
                &world,
                (CUSTOMER, world.service),
                (CreateBuilder::new().memory_mb(512).ttl_blocks(TTL_BLOCKS), false),
                kept.path(),
            )
            .await?,
            Tenant::new(&world, (STRANGER, others), (CreateBuilder::new().disk_gb(1), true), kept.path()).await?,
        ];
        world.node.stop().await?;
        let expected = sorted(world.leftovers()?);
        Ok(Self { world, tenants, witness, expected, draw: StdRng::seed_from_u64(seed), kept })
    }

    /// The life of a sandbox of each customer, while the node dies; then the reckoning.
    async fn round(&mut self, number: usize) -> Result<()> {
        // The pool is filled when the claim comes, which is where this life ends.
        let step = CLAIM_STEPS[self.draw.random_range(0..CLAIM_STEPS.len())];
        self.world.node.set("DIE_OF", step);
        self.world.node.set("DIE_AT", self.draw.random_range(1..=2).to_string());
        let ([one, other], ground) = (&self.tenants, &self.world.ground);
        let lives = async {
            let ((asked, sandbox), (others, _)) = tokio::try_join!(one.live(number), other.live(number))?;
            for _ in 0..TTL_BLOCKS / MINED_AT_ONCE {
                ground.chain.mine(MINED_AT_ONCE).await?;
            }
            let expired = || async { one.container(sandbox).ok()?.is_none().then_some(()) };
            until("the end of what has expired", BOUND, expired).await?;
            anyhow::Ok([asked, others])
        };
        let asked = tokio::select! {
            lived = lives => lived?,
            failed = dying(&mut self.world.node, &mut self.draw) => match failed? {},
        };
        self.world.node.kill()?;
        self.reckon(asked).await
    }

    /// In a life without death: every answer is as its only receipt says, nothing is left over, and nothing is gone.
    async fn reckon(&mut self, asked: [Vec<SubmittedJob>; 2]) -> Result<()> {
        self.world.node.unset("DIE_AT");
        self.world.node.unset("DIE_OF");
        self.world.node.start().await?;
        for (tenant, asked) in self.tenants.iter().zip(&asked) {
            let answers = Answers::new(tenant.account.clone())?;
            for job in asked {
                let answer = answers.wait_until_settled(job, BOUND).await?.answer.context("no answer")?;
                let is_exec = job.request.job == Job::Exec;
                let expected = answer.failure.is_none() || is_exec && answer.failure == Some(FailureCode::Interrupted);
                ensure!(expected, "{} {:?}: {}", job.key, job.request.job, answer.response_json);
                let receipts = tenant.receipts(job.key).await?;
                ensure!(receipts.len() == 1, "{}: {} receipts", job.key, receipts.len());
                ensure!(receipts[0].outcome == answer.outcome.id(), "{}: {}", job.key, receipts[0].outcome);
            }
        }
        let (world, expected) = (&self.world, &self.expected);
        // The first life after a death sweeps, as every life does.
        let swept = || async {
            let found = sorted(world.leftovers().ok()?);
            let others: Vec<&String> = found.iter().filter(|what| !expected.contains(what)).collect();
            let is_all_there = found.len() - others.len() == expected.len();
            (is_all_there && is_one_vessel(&others)).then_some(())
        };
        if until("what is left over to go", BOUND, swept).await.is_err() {
            bail!("left over: {:#?}, expected {expected:#?}", world.leftovers()?);
        }
        let note = shown(&world.customer.exec(&self.witness, "cat note").await?);
        ensure!(note == (Some(0), "kept\n".into(), String::new()), "the sandbox that nobody touched: {note:?}");
        let drafts = self.drafts()?;
        ensure!(drafts.is_empty(), "unfinished snapshots: {drafts:?}");
        self.world.node.stop().await?;
        let left = sorted(self.world.leftovers()?);
        ensure!(left == self.expected, "left over: {left:#?}, expected {:#?}", self.expected);
        Ok(())
    }

    /// Snapshots of which there is less than the whole.
    fn drafts(&self) -> Result<Vec<String>> {
        let mut found = files_below(self.kept.path())?;
        found.retain(|name| name.ends_with(".partial"));
        Ok(found)
    }

    /// Where the node died so far, each as it said itself.
    fn deaths(&self) -> Vec<String> {
        let log = self.world.node.log();
        log.lines().filter_map(|line| line.strip_prefix("dies ")).map(str::to_owned).collect()
    }

    /// Prints where the node died, and keeps it beside the figures of the benches.
    fn read_out(&self, suite: &str, summary: &str) -> Result<()> {
        let mut steps: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
        let deaths = self.deaths();
        for death in &deaths {
            let (side, step) = death.split_once(' ').with_context(|| format!("no step in {death:?}"))?;
            steps.entry(step).or_default()[usize::from(side == "after")] += 1;
        }
        let mut table = format!("{:<28} {:>6} {:>6}\n", format!("{} kills", deaths.len()), "before", "after");
        for (step, [before, after]) in &steps {
            writeln!(table, "{step:<28} {before:>6} {after:>6}")?;
        }
        println!("{table}{summary}");
        let dir = checkout().join("bench-results");
        std::fs::create_dir_all(&dir).context("no directory for figures")?;
        std::fs::write(dir.join(format!("kills.{suite}.txt")), format!("{table}{summary}\n")).context("no figures")
    }
}

/// Lives one after the other: the first ends as is set already, the others at a drawn step, or now and then at a drawn
/// instant.
async fn dying(node: &mut Node, draw: &mut StdRng) -> Result<Infallible> {
    loop {
        node.spawn()?;
        died(node).await?;
        node.unset("DIE_OF");
        while draw.random_ratio(1, INSTANTS_ONE_IN) {
            node.unset("DIE_AT");
            node.spawn()?;
            pass(Duration::from_millis(draw.random_range(0..=INSTANT_MS_MAX))).await;
            node.kill()?;
        }
        node.set("DIE_AT", draw.random_range(1..=DIE_AT_MAX).to_string());
    }
}

async fn died(node: &mut Node) -> Result<()> {
    let status = loop {
        let ended = until("the node to die", Duration::from_secs(1), || {
            let status = node.exited();
            async move { status.transpose() }
        });
        if let Ok(status) = ended.await {
            break status?;
        }
    };
    ensure!(status.signal() == Some(9), "the node ended by itself: {status}");
    Ok(())
}

/// Whether these are of nothing, or of the one that waits in the pool.
fn is_one_vessel(names: &[&String]) -> bool {
    let vessels: Option<BTreeSet<&str>> =
        names.iter().map(|name| Some(&name[name.find("pool-")?..]).map(|vessel| &vessel[..VESSEL_LETTERS])).collect();
    vessels.is_some_and(|vessels| vessels.len() <= 1)
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

fn files_below(dir: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files_below(&path)?);
        } else {
            found.push(path.display().to_string());
        }
    }
    Ok(found)
}
