//! Workflows from the command line to their steps and back: what fires them, how their runs go, and what a crash costs.

mod agents;
mod clock;
mod crash;
mod moved;
mod refusals;
mod triggers;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox_protocol::CallKey;
use sandbox_tests::client::Client;
use sandbox_tests::wait::until;
use serde_json::{Value, json};

use crate::world::World;

const BOUND: Duration = Duration::from_secs(90);

/// A step that runs a command, with more time than any test has for it.
fn step(id: &str, command: &str, needs: &[&str]) -> Value {
    json!({"id": id, "kind": "exec", "needs": needs, "timeout_ms": 300_000, "with": {"command": command}})
}

/// Creates a workflow and returns its id.
async fn create(world: &World, body: &Value, more: &[&str]) -> Result<String> {
    create_in(world.service, (&world.customer, world.node.dir()), body, more).await
}

/// Creates a workflow in a service by way of a file in `dir`, and returns its id.
async fn create_in(service: u64, (customer, dir): (&Client, &Path), body: &Value, more: &[&str]) -> Result<String> {
    let (file, service) = (dir.join("workflow.json"), service.to_string());
    std::fs::write(&file, body.to_string())?;
    let file = file.display().to_string();
    customer.text(&[&["workflow", "create", &file, "--service", &service, "--within", "60"], more].concat()).await
}

/// The call that a workflow is named by.
fn key(workflow: &str) -> Result<CallKey> {
    let (service, call) = workflow.split_once('/').context("no workflow id")?;
    Ok(CallKey { service: service.parse()?, call: call.parse()? })
}

/// The instants that the runs stand for, in the order of the runs.
fn slots(runs: &[Value]) -> Result<Vec<i64>> {
    let slot = |run: &Value| run["cause"]["slot_s"].as_i64().with_context(|| format!("no instant in {run}"));
    runs.iter().rev().map(slot).collect()
}

/// Fires a workflow by a job and returns the number of its run.
async fn trigger(customer: &Client, workflow: &str) -> Result<u64> {
    let fired = customer.json(&["workflow", "trigger", workflow, "--within", "60"]).await?;
    let status = fired["answer"]["response_json"]["status"].as_str().unwrap_or_default();
    let number = status.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    number.with_context(|| format!("no run in {fired}"))
}

/// A run as its operator tells of it.
async fn run(customer: &Client, workflow: &str, number: u64) -> Result<Value> {
    customer.json(&["workflow", "runs", workflow, &number.to_string()]).await
}

/// The runs of a workflow, the newest first.
async fn runs(customer: &Client, workflow: &str) -> Result<Vec<Value>> {
    let listed = customer.json(&["workflow", "runs", workflow, "--limit", "100"]).await?;
    Ok(listed["runs"].as_array().with_context(|| format!("no runs in {listed}"))?.clone())
}

/// A run once it is over.
async fn ended(customer: &Client, workflow: &str, number: u64) -> Result<Value> {
    let look = || async {
        let run = run(customer, workflow, number).await.ok()?;
        let is_over = !matches!(run["status"].as_str(), Some("queued" | "running") | None);
        is_over.then_some(run)
    };
    until("a run to end", BOUND, look).await
}

/// The step of this id in a run.
fn found<'a>(run: &'a Value, id: &str) -> Result<&'a Value> {
    let steps = run["steps"].as_array().with_context(|| format!("no steps in {run}"))?;
    steps.iter().find(|step| step["id"] == id).with_context(|| format!("no step {id} in {run}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn later_steps_know_what_earlier_ones_came_to_and_are_left_out_where_a_condition_says_so() -> Result<()> {
    let world = World::new().await?;
    let sandbox = world.create().await?;
    let body = json!({"sandbox_id": sandbox, "steps": [
        step("first", "printf '{\"name\":\"wolf\"}'", &[]),
        {"id": "second", "kind": "exec", "needs": ["first"], "with": {
            "command": "echo \"$NAME; $(cat)\"",
            "env": {"NAME": "${{ steps.first.outputs.json.name }}"},
            "stdin": "run ${{ run.number }} by ${{ trigger.kind }}"}},
        {"id": "never", "kind": "exec", "needs": ["first"], "when": "steps.first.outputs.exit_code != 0",
            "with": {"command": "touch never"}},
        {"id": "flaky", "kind": "exec", "needs": ["second"], "retry": {"max_attempts": 3, "backoff_ms": 10},
            "with": {"command": "echo x >> tries; test $(wc -l < tries) -ge 3"}},
        {"id": "mended", "kind": "exec", "needs": ["broken"], "when": "steps.broken.status == 'failed'",
            "with": {"command": "true"}},
        {"id": "broken", "kind": "exec", "needs": ["flaky"], "allow_failure": true, "with": {"command": "exit 7"}}
    ]});
    let workflow = create(&world, &body, &[]).await?;
    let number = trigger(&world.customer, &workflow).await?;
    let run = ended(&world.customer, &workflow, number).await?;
    assert_eq!((number, run["status"].as_str()), (1, Some("succeeded")), "{run}");
    assert_eq!(found(&run, "second")?["outputs"]["stdout"], "wolf; run 1 by manual\n");
    assert_eq!(found(&run, "never")?["status"], "skipped");
    assert_eq!((&found(&run, "flaky")?["attempts"], &found(&run, "broken")?["status"]), (&json!(3), &json!("failed")));
    assert_eq!(found(&run, "mended")?["status"], "succeeded");
    let logs = world.customer.text(&["workflow", "logs", &workflow, "1", "second"]).await?;
    ensure!(logs.contains("wolf; run 1 by manual"), "{logs}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_a_sandbox_of_its_own_that_is_gone_afterwards() -> Result<()> {
    let world = World::new().await?;
    let body =
        json!({"steps": [step("who", "id -un; echo $SECRET; echo kept > f", &[]), step("then", "cat f", &["who"])]});
    let workflow = create(&world, &body, &["--memory-mb", "128", "--env", "SECRET=canary-of-a-run"]).await?;
    for number in 1..=2 {
        assert_eq!(trigger(&world.customer, &workflow).await?, number);
        let run = ended(&world.customer, &workflow, number).await?;
        assert_eq!(run["status"], "succeeded", "{run}");
        assert_eq!(found(&run, "who")?["outputs"]["stdout"], "agent\ncanary-of-a-run\n");
        assert_eq!(found(&run, "then")?["outputs"]["stdout"], "kept\n");
    }
    assert_eq!(world.leftovers()?, Vec::<String>::new());
    ensure!(!world.node.log().contains("canary-of-a-run"), "the log tells what is sealed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_workflow_ends_its_runs_with_what_they_run() -> Result<()> {
    let world = World::new().await?;
    let sandbox = world.create().await?;
    let body = json!({"sandbox_id": sandbox, "steps": [step("long", "echo $$ > pid; exec sleep 300", &[])]});
    let workflow = create(&world, &body, &["--overlap", "queue"]).await?;
    let (first, second) = (trigger(&world.customer, &workflow).await?, trigger(&world.customer, &workflow).await?);
    let exec = async |command: &str| world.customer.text(&["exec", &sandbox, "--", command]).await;
    let pid =
        until("the step to run", BOUND, || async { exec("cat pid").await.ok().filter(|pid| !pid.is_empty()) }).await?;
    assert_eq!(run(&world.customer, &workflow, second).await?["status"], "queued");
    world.customer.text(&["workflow", "cancel", &workflow, "--within", "60"]).await?;
    let gone = format!("kill -0 {pid} 2>/dev/null || echo gone");
    until("the command to be gone", BOUND, || async { (exec(&gone).await.ok()? == "gone").then_some(()) }).await?;
    let refused = world.customer.run(&["workflow", "trigger", &workflow]).await?;
    assert_eq!(refused.status.code(), Some(121), "it is over on chain");
    let node = &world.node;
    ensure!(node.log().contains("fired no more"), "the operator fires it");
    assert_eq!((first, second), (1, 2));
    Ok(())
}
