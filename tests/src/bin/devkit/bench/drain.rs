//! `drain`: a thousand commands that were asked for while the operator was away, one of them in vain, until each has its
//! receipt on chain.
//!
//! The baseline is the Blueprint SDK's producer, consumer and runner as they come, from the first of these blocks on and with
//! a handler that does nothing. Both begin on the same chain in the same state: it goes back in between.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt as _;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::devchain;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR, STRANGER};
use sandbox_tests::node::Node;
use sandbox_tests::programs::program;
use sandbox_tests::wait::pass;

use super::customer::Customer;
use super::outage::{Answered, Outage};
use super::{Samples, report};

/// Pause between two looks at the chain.
const PAUSE: Duration = Duration::from_millis(200);
/// Time for all of it.
const WITHIN: Duration = Duration::from_secs(1_800);
/// Time in which one more call must be answered.
const PROGRESS_WITHIN: Duration = Duration::from_secs(60);
/// Answers that are read at a time.
const READ_AT_ONCE: usize = 8;

/// How far a run came.
struct Run {
    took: Duration,
    answered: usize,
    /// No call was answered twice.
    is_once: bool,
}

pub(super) async fn run() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.start().await?;
    let service = ground.client(CUSTOMER)?.service(&[Ground::address(OPERATOR)]).await?;
    let account = ground.account(CUSTOMER).await?;
    let sandbox = Customer::new(account.clone(), service)?.create().await?;
    node.stop().await?;
    let outage = Outage::new(&account, Ground::address(STRANGER), sandbox).await?;
    eprintln!("  {} calls wait in {} blocks", outage.calls.len(), super::outage::BLOCKS);

    let mark = outage.mark().await?;
    let mut sdk = Sdk::start(&ground, service, outage.since)?;
    let baseline = drained(&outage, || sdk.is_alive()).await?;
    drop(sdk);
    eprintln!("  the SDK answered {} in {:.1?}", baseline.answered, baseline.took);
    outage.back_to(mark).await?;
    let ours = {
        node.spawn()?;
        drained(&outage, || Ok(true)).await?
    };
    eprintln!("  ours answered {} in {:.1?}", ours.answered, ours.took);
    let readable = readable(&mut node, &outage, Answers::new(account)?).await?;
    told(&outage, &ours, &baseline, readable)
}

fn told(outage: &Outage, ours: &Run, baseline: &Run, readable: usize) -> Result<()> {
    let calls = outage.calls.len();
    let (ours_s, baseline_s) = (ours.took.as_secs_f64(), baseline.took.as_secs_f64());
    let samples = Samples { ours: vec![ours_s], baseline: vec![baseline_s] };
    report("drain", "total_s", "s", &samples, (ours_s, Some(baseline_s)))?;
    report("drain", "speed_up", "x", &samples, (baseline_s / ours_s, None))?;
    let share = |part: usize| part as f64 / calls as f64;
    let once = if ours.is_once { share(readable.min(ours.answered)) } else { 0.0 };
    let samples = Samples { ours: vec![once], baseline: vec![share(baseline.answered)] };
    report("drain", "answered_once", "of 1", &samples, (once, Some(share(baseline.answered))))
}

/// Looks until every call is answered; less where nothing more comes, or where who answers has ended.
async fn drained(outage: &Outage, mut is_alive: impl FnMut() -> Result<bool>) -> Result<Run> {
    let begun = Instant::now();
    let mut run = Run { took: Duration::ZERO, answered: 0, is_once: true };
    let mut answers = Answered::default();
    loop {
        outage.look(&mut answers).await?;
        run.is_once = answers.times.values().all(|times| *times == 1);
        if answers.times.len() > run.answered {
            (run.answered, run.took) = (answers.times.len(), begun.elapsed());
        }
        let is_stuck = begun.elapsed() - run.took > PROGRESS_WITHIN || begun.elapsed() > WITHIN;
        if run.answered >= outage.calls.len() || is_stuck || !is_alive()? {
            return Ok(run);
        }
        pass(PAUSE).await;
    }
}

/// How many of the answers the customer can read, proven by their receipts and well.
async fn readable(node: &mut Node, outage: &Outage, answers: Answers) -> Result<usize> {
    node.ready().await?;
    let read = futures::stream::iter(&outage.calls).map(|key| answers.wait_for_call(*key, PROGRESS_WITHIN));
    let read: Vec<_> = read.buffer_unordered(READ_AT_ONCE).collect().await;
    let mut good = 0;
    for body in read {
        let answer = body.context("an answer cannot be read")?.answer.context("no answer")?;
        ensure!(answer.receipt.receipt.outcome == 0, "{}", answer.response_json);
        good += 1;
    }
    Ok(good)
}

/// The SDK's own road, as a process; it ends when this is dropped.
struct Sdk(Child);

impl Sdk {
    fn start(ground: &Ground, service: u64, from_block: u64) -> Result<Self> {
        let deployment = &ground.deployment;
        let child = Command::new(program("examples/sdk_baseline")?)
            .args([deployment.rpc_url.to_string(), deployment.core.to_string(), deployment.blueprint_id.to_string()])
            .args([service.to_string(), from_block.to_string(), devchain::KEYS[OPERATOR].to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        child.map(Self).context("cannot start the baseline")
    }

    fn is_alive(&mut self) -> Result<bool> {
        Ok(self.0.try_wait().context("cannot look after the baseline")?.is_none())
    }
}

impl Drop for Sdk {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            eprintln!("clean-up: {error}");
        }
    }
}
