//! `rebuild`: an operator that starts with ten thousand active workflows on chain: until it has read them all, and with how many questions.
//! Then all of them fire for the same instant: one tick, its runs, and what is told to the chain of it. Then it starts once more.
//!
//! Its state is prepared by a shortcut, see `seed`. Questions are counted from the start of the process, so those count too that have
//! nothing to do with workflows.

mod seed;

use std::collections::HashMap;
use std::time::Duration;

use alloy::providers::Provider as _;
use alloy::rpc::types::Filter;
use alloy::sol_types::SolEvent as _;
use anyhow::{Context, Result, ensure};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::WorkflowFired;
use sandbox_tests::faulty_rpc::FaultyNode;
use sandbox_tests::flows::Flows;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::node::Node;
use sandbox_tests::wait::{pass, until};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use self::seed::{Field, WORKFLOWS};
use super::customer::Customer;
use super::{Samples, report};

/// What the operator logs.
const READ: &str = "workflows are in step with the chain";
const FIRED: &str = " fired workflow=";
const ENDED: &str = "a run has ended";
const MINUTE_S: i64 = 60;
/// Between the first thought of the instant at which all are due and that instant: they are written and read meanwhile.
const AHEAD_S: i64 = 60;
/// Time for the operator to be where it is waited for.
const WITHIN: Duration = Duration::from_secs(600);
/// Pause between two looks at a long log.
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn run() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.start().await?;
    let service = ground.client(CUSTOMER)?.service(&[Ground::address(OPERATOR)]).await?;
    let customer = Customer::new(ground.account(CUSTOMER).await?, service)?;
    let sandbox = customer.create().await?;
    node.stop().await?;

    let due_s = (now_s() + AHEAD_S).div_euclid(MINUTE_S) * MINUTE_S + MINUTE_S;
    let field = Field { service, sandbox, due_s };
    let gas = field.write(&ground).await?;
    eprintln!("  {WORKFLOWS} workflows written for {gas} gas; they are due in {} s", due_s - now_s());

    let rpc = FaultyNode::before(ground.deployment.rpc_url.clone()).await?;
    node.set("HTTP_RPC_URL", rpc.url().to_string());
    node.unset("WS_RPC_URL");
    node.set("WORKFLOW_REPORT_SECONDS", "5");
    read(&mut node, &rpc, ["total_ms", "rpc_calls"]).await?;
    is_what_the_chain_says(&ground, &field).await?;
    ensure!(now_s() < due_s, "this machine took too long: the instant has passed at which all are due");
    fire(&ground, &node, due_s).await?;

    node.stop().await?;
    read(&mut node, &rpc, ["again_ms", "again_rpc_calls"]).await?;
    customer.delete(sandbox).await?;
    let fired = node.log().matches(FIRED).count();
    ensure!(fired as u64 == WORKFLOWS, "{fired} firings after a second start");
    node.stop().await
}

/// Starts the operator, and reports how long it took to read the workflows, and its questions until then.
async fn read(node: &mut Node, rpc: &FaultyNode, [time, questions]: [&str; 2]) -> Result<()> {
    let (had, asked) = (node.log().matches(READ).count(), rpc.requests());
    node.spawn()?;
    let calls = until("the workflows to be read", WITHIN, || {
        let calls = (node.log().matches(READ).count() > had).then(|| rpc.requests() - asked);
        async move { calls }
    });
    let calls = calls.await? as f64;
    node.ready().await?;
    let log = node.log();
    let line = log.lines().rfind(|line| line.contains(READ)).context("no such line")?;
    ensure!(field(line, "workflows") == Some(WORKFLOWS), "{line}");
    let ms = field(line, "ms").with_context(|| line.to_owned())? as f64;
    let of = |value| Samples { ours: vec![value], baseline: Vec::new() };
    report("rebuild", time, "ms", &of(ms), (ms, None))?;
    report("rebuild", questions, "", &of(calls), (calls, None))
}

/// Compares all that the operator tells of its workflows with what was written.
async fn is_what_the_chain_says(ground: &Ground, field: &Field) -> Result<()> {
    let flows = Flows::at(&ground.account(CUSTOMER).await?, Ground::address(OPERATOR)).await?;
    let told = flows.all().await?;
    let told: HashMap<u64, _> = told.into_iter().map(|entry| (entry.workflow, entry)).collect();
    ensure!(told.len() as u64 == WORKFLOWS, "the operator tells of {} workflows", told.len());
    for index in 0..WORKFLOWS {
        let entry = told.get(&field.key(index).call).with_context(|| format!("workflow {index} is not told of"))?;
        let is_right = entry.trigger_config == field.schedule(index)?
            && entry.next_slot_s == Some(field.due_s)
            && entry.problem.is_none();
        ensure!(is_right, "workflow {index} is told of as {entry:?}");
    }
    Ok(())
}

/// Lets the instant come, and reports what the tick took, its runs, and until the chain was told of every firing.
async fn fire(ground: &Ground, node: &Node, due_s: i64) -> Result<()> {
    let log = logged(node, FIRED).await?;
    let times = log.lines().filter(|line| line.contains(FIRED)).map(instant_ms).collect::<Result<Vec<_>>>()?;
    let first = times.iter().copied().fold(f64::INFINITY, f64::min);
    let last = times.iter().copied().fold(0.0, f64::max);
    let log = logged(node, ENDED).await?;
    ensure!(log.matches("status=\"succeeded\"").count() as u64 >= WORKFLOWS, "a run has failed");
    let ends = log.lines().filter(|line| line.contains(ENDED)).map(instant_ms).collect::<Result<Vec<_>>>()?;
    let end = ends.iter().copied().fold(0.0, f64::max);
    until("every firing on chain", WITHIN, || async {
        let told = told(ground).await.ok()?;
        if told < WORKFLOWS as usize {
            pass(LOOK).await;
        }
        (told >= WORKFLOWS as usize).then_some(())
    })
    .await?;
    let due_ms = due_s as f64 * 1_000.0;
    for (figure, ms) in [("tick_ms", last - first), ("fired_after_ms", last - due_ms), ("runs_after_ms", end - due_ms)]
    {
        report("rebuild", figure, "ms", &Samples { ours: vec![ms], baseline: Vec::new() }, (ms, None))?;
    }
    Ok(())
}

/// The log, once it has a line of this kind for every workflow.
async fn logged(node: &Node, kind: &str) -> Result<String> {
    until(&format!("{WORKFLOWS} times {kind:?}"), WITHIN, || async {
        let log = node.log();
        let is_all = log.matches(kind).count() as u64 >= WORKFLOWS;
        if !is_all {
            pass(LOOK).await;
        }
        is_all.then_some(log)
    })
    .await
}

/// Workflows of whose firing the chain was told.
async fn told(ground: &Ground) -> Result<usize> {
    let filter =
        Filter::new().address(ground.deployment.manager).event_signature(WorkflowFired::SIGNATURE_HASH).from_block(0);
    Ok(ground.chain.provider().get_logs(&filter).await.context("firings")?.len())
}

/// A number that a line of the log has by this name.
fn field(line: &str, name: &str) -> Option<u64> {
    let text = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
    text.parse().ok()
}

/// When a line was logged, in milliseconds since 1970.
fn instant_ms(line: &str) -> Result<f64> {
    let word = line.split_whitespace().next().context("an empty line")?;
    let instant = OffsetDateTime::parse(word, &Rfc3339).with_context(|| line.to_owned())?;
    Ok(instant.unix_timestamp_nanos() as f64 / 1_000_000.0)
}

fn now_s() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}
