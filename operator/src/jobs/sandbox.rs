//! Jobs 0 and 3: a sandbox begins and ends.

use alloy::primitives::{B256, U256};
use sandbox_fleet::Unfinished;
use sandbox_fleet::request::sandbox_spec;
use sandbox_fleet::sandbox::{EndReason, Phase, Sandbox, SidecarToken};
use sandbox_protocol::abi::{SandboxCreateRequest, SandboxCreateResponse, SandboxIdRequest, SandboxStatusResponse};
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::SandboxState;

use super::{JobCall, Work};
use crate::chain::until_answered;
use crate::limits::{CREATE_TIMEOUT, DELETE_TIMEOUT};

/// Job 0: provisions a sandbox.
pub(super) async fn create(call: JobCall) -> Result<Work, Unfinished> {
    let request: SandboxCreateRequest = call.request()?;
    let spec = sandbox_spec(&request, &call.parts().images)?;
    let id = SandboxId { origin: call.key, slot: 0 };
    let expires_at_block = expiry(&call, id).await;
    let token = SidecarToken::new(B256::from(rand::random::<[u8; 32]>()));
    let sandbox = Sandbox { id, owner: call.caller, spec, expires_at_block, token, phase: Phase::Requested };
    let fleet = &call.parts().fleet;
    let Ok(created) = tokio::time::timeout(CREATE_TIMEOUT, fleet.create(sandbox)).await else {
        fleet.end(id, EndReason::Abandoned).await;
        return Err(Failure::new(FailureCode::Engine, "the sandbox did not start in time").into());
    };
    let endpoint = format!("{}/sandboxes/{id}", call.parts().api_url);
    let created = created?;
    let response = SandboxCreateResponse {
        sandbox_id: id.to_string(),
        stream_endpoint: String::new(),
        sidecar_endpoint: endpoint,
        ssh_host: String::new(),
        ssh_port: 0,
        ssh_user: String::new(),
        expires_at_block: created.expires_at_block.unwrap_or_default(),
    };
    Ok(Work { detail: U256::ONE, ..Work::done(&response, instance(&created)) })
}

/// Job 3: deletes a sandbox and everything in it.
pub(super) async fn delete(call: JobCall) -> Result<Work, Unfinished> {
    let request: SandboxIdRequest = call.request()?;
    let id = SandboxId::from_endpoint(&request.sandbox_id)
        .map_err(|error| Failure::new(FailureCode::BadRequest, error.to_string()))?;
    let fleet = &call.parts().fleet;
    let before = fleet.find(id, call.caller).await?;
    let deleted = tokio::time::timeout(DELETE_TIMEOUT, fleet.delete(id, call.caller)).await;
    let deleted = deleted.map_err(|_| Failure::new(FailureCode::Engine, "the sandbox is not removed yet"))??;
    let response = SandboxStatusResponse {
        sandbox_id: id.to_string(),
        state: deleted.phase.name().to_owned(),
        expires_at_block: deleted.expires_at_block.unwrap_or_default(),
    };
    Ok(Work::done(&response, instance(&before)))
}

/// The expiry block that the contract wrote down, the one word on it. A node that has no row for the sandbox is behind.
async fn expiry(call: &JobCall, id: SandboxId) -> Option<u64> {
    let ask = || async {
        let row = call.parts().chain.sandbox(id).await?;
        if row.state == SandboxState::Unknown { Err(RowError::NotYet) } else { Ok(row.expiryBlock) }
    };
    let expiry = until_answered("sandbox", ask).await;
    (expiry != u64::MAX).then_some(expiry)
}

#[derive(Debug, thiserror::Error)]
enum RowError {
    #[error("the node does not know the sandbox yet")]
    NotYet,
    #[error(transparent)]
    Read(#[from] ReadError),
}

fn instance(sandbox: &Sandbox) -> Option<sandbox_fleet::sandbox::Instance> {
    match &sandbox.phase {
        Phase::Running(instance) => Some(instance.clone()),
        Phase::Requested
        | Phase::Provisioning
        | Phase::Deleting(_)
        | Phase::Gone(_)
        | Phase::Discarding(_)
        | Phase::Failed(_) => None,
    }
}
