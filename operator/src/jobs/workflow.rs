//! Jobs 30 to 32: a workflow is begun, fired, and ended. The tick of the clock is an internal job beside them.
//!
//! What a create is refused for is named by its field and step. A workflow whose sandboxes are another operator's is answered as
//! this operator's failure, and the contract gives it to the next.

use std::sync::Arc;

use blueprint_sdk::extract::Context;
use sandbox_fleet::Unfinished;
use sandbox_fleet::workflow::Plan;
use sandbox_protocol::abi::{WorkflowControlRequest, WorkflowCreateRequest, WorkflowCreateResponse};
use sandbox_protocol::{CallKey, Failure, FailureCode, SandboxId};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::SandboxState;

use super::{Desk, JobCall, Work};
use crate::chain::until_answered;
use crate::records::WorkflowText;
use crate::workflows::{check, check_trigger};

/// Job 30: checks a workflow and keeps its text.
pub(super) async fn create(call: JobCall) -> Result<Work, Unfinished> {
    let request: WorkflowCreateRequest = call.request()?;
    check_trigger(&request.trigger_type, &request.trigger_config)?;
    let text = WorkflowText::from(request);
    let checked = check(&text, &call.parts().menu)?;
    are_here(&call, &checked.plan).await?;
    let kept = call.parts().records.put_workflow_text(call.key, call.inputs_hash, &text).await;
    kept.map_err(|_| Unfinished::Stopping)?;
    call.parts().workflows.expect(call.key);
    Ok(status(call.key.call, "active"))
}

/// Job 31: fires a workflow. Its run goes on after the answer.
pub(super) async fn trigger(call: JobCall) -> Result<Work, Unfinished> {
    let key = named(&call)?;
    let fired = call.parts().workflows.trigger(key, call.key.call).await;
    let (number, run) = fired.map_err(|error| {
        tracing::info!(call = %call.key, error = %crate::error_chain(&error), "not fired");
        error.unfinished()
    })?;
    Ok(status(key.call, &format!("run {number} {}", run.name())))
}

/// Job 32: ends a workflow, which the contract did with the call, and its runs.
pub(super) async fn cancel(call: JobCall) -> Result<Work, Unfinished> {
    let key = named(&call)?;
    call.parts().workflows.cancel(key).await;
    Ok(status(key.call, "cancelled"))
}

/// Fires what is due. The SDK's clock calls it, with no call's id, so nothing is answered.
pub(super) async fn tick(Context(desk): Context<Arc<Desk>>) {
    desk.workflows().tick().await;
}

fn named(call: &JobCall) -> Result<CallKey, Failure> {
    let request: WorkflowControlRequest = call.request()?;
    Ok(CallKey { service: call.key.service, call: request.workflow_id })
}

fn status(workflow_id: u64, status: &str) -> Work {
    Work::done(&WorkflowCreateResponse { workflow_id, status: status.to_owned() }, None)
}

/// Whether all sandboxes that a workflow names are its caller's, and here.
async fn are_here(call: &JobCall, plan: &Plan) -> Result<(), Unfinished> {
    for sandbox in plan.sandboxes() {
        match call.parts().fleet.find(sandbox, call.caller).await {
            Ok(found) if found.lives() && found.child.is_none() => {}
            Ok(_) => return Err(no_sandbox(sandbox).into()),
            Err(Unfinished::Failed(_)) => return Err(elsewhere(call, sandbox).await.into()),
            Err(stopping) => return Err(stopping),
        }
    }
    Ok(())
}

/// Why a sandbox is not here: another operator has it, or nobody.
async fn elsewhere(call: &JobCall, sandbox: SandboxId) -> Failure {
    let row = until_answered("sandbox", || call.parts().chain.sandbox(sandbox)).await;
    let is_anothers = sandbox.origin.service == call.key.service
        && row.state == SandboxState::Live
        && row.owner == call.caller
        && row.operator != call.parts().key.address();
    if is_anothers {
        let message = format!("sandbox {sandbox} is at operator {}: that one can fire this workflow", row.operator);
        return Failure::new(FailureCode::SandboxLost, message);
    }
    no_sandbox(sandbox)
}

fn no_sandbox(sandbox: SandboxId) -> Failure {
    Failure::new(FailureCode::BadRequest, format!("workflow_json: sandbox_id: the caller has no sandbox {sandbox}"))
}
