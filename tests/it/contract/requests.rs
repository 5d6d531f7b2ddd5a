//! Inputs of every job, as customers give them.

use alloy::primitives::{Address, Bytes};
use alloy::sol_types::SolValue as _;
use sandbox_protocol::abi::{
    BatchCollectRequest, BatchCreateRequest, BatchExecRequest, BatchTaskRequest, ExecRequest, PromptRequest,
    ResumeRequest, SandboxCreateRequest, SandboxIdRequest, SandboxSnapshotRequest, SshProvisionRequest,
    SshRevokeRequest, TaskRequest, WorkflowControlRequest, WorkflowCreateRequest,
};
use sandbox_protocol::{CallKey, Job, SandboxId};

/// The sandbox in a slot of a call.
pub(crate) const fn slot(origin: CallKey, slot: u8) -> SandboxId {
    SandboxId { origin, slot }
}

pub(crate) fn create() -> SandboxCreateRequest {
    SandboxCreateRequest { cpu_cores: 1, memory_mb: 512, env_json: r#"{"A":"1"}"#.into(), ..Default::default() }
}

pub(crate) fn delete(sandbox: SandboxId) -> SandboxIdRequest {
    SandboxIdRequest { sandbox_id: sandbox.to_string() }
}

pub(crate) fn exec(sandbox: SandboxId) -> ExecRequest {
    ExecRequest { sidecar_endpoint: sandbox.to_string(), command: "true".into(), ..Default::default() }
}

pub(crate) fn batch_create(count: u32, operators: Vec<Address>, distribution: &str) -> BatchCreateRequest {
    BatchCreateRequest { count, template: create(), operators, distribution: distribution.into() }
}

pub(crate) fn batch_exec(sandboxes: &[SandboxId]) -> BatchExecRequest {
    BatchExecRequest {
        batch_id: "batch".into(),
        sidecar_endpoints: sandboxes.iter().map(ToString::to_string).collect(),
        command: "true".into(),
        aggregation: "all".into(),
        ..Default::default()
    }
}

pub(crate) fn collect() -> BatchCollectRequest {
    BatchCollectRequest { batch_id: "batch".into() }
}

/// A workflow whose strings take `body_bytes` in all.
pub(crate) fn workflow(body_bytes: usize) -> WorkflowCreateRequest {
    let (name, trigger_type, trigger_config) = ("nightly".to_owned(), "cron".to_owned(), "0 3 * * *".to_owned());
    let rest = body_bytes.saturating_sub(name.len() + trigger_type.len() + trigger_config.len());
    WorkflowCreateRequest { name, trigger_type, trigger_config, workflow_json: "x".repeat(rest), ..Default::default() }
}

pub(crate) const fn control(workflow: CallKey) -> WorkflowControlRequest {
    WorkflowControlRequest { workflow_id: workflow.call }
}

/// Inputs of a job that works on a sandbox, or on what has no subject.
pub(crate) fn inputs(job: Job, sandbox: SandboxId, workflow: CallKey) -> Bytes {
    let endpoint = format!("https://operator.example/sandboxes/{sandbox}");
    let (id, ssh_public_key) = (sandbox.to_string(), "ssh-ed25519 AAAA".to_owned());
    match job {
        Job::SandboxCreate => create().abi_encode(),
        Job::SandboxStop | Job::SandboxDelete => delete(sandbox).abi_encode(),
        Job::SandboxResume => ResumeRequest { sandbox_id: id, snapshot_uri: String::new() }.abi_encode(),
        Job::SandboxSnapshot => SandboxSnapshotRequest {
            sidecar_endpoint: endpoint,
            destination: "https://store.example/put".into(),
            include_workspace: true,
            include_state: false,
        }
        .abi_encode(),
        Job::Exec => exec(sandbox).abi_encode(),
        Job::Prompt => {
            PromptRequest { sidecar_endpoint: endpoint, prompt: "hello".into(), ..Default::default() }.abi_encode()
        }
        Job::Task => {
            TaskRequest { sidecar_endpoint: endpoint, prompt: "build it".into(), ..Default::default() }.abi_encode()
        }
        Job::BatchCreate => batch_create(3, Vec::new(), "round_robin").abi_encode(),
        Job::BatchTask => BatchTaskRequest {
            batch_id: "batch".into(),
            sidecar_endpoints: vec![endpoint],
            prompt: "build it".into(),
            parallel: true,
            aggregation: "first_success".into(),
        }
        .abi_encode(),
        Job::BatchExec => batch_exec(&[sandbox]).abi_encode(),
        Job::BatchCollect => collect().abi_encode(),
        Job::WorkflowCreate => self::workflow(100).abi_encode(),
        Job::WorkflowTrigger | Job::WorkflowCancel => control(workflow).abi_encode(),
        Job::SshProvision => SshProvisionRequest { sandbox_id: id, ssh_public_key, ttl_blocks: 100 }.abi_encode(),
        Job::SshRevoke => SshRevokeRequest { sandbox_id: id, ssh_public_key }.abi_encode(),
    }
    .into()
}
