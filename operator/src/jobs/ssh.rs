//! Jobs 40 and 41: an SSH key opens a sandbox, and opens it no more.
//!
//! Both may be repeated: what is written is the same each time, since a key's end is counted from the block in which its
//! call was begun.

use sandbox_fleet::Unfinished;
use sandbox_fleet::keys::{KeyChange, KeyOrder, SshKey};
use sandbox_fleet::request::ssh_key;
use sandbox_fleet::sandbox::Sandbox;
use sandbox_protocol::abi::{SshProvisionRequest, SshProvisionResponse, SshRevokeRequest};
use sandbox_protocol::{Failure, FailureCode, SandboxId};

use super::sandbox::{named, status};
use super::{JobCall, Work};
use crate::ssh::SshOffer;

/// Job 40: admits a key; one that opens the sandbox already gets a new end.
pub(super) async fn provision(call: JobCall) -> Result<Work, Unfinished> {
    let request: SshProvisionRequest = call.request()?;
    let offer = call.parts().ssh.as_ref().ok_or_else(not_offered)?;
    let id = named(&call, &request.sandbox_id)?;
    let key = ssh_key(&request.ssh_public_key)?;
    let expires_at_block = (request.ttl_blocks != 0).then(|| call.started_block.saturating_add(request.ttl_blocks));
    let admitted =
        changed(&call, id, KeyChange::Admit(SshKey { key, expires_at_block, admitted_by: call.caller })).await?;
    // A key ends with its sandbox, whichever comes first.
    let ends = expires_at_block.into_iter().chain(admitted.expires_at_block).min();
    let response = SshProvisionResponse {
        ssh_host: offer.host().to_owned(),
        ssh_port: offer.port(),
        ssh_user: id.to_string(),
        host_key: host_key(offer)?,
        expires_at_block: ends.unwrap_or_default(),
    };
    Ok(Work::done(&response, admitted.phase.instance().cloned()))
}

/// Job 41: revokes a key, also where there is no gateway any more. One that does not open the sandbox is revoked already.
pub(super) async fn revoke(call: JobCall) -> Result<Work, Unfinished> {
    let request: SshRevokeRequest = call.request()?;
    let id = named(&call, &request.sandbox_id)?;
    let key = ssh_key(&request.ssh_public_key)?;
    Ok(status(&changed(&call, id, KeyChange::Revoke(key)).await?))
}

/// The sandbox with its keys changed, which each call does once.
async fn changed(call: &JobCall, id: SandboxId, change: KeyChange) -> Result<Sandbox, Unfinished> {
    let order = KeyOrder { change, call: Some(call.key) };
    Ok(call.parts().fleet.change_keys(id, call.caller, order).await?.sandbox)
}

/// The host's keys, a line each.
fn host_key(offer: &SshOffer) -> Result<String, Failure> {
    let keys = offer.host_keys().map_err(|error| {
        tracing::error!(error = %crate::error_chain(&error), "no SSH host key");
        Failure::new(FailureCode::Internal, "the operator cannot read its SSH host keys")
    })?;
    Ok(keys.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn not_offered() -> Failure {
    Failure::new(FailureCode::Unsupported, "this operator lets nobody in over SSH")
}
