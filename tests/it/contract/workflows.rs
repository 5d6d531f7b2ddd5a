//! The registry of workflows: whose they are, when they fire, and where their bodies are found.

use alloy::primitives::{U256, keccak256};
use alloy::providers::Provider as _;
use alloy::rpc::types::Filter;
use alloy::sol_types::{SolEvent as _, SolValue as _};
use anyhow::{Context, Result};
use sandbox_protocol::abi::{WorkflowCreateRequest, decode};
use sandbox_protocol::{CallKey, Job};
use sandbox_sdk::Refusal;
use sandbox_sdk::calls::{self, Invocation};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{
    Firing, IAgentSandboxBlueprintErrors as BlueprintRefusal, WorkflowBody, WorkflowFired, WorkflowStatus,
    WorkflowTrigger, WorkflowView,
};
use sandbox_sdk::contracts::ITangleCore::JobSubmitted;
use sandbox_sdk::devchain::CORE;
use sandbox_tests::stage::{Stage, event, events, receipt};
use sandbox_tests::tangle::ICore::addPermittedCallerCall;

use super::{CALLER, DONE, OPERATOR, requests};

async fn row(stage: &Stage, key: CallKey) -> Result<(WorkflowView, WorkflowBody)> {
    stage.chain().workflow(key).await?.context("no such workflow")
}

async fn status(stage: &Stage, key: CallKey) -> Result<WorkflowStatus> {
    Ok(row(stage, key).await?.0.status)
}

/// A workflow that its operator has confirmed.
async fn active(stage: &Stage, service: u64, body_bytes: usize) -> Result<CallKey> {
    let key = stage.submit(service, Job::WorkflowCreate, &requests::workflow(body_bytes)).await?;
    stage.answer(stage.assigned(key).await?, key, &receipt(DONE, 0)).await?;
    Ok(key)
}

async fn refusal(stage: &Stage, job: Job, key: CallKey) -> Result<Refusal> {
    let call = stage.submission(key.service, job.id(), requests::control(key).abi_encode().into()).await?;
    stage.refusal(stage.customer(), &call).await
}

#[tokio::test(flavor = "multi_thread")]
async fn workflows_of_two_services_with_the_same_call_id_are_two() -> Result<()> {
    let stage = Stage::new(2).await?;
    let (one, two) = (stage.service_of(1).await?, stage.service(&stage.operators()[1..]).await?);
    let (first, second) = (active(&stage, one, 60).await?, active(&stage, two, 90).await?);
    assert_eq!((first.call, second.call), (0, 0), "the core numbers calls per service");
    let (rows, bodies) = (row(&stage, first).await?, row(&stage, second).await?);
    assert_eq!((rows.0.serviceId, bodies.0.serviceId), (one, two));
    assert_ne!((rows.0.operator, rows.0.bodyHash), (bodies.0.operator, bodies.0.bodyHash));

    stage.submit(one, Job::WorkflowCancel, &requests::control(first)).await?;
    assert_eq!(status(&stage, first).await?, WorkflowStatus::Cancelled);
    assert_eq!(status(&stage, second).await?, WorkflowStatus::Active);
    for (operator, active) in [(0, vec![]), (1, vec![second.call])] {
        let seen = stage.chain().active_workflows(stage.operators()[operator]).await?;
        assert_eq!(seen.iter().map(|row| row.workflowId).collect::<Vec<_>>(), active);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_of_another_service_is_unknown_and_that_of_another_customer_is_theirs() -> Result<()> {
    let stage = Stage::new(1).await?;
    let (service, other) = (stage.service_of(1).await?, stage.service_of(1).await?);
    active(&stage, other, 60).await?;
    let second = active(&stage, other, 60).await?;
    for job in [Job::WorkflowTrigger, Job::WorkflowCancel] {
        let refused = refusal(&stage, job, CallKey { service, ..second }).await?;
        assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::UnknownWorkflow(_))), "{refused}");
        let guest = super::stranger();
        stage.to_core(stage.customer(), &addPermittedCallerCall { serviceId: other, caller: guest }).await?;
        let call = stage.submission(other, job.id(), requests::control(second).abi_encode().into()).await?;
        let refused = stage.refusal(guest, &call).await?;
        assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::NotWorkflowOwner(_))), "{refused}");
    }
    assert_eq!(status(&stage, second).await?, WorkflowStatus::Active);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_is_active_only_once_its_operator_says_done() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let operator = stage.operators()[0];
    for (outcome, expected) in
        [(DONE, WorkflowStatus::Active), (CALLER, WorkflowStatus::Failed), (OPERATOR, WorkflowStatus::Failed)]
    {
        let mark = stage.mark().await?;
        let key = stage.submit(service, Job::WorkflowCreate, &requests::workflow(60)).await?;
        assert_eq!(status(&stage, key).await?, WorkflowStatus::Pending);
        assert!(stage.chain().active_workflows(operator).await?.is_empty());
        let refused = refusal(&stage, Job::WorkflowTrigger, key).await?;
        assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::WorkflowNotActive(_))), "{refused}");
        stage.answer(operator, key, &receipt(outcome, 0)).await?;
        assert_eq!(status(&stage, key).await?, expected);
        let active = stage.chain().active_workflows(operator).await?.len();
        assert_eq!(active, usize::from(expected == WorkflowStatus::Active));
        stage.back_to(mark).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_workflow_never_fires_again() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let key = active(&stage, service, 60).await?;
    let trigger = stage.submit(service, Job::WorkflowTrigger, &requests::control(key)).await?;
    assert_eq!(stage.assigned(trigger).await?, stage.operators()[0]);
    assert_eq!(row(&stage, key).await?.0.lastTriggered, stage.chain().time().await?);
    stage.submit(service, Job::WorkflowCancel, &requests::control(key)).await?;
    for job in [Job::WorkflowTrigger, Job::WorkflowCancel] {
        let refused = refusal(&stage, job, key).await?;
        assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::WorkflowNotActive(_))), "{refused}");
    }
    let resume = calls::resume_workflow(stage.deployment(), key);
    assert!(stage.refusal(stage.customer(), &resume).await?.to_string().contains("is cancelled"));
    assert!(fire(&stage, key, 0).await?.is_empty());
    Ok(())
}

/// Has the operator report a firing in the present second; what of it was taken.
async fn fire(stage: &Stage, key: CallKey, epoch: u16) -> Result<Vec<WorkflowFired>> {
    let at = stage.chain().time().await?;
    let firing = Firing { serviceId: key.service, workflowId: key.call, epoch, at };
    let call = calls::record_firings(stage.deployment(), vec![firing]);
    Ok(events(&stage.send(stage.operators()[0], &call).await?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_workflow_does_not_fire_until_its_owner_resumes_it() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let key = active(&stage, service, 60).await?;
    assert_eq!(fire(&stage, key, 0).await?.len(), 1);
    assert!(fire(&stage, key, 1).await?.is_empty(), "of another epoch");
    let pause = calls::pause_workflow(stage.deployment(), key);
    let refused = stage.refusal(super::stranger(), &pause).await?;
    assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::NotWorkflowOwner(_))), "{refused}");
    stage.send(stage.customer(), &pause).await?;
    stage.dev().pass_time(10).await?;
    assert!(fire(&stage, key, 0).await?.is_empty());
    stage.send(stage.customer(), &calls::resume_workflow(stage.deployment(), key)).await?;
    stage.dev().pass_time(10).await?;
    assert_eq!(fire(&stage, key, 0).await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_of_a_small_workflow_is_stored_whole() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let request = WorkflowCreateRequest {
        name: "nächtlich".into(),
        workflow_json: r#"{"steps":[{"exec":"make"}]}"#.into(),
        trigger_type: "webhook".into(),
        trigger_config: r#"{"path":"/x"}"#.into(),
        sandbox_config_json: r#"{"memory_mb":512}"#.into(),
    };
    let key = stage.submit(service, Job::WorkflowCreate, &request).await?;
    let (row, body) = row(&stage, key).await?;
    assert_eq!((row.trigger, &row.triggerConfig), (WorkflowTrigger::Webhook, &request.trigger_config));
    assert_eq!(
        body,
        WorkflowBody {
            stored: true,
            name: request.name.clone(),
            workflowJson: request.workflow_json.clone(),
            sandboxConfigJson: request.sandbox_config_json.clone(),
        }
    );
    assert_eq!(row.bodyHash, keccak256(request.abi_encode()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_body_of_a_large_workflow_is_in_the_log_that_its_row_points_to() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let request = requests::workflow(4_096);
    let key = stage.submit(service, Job::WorkflowCreate, &request).await?;
    stage.dev().mine(3).await?;
    let (row, body) = row(&stage, key).await?;
    assert!(!body.stored && body.workflowJson.is_empty());
    assert_eq!(row.triggerConfig, request.trigger_config, "a schedule is rebuilt from rows alone");
    let filter = Filter::new()
        .address(CORE)
        .event_signature(JobSubmitted::SIGNATURE_HASH)
        .topic1(U256::from(row.serviceId))
        .topic2(U256::from(row.workflowId))
        .select(row.bodyBlock);
    let logs = stage.chain().provider().get_logs(&filter).await?;
    assert_eq!(logs.len(), 1);
    let inputs = logs[0].log_decode::<JobSubmitted>()?.inner.data.inputs;
    assert_eq!(keccak256(&inputs), row.bodyHash);
    assert_eq!(decode::<WorkflowCreateRequest>(&inputs)?, request);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_is_one_of_four_and_its_configuration_short() -> Result<()> {
    let stage = Stage::new(1).await?;
    let service = stage.service_of(1).await?;
    let limit: usize = stage.chain().blueprint().TRIGGER_CONFIG_BYTES_MAX().call().await?.to();
    let call = async |request: WorkflowCreateRequest| -> Result<Invocation> {
        stage.submission(service, Job::WorkflowCreate.id(), request.abi_encode().into()).await
    };
    let unknown = WorkflowCreateRequest { trigger_type: "Cron".into(), ..requests::workflow(60) };
    let refused = stage.refusal(stage.customer(), &call(unknown).await?).await?;
    assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::UnknownOption(_))), "{refused}");
    let long = WorkflowCreateRequest { trigger_config: "x".repeat(limit + 1), ..requests::workflow(60) };
    let refused = stage.refusal(stage.customer(), &call(long).await?).await?;
    assert!(matches!(refused, Refusal::Blueprint(BlueprintRefusal::TriggerConfigTooLong(_))), "{refused}");
    for trigger in ["manual", "cron", "webhook", "event"] {
        let longest = WorkflowCreateRequest {
            trigger_type: trigger.into(),
            trigger_config: "x".repeat(limit),
            ..requests::workflow(4_096)
        };
        let sent = stage.send(stage.customer(), &call(longest).await?).await?;
        let submitted: JobSubmitted = event(&sent)?;
        let (row, _) = row(&stage, CallKey { service, call: submitted.callId }).await?;
        assert_eq!(row.triggerConfig.len(), limit);
    }
    Ok(())
}
