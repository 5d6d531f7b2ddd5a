//! Jobs 0 to 4: a sandbox begins, rests, goes on, ends, and is kept elsewhere.

use alloy::primitives::U256;
use alloy::sol_types::SolValue;
use sandbox_fleet::Unfinished;
use sandbox_fleet::request::{SnapshotUri, SnapshotWish, sandbox_spec};
use sandbox_fleet::sandbox::{EndReason, Phase, Sandbox};
use sandbox_protocol::abi::{
    ResumeRequest, SandboxCreateRequest, SandboxCreateResponse, SandboxIdRequest, SandboxSnapshotRequest,
    SandboxSnapshotResponse, SandboxStatusResponse,
};
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::SandboxState;

use super::provision::Order;
use super::{JobCall, Work};
use crate::chain::until_answered;
use crate::limits::{DELETE_TIMEOUT, RESUME_TIMEOUT, SNAPSHOT_TIMEOUT, STOP_TIMEOUT};
use crate::ssh::SshOffer;

/// Job 0: provisions a sandbox.
pub(super) async fn create(call: JobCall) -> Result<Work, Unfinished> {
    let request: SandboxCreateRequest = call.request()?;
    let spec = sandbox_spec(&request, &call.parts().menu)?;
    let id = SandboxId { origin: call.key, slot: 0 };
    call.is_of(id);
    let order = Order::new(&call, (&request, spec), id).await?;
    let created = order.make(&call.parts().fleet, id).await?;
    let ssh = call.parts().ssh.as_ref().filter(|_| request.ssh_enabled);
    let response = SandboxCreateResponse {
        sandbox_id: id.to_string(),
        stream_endpoint: String::new(),
        sidecar_endpoint: call.parts().endpoint(id),
        ssh_host: ssh.map(|ssh| ssh.host().to_owned()).unwrap_or_default(),
        ssh_port: ssh.map(SshOffer::port).unwrap_or_default(),
        ssh_user: ssh.map(|_| id.to_string()).unwrap_or_default(),
        expires_at_block: created.expires_at_block.unwrap_or_default(),
    };
    Ok(Work { detail: U256::ONE, ..Work::done(&response, created.phase.instance().cloned()) })
}

/// Job 1: stops a sandbox; what is in it stays.
pub(super) async fn stop(call: JobCall) -> Result<Work, Unfinished> {
    let request: SandboxIdRequest = call.request()?;
    let id = named(&call, &request.sandbox_id)?;
    let stopped = tokio::time::timeout(STOP_TIMEOUT, call.parts().fleet.stop(id, call.caller)).await;
    Ok(status(&stopped.map_err(|_| late("the sandbox is not stopped yet"))??))
}

/// Job 2: starts a stopped sandbox again, with what a snapshot holds where one is named.
pub(super) async fn resume(call: JobCall) -> Result<Work, Unfinished> {
    let request: ResumeRequest = call.request()?;
    let id = named(&call, &request.sandbox_id)?;
    let from = SnapshotUri::parse("snapshot_uri", &request.snapshot_uri)?;
    let resumed = tokio::time::timeout(RESUME_TIMEOUT, call.parts().fleet.resume(id, call.caller, from)).await;
    Ok(status(&resumed.map_err(|_| late("the sandbox does not run yet"))??))
}

/// Job 3: deletes a sandbox and everything in it.
pub(super) async fn delete(call: JobCall) -> Result<Work, Unfinished> {
    let request: SandboxIdRequest = call.request()?;
    let id = named(&call, &request.sandbox_id)?;
    let fleet = &call.parts().fleet;
    let before = match fleet.find(id, call.caller).await {
        Err(Unfinished::Failed(failure)) if failure.code == FailureCode::SandboxLost => {
            return ended_long_ago(&call, id).await.ok_or(Unfinished::Failed(failure));
        }
        found => found?,
    };
    let deleted = tokio::time::timeout(DELETE_TIMEOUT, fleet.delete(id, call.caller)).await;
    let deleted = deleted.map_err(|_| late("the sandbox is not removed yet"))??;
    Ok(Work { instance: before.phase.instance().cloned(), ..status(&deleted) })
}

/// The answer for a sandbox whose time is over by what the chain says, and whose record is removed since: nothing is left of
/// it. That the caller may ask for it the contract has seen. Records that came from a copy may never have known it.
async fn ended_long_ago(call: &JobCall, id: SandboxId) -> Option<Work> {
    let row = until_answered("sandbox", || call.parts().chain.sandbox(id)).await;
    let is_over = matches!(row.state, SandboxState::Expired | SandboxState::Deleted);
    let is_whole = call.parts().records.are_restored().is_ok_and(|restored| !restored);
    let is_known = call.parts().fleet.knows(id).await.unwrap_or(true);
    if !is_over || !is_whole || is_known || row.operator != call.parts().key.address() {
        return None;
    }
    let state = Phase::Gone(EndReason::Deleted).name().to_owned();
    let expires_at_block = if row.expiryBlock == u64::MAX { 0 } else { row.expiryBlock };
    Some(Work::done(&SandboxStatusResponse { sandbox_id: id.to_string(), state, expires_at_block }, None))
}

/// Job 4: writes what is in a running sandbox to a place of the customer's.
pub(super) async fn snapshot(call: JobCall) -> Result<Work, Unfinished> {
    let request: SandboxSnapshotRequest = call.request()?;
    let id = named(&call, &request.sidecar_endpoint)?;
    let wish = SnapshotWish::parse(&request.destination, request.include_workspace, request.include_state)?;
    let visit = call.parts().fleet.visit(id, call.caller).await?;
    let order = wish.of(&visit.sandbox.spec)?;
    let taking = call.parts().snapshots.take(&visit.sandbox, &visit.instance, &order);
    let taken = tokio::time::timeout(SNAPSHOT_TIMEOUT, taking).await;
    let taken = taken.map_err(|_| late("the snapshot is not written in time"))?.map_err(|error| {
        tracing::warn!(call = %call.key, error = %crate::error_chain(&error), "no snapshot");
        error.failure
    })?;
    let response = SandboxSnapshotResponse {
        success: true,
        snapshot_uri: taken.uri.as_str().to_owned(),
        size_bytes: taken.size_bytes,
    };
    Ok(Work { response: response.abi_encode(), ..Work::done(&(), Some(visit.instance)) })
}

pub(super) fn named(call: &JobCall, text: &str) -> Result<SandboxId, Failure> {
    let id = SandboxId::from_endpoint(text).map_err(|error| bad(error.to_string()))?;
    call.is_of(id);
    Ok(id)
}

fn bad(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::BadRequest, message)
}

fn late(message: &str) -> Failure {
    Failure::new(FailureCode::Engine, message)
}

pub(super) fn status(sandbox: &Sandbox) -> Work {
    let response = SandboxStatusResponse {
        sandbox_id: sandbox.id.to_string(),
        state: sandbox.phase.name().to_owned(),
        expires_at_block: sandbox.expires_at_block.unwrap_or_default(),
    };
    Work::done(&response, sandbox.phase.instance().cloned())
}
