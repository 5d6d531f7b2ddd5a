//! Batches and workflows as job inputs, encoded as they are given: nothing is checked before the operator checks it.

use alloy::primitives::Address;
use alloy::sol_types::SolValue;
use sandbox_protocol::abi::{
    BatchCollectRequest, BatchCreateRequest, BatchExecRequest, BatchTaskRequest, WorkflowControlRequest,
    WorkflowCreateRequest,
};
use sandbox_protocol::{CallKey, Job, SandboxId};
use sandbox_sdk::requests::JobRequest;

const AGGREGATION: &str = "all";

fn encoded(job: Job, request: &impl SolValue) -> JobRequest {
    JobRequest { job, inputs: request.abi_encode().into() }
}

/// `count` sandboxes with every default at these operators; at whoever has room where none is named.
pub fn batch_create(count: u32, operators: Vec<Address>) -> JobRequest {
    let distribution = "round_robin".to_owned();
    encoded(Job::BatchCreate, &BatchCreateRequest { count, operators, distribution, ..Default::default() })
}

/// A task in each of these sandboxes, side by side.
pub fn batch_task(batch: &str, sandboxes: &[SandboxId], prompt: &str) -> JobRequest {
    let request = BatchTaskRequest {
        batch_id: batch.to_owned(),
        sidecar_endpoints: names(sandboxes),
        prompt: prompt.to_owned(),
        parallel: true,
        aggregation: AGGREGATION.to_owned(),
    };
    encoded(Job::BatchTask, &request)
}

/// A command in each of these sandboxes, side by side.
pub fn batch_exec(batch: &str, sandboxes: &[SandboxId], command: &str) -> JobRequest {
    let request = BatchExecRequest {
        batch_id: batch.to_owned(),
        sidecar_endpoints: names(sandboxes),
        command: command.to_owned(),
        parallel: true,
        aggregation: AGGREGATION.to_owned(),
        ..Default::default()
    };
    encoded(Job::BatchExec, &request)
}

/// What has come of a batch.
pub fn batch_collect(batch: &str) -> JobRequest {
    encoded(Job::BatchCollect, &BatchCollectRequest { batch_id: batch.to_owned() })
}

/// A workflow.
pub fn workflow_create(request: &WorkflowCreateRequest) -> JobRequest {
    encoded(Job::WorkflowCreate, request)
}

/// Fires the workflow that a call created.
pub fn workflow_trigger(workflow: CallKey) -> JobRequest {
    encoded(Job::WorkflowTrigger, &WorkflowControlRequest { workflow_id: workflow.call })
}

/// Ends the workflow that a call created.
pub fn workflow_cancel(workflow: CallKey) -> JobRequest {
    encoded(Job::WorkflowCancel, &WorkflowControlRequest { workflow_id: workflow.call })
}

fn names(sandboxes: &[SandboxId]) -> Vec<String> {
    sandboxes.iter().map(ToString::to_string).collect()
}
