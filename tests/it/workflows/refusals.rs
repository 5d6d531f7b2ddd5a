//! Workflows that cannot be: refused at their create, at no other's cost, with the place named.

use alloy::sol_types::SolValue as _;
use anyhow::{Context, Result};
use sandbox_protocol::Job;
use sandbox_protocol::abi::WorkflowCreateRequest;
use sandbox_protocol::limits::WORKFLOW_BODY_BYTES_MAX;
use sandbox_sdk::answers::Answers;
use sandbox_sdk::requests::JobRequest;
use sandbox_tests::ground::CUSTOMER;
use serde_json::{Value, json};

use super::{BOUND, step};
use crate::world::World;

/// Outcome and message of a create that no client has checked.
async fn refused(world: &World, request: &WorkflowCreateRequest) -> Result<(String, String)> {
    let account = world.ground.account(CUSTOMER).await?;
    let inputs = request.abi_encode().into();
    let submitted = account.submit_job(world.service, JobRequest { job: Job::WorkflowCreate, inputs }).await?;
    let answer = Answers::new(account)?.wait_for(&submitted, BOUND).await?.answer.context("no answer")?;
    let message = answer.response_json["message"].as_str().unwrap_or_default().to_owned();
    Ok((serde_json::to_value(answer.outcome)?.as_str().unwrap_or_default().to_owned(), message))
}

fn with_steps(steps: &[Value]) -> WorkflowCreateRequest {
    let workflow_json = json!({"sandbox_id": "sbx-1-0-0", "steps": steps}).to_string();
    WorkflowCreateRequest { workflow_json, trigger_type: "manual".into(), ..WorkflowCreateRequest::default() }
}

fn by_cron(config: &str) -> WorkflowCreateRequest {
    let request = with_steps(&[step("a", "true", &[])]);
    WorkflowCreateRequest { trigger_type: "cron".into(), trigger_config: config.into(), ..request }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_cannot_be_is_refused_at_its_create_with_the_place_named() -> Result<()> {
    let world = World::new().await?;
    let long = "x".repeat(WORKFLOW_BODY_BYTES_MAX);
    let injected = step("a", "echo ${{ trigger.body }}", &[]);
    for (request, place) in [
        (with_steps(&[step("a", "true", &["b"]), step("b", "true", &["a"])]), "a"),
        (with_steps(&[step("a", "true", &["nobody"])]), "nobody"),
        (with_steps(&[step("a", "true", &[]), step("a", "true", &[])]), "\"a\""),
        (with_steps(&[injected]), "command"),
        (with_steps(&[]), "steps"),
        (with_steps(&[step("a", &long, &[])]), "workflow_json: at most"),
        (by_cron("61 * * * *"), "trigger_config: cron: minute"),
        (by_cron("0 0 30 2 *"), "trigger_config: cron"),
        (by_cron(r#"{"cron":"@daily","tz":"Mars/Base"}"#), "no such zone \"Mars/Base\""),
        (WorkflowCreateRequest { name: "n".repeat(129), ..with_steps(&[step("a", "true", &[])]) }, "name"),
        (WorkflowCreateRequest { workflow_json: "{".into(), ..with_steps(&[]) }, "workflow_json"),
        (with_steps(&[step("a", "true", &[])]), "sbx-1-0-0"),
    ] {
        let (outcome, message) = refused(&world, &request).await?;
        assert_eq!(outcome, "caller", "{message}");
        assert!(message.contains(place), "{message:?} does not name {place:?}");
    }
    Ok(())
}
