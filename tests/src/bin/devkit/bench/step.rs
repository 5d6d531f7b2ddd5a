//! `step`: what a step of a workflow takes beside its command: a run of forty steps `true`, one after the other, against as many commands
//! over a connection of ours to the same sidecar, in turns.
//!
//! A run is timed by the operator's own clock, from its start to its end, so that nothing of the call that fires it counts.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox_fsp::{Connection, Endpoint, Token, UnixSocket};
use sandbox_protocol::abi::WorkflowCreateRequest;
use sandbox_protocol::fsp::{Extensions, Status};
use sandbox_protocol::workflow::{RunBody, RunStatus};
use sandbox_protocol::{CallKey, SandboxId};
use sandbox_tests::engine::{containers, inspect};
use sandbox_tests::flows::Flows;
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::requests;
use serde_json::json;

use super::customer::Customer;
use super::fsp::execute;
use super::{Samples, percentile, report};

const STEPS: u32 = 40;
const ROUNDS: u64 = 11;
const SIDECAR_DIR: &str = "/run/sandbox";
const TOKEN: &str = "SIDECAR_AUTH_TOKEN=";
/// Time for a run to end.
const WITHIN: Duration = Duration::from_secs(60);

pub(super) async fn run() -> Result<()> {
    let ground = Ground::new().await?;
    let mut node = ground.node(OPERATOR)?;
    node.start().await?;
    let service = ground.client(CUSTOMER)?.service(&[Ground::address(OPERATOR)]).await?;
    let account = ground.account(CUSTOMER).await?;
    let customer = Customer::new(account.clone(), service)?;
    let sandbox = customer.create().await?;
    let direct = direct(&containers(&node.run_dir())?.pop().context("no container")?).await?;
    let workflow = customer.done(requests::workflow_create(&workflow(sandbox))).await?;
    let flows = Flows::at(&account, Ground::address(OPERATOR)).await?;

    let (mut overhead, mut whole) = (Samples::default(), Samples::default());
    for round in 0..=ROUNDS {
        let commands_ms = commands(&direct, round).await?;
        let run_ms = fired(&customer, &flows, workflow, round + 1).await?;
        let per_step_ms = (run_ms - commands_ms) / f64::from(STEPS);
        eprintln!("  {round}/{ROUNDS} run {run_ms:.0} ms, commands {commands_ms:.0} ms, {per_step_ms:.2} ms a step");
        // The first round warms up.
        if round > 0 {
            overhead.ours.push(per_step_ms);
            whole.ours.push(run_ms / f64::from(STEPS));
            whole.baseline.push(commands_ms / f64::from(STEPS));
        }
    }
    report("step", "median_ms", "ms", &overhead, (percentile(&overhead.ours, 0.5), None))?;
    report("step", "p95_ms", "ms", &overhead, (percentile(&overhead.ours, 0.95), None))?;
    let medians = (percentile(&whole.ours, 0.5), Some(percentile(&whole.baseline, 0.5)));
    report("step", "whole_ms", "ms", &whole, medians)
}

/// Steps that need one another in a row.
fn workflow(sandbox: SandboxId) -> WorkflowCreateRequest {
    let step = |number: u32| {
        let needs: Vec<String> = (0..number).rev().take(1).map(|before| format!("s{before}")).collect();
        json!({"id": format!("s{number}"), "kind": "exec", "with": {"command": "true"}, "needs": needs})
    };
    let steps: Vec<_> = (0..STEPS).map(step).collect();
    WorkflowCreateRequest {
        name: "forty".into(),
        workflow_json: json!({"steps": steps, "sandbox_id": sandbox.to_string()}).to_string(),
        trigger_type: "manual".into(),
        ..Default::default()
    }
}

/// Milliseconds of a run, from its first step's start to its end.
async fn fired(customer: &Customer, flows: &Flows, workflow: CallKey, number: u64) -> Result<f64> {
    let submitted = customer.submit(requests::workflow_trigger(workflow)).await?;
    customer.answered(&submitted).await?;
    let RunBody { run, steps, .. } = flows.ended(workflow, number, WITHIN).await?;
    ensure!(run.status == RunStatus::Succeeded && steps.len() == STEPS as usize, "{run:?}");
    let began_ms = steps.first().and_then(|step| step.started_ms).context("the first step did not start")?;
    let ended_ms = run.ended_ms.context("it has no end")?;
    Ok(Duration::from_millis(ended_ms.saturating_sub(began_ms)).as_secs_f64() * 1_000.0)
}

/// Milliseconds of as many commands.
async fn commands(direct: &Connection, round: u64) -> Result<f64> {
    let started = Instant::now();
    for number in 0..STEPS {
        let execution = direct.execute(execute(format!("direct-{round}-{number}"), "true")).await?;
        let outcome = execution.outcome(1_024).await?;
        ensure!(outcome.status == Status::Completed, "{outcome:?}");
    }
    Ok(started.elapsed().as_secs_f64() * 1_000.0)
}

/// A connection of ours to a sandbox's sidecar, with what the engine knows of it.
async fn direct(container: &str) -> Result<Connection> {
    let known = inspect(container)?;
    let mounts = known["Mounts"].as_array().context("no mounts")?;
    let mount = mounts.iter().find(|mount| mount["Destination"] == SIDECAR_DIR).context("no socket directory")?;
    let socket = PathBuf::from(mount["Source"].as_str().context("no source")?).join("sidecar.sock");
    let env = known["Config"]["Env"].as_array().context("no environment")?;
    let token = env.iter().find_map(|pair| pair.as_str()?.strip_prefix(TOKEN)).context("no token")?;
    let endpoint = Endpoint::new(UnixSocket::new(socket), Token::fixed(token), Extensions::default());
    Ok(Connection::open(&endpoint).await?)
}
