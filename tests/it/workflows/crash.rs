//! What a crash costs a run: nothing. A step that was begun goes on in its sandbox, and is begun once.

use anyhow::{Context, Result, ensure};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::WorkflowStatus;
use sandbox_tests::ground::CUSTOMER;
use sandbox_tests::wait::until;
use serde_json::json;

use super::{BOUND, create, ended, found, key, run, step, trigger};
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_killed_in_the_middle_of_a_run_goes_on_at_the_step_and_repeats_none() -> Result<()> {
    let mut world = World::new().await?;
    let sandbox = world.create().await?;
    let wait = "echo two >> said; until test -e go; do sleep 0.05; done; echo done";
    let body = json!({"sandbox_id": sandbox, "steps": [
        step("one", "echo one >> said", &[]), step("two", wait, &["one"]), step("three", "echo three >> said; cat said", &["two"]),
    ]});
    let workflow = create(&world, &body, &[]).await?;
    let number = trigger(&world.customer, &workflow).await?;
    let customer = world.customer.clone();
    let begun = || async {
        let said = customer.text(&["exec", &sandbox, "--", "cat said"]).await.ok()?;
        said.contains("two").then_some(())
    };
    until("the second step to run", BOUND, begun).await?;
    world.node.kill()?;
    world.node.start().await?;
    let known = || async { run(&world.customer, &workflow, number).await.ok() };
    let again = until("the run to be known again", BOUND, known).await?;
    assert_eq!((&again["status"], &found(&again, "two")?["status"]), (&json!("running"), &json!("running")), "{again}");
    world.customer.text(&["exec", &sandbox, "--", "touch go"]).await?;
    let run = ended(&world.customer, &workflow, number).await?;
    assert_eq!(run["status"], "succeeded", "{run}");
    assert_eq!(found(&run, "three")?["outputs"]["stdout"], "one\ntwo\nthree\n");
    assert_eq!((&found(&run, "one")?["attempts"], &found(&run, "two")?["attempts"]), (&json!(1), &json!(1)));
    ensure!(found(&run, "two")?["outputs"]["stdout"] == "done\n", "{run}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_whose_operator_is_killed_fires_once() -> Result<()> {
    let mut world = World::new().await?;
    let sandbox = world.create().await?;
    let body = json!({"sandbox_id": sandbox, "steps": [step("count", "echo x >> count; cat count", &[])]});
    let workflow = create(&world, &body, &["--overlap", "queue"]).await?;
    let number = trigger(&world.customer, &workflow).await?;
    ended(&world.customer, &workflow, number).await?;
    world.node.kill()?;
    let customer = world.customer.clone();
    let triggering = tokio::spawn(async move {
        let fired = trigger(&customer, &workflow).await?;
        anyhow::Ok((workflow, fired))
    });
    world.node.start().await?;
    let (workflow, next) = triggering.await??;
    assert_eq!((number, next), (1, 2));
    let last = ended(&world.customer, &workflow, next).await?;
    assert_eq!(found(&last, "count")?["outputs"]["stdout"], "x\nx\n", "{last}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_of_a_workflow_that_is_cancelled_while_its_operator_is_down_is_ended_at_its_start() -> Result<()> {
    let mut world = World::new().await?;
    let sandbox = world.create().await?;
    let body = json!({"sandbox_id": sandbox, "steps": [step("long", "echo $$ > pid; exec sleep 300", &[])]});
    let workflow = create(&world, &body, &[]).await?;
    trigger(&world.customer, &workflow).await?;
    let customer = world.customer.clone();
    let exec = async |command: &str| customer.text(&["exec", &sandbox, "--", command]).await.ok();
    let pid = until("the step to run", BOUND, || async { exec("cat pid").await.filter(|pid| !pid.is_empty()) }).await?;
    world.node.kill()?;
    let unanswered = world.customer.run(&["workflow", "cancel", &workflow, "--within", "1"]).await?;
    ensure!(!unanswered.status.success(), "nobody is there to answer");
    let chain = world.ground.account(CUSTOMER).await?.chain().clone();
    let (row, _) = chain.workflow(key(&workflow)?).await?.context("no workflow")?;
    assert_eq!(row.status, WorkflowStatus::Cancelled);
    world.node.start().await?;
    let gone = format!("kill -0 {pid} 2>/dev/null || echo gone");
    until("the command to be gone", BOUND, || async { (exec(&gone).await? == "gone").then_some(()) }).await
}
