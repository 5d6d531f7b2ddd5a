//! New sandboxes, of a create or of a batch: what they have in common, and how one is made.

use alloy::primitives::Address;
use sandbox_fleet::keys::{SshKey, SshKeys};
use sandbox_fleet::request::{SandboxSpec, created_with_key};
use sandbox_fleet::sandbox::{EndReason, Phase, Sandbox};
use sandbox_fleet::{Fleet, Unfinished};
use sandbox_protocol::abi::SandboxCreateRequest;
use sandbox_protocol::{Failure, FailureCode, SandboxId};
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::SandboxState;

use super::{DeskParts, JobCall};
use crate::chain::until_answered;
use crate::limits::{CREATE_TIMEOUT, RESUME_TIMEOUT};
use crate::outside::check_rules;

/// Sandboxes as a call asks for them.
#[derive(Debug, Clone)]
pub(super) struct Order {
    pub(super) owner: Address,
    pub(super) spec: SandboxSpec,
    /// Last block of their life; without one they live until their service ends.
    pub(super) expires_at_block: Option<u64>,
    pub(super) ssh_keys: SshKeys,
}

impl DeskParts {
    /// Where customers reach a sandbox.
    pub(super) fn endpoint(&self, id: SandboxId) -> String {
        format!("{}/sandboxes/{id}", self.api_url)
    }
}

impl Order {
    /// What a call asks for, if this operator takes anything new. `first` is one of its sandboxes; they expire together.
    pub(super) async fn new(
        call: &JobCall,
        (request, spec): (&SandboxCreateRequest, SandboxSpec),
        first: SandboxId,
    ) -> Result<Self, Failure> {
        check_rules(&spec.egress)?;
        let owner = call.caller;
        let key = created_with_key(request, &call.parts().menu)?;
        let key = key.map(|key| SshKey { key, expires_at_block: None, admitted_by: owner });
        let ssh_keys = key.map(SshKeys::of).unwrap_or_default();
        // What was begun is finished: what there is of it is here.
        if !call.resumed {
            call.parts().intake.admit()?;
        }
        let expires_at_block = expiry(call, first).await;
        Ok(Self { owner, spec, expires_at_block, ssh_keys })
    }

    /// Has a sandbox made, or finds it, and waits until it runs. Of one that is not made in time nothing stays.
    pub(super) async fn make(&self, fleet: &Fleet, id: SandboxId) -> Result<Sandbox, Unfinished> {
        let Self { owner, spec, expires_at_block, ssh_keys } = self.clone();
        let (warned, child, keys_call, phase) = (false, None, None, Phase::Requested);
        let sandbox = Sandbox { id, owner, spec, expires_at_block, warned, child, ssh_keys, keys_call, phase };
        let bound = if self.spec.snapshot.is_some() { RESUME_TIMEOUT } else { CREATE_TIMEOUT };
        let Ok(created) = tokio::time::timeout(bound, fleet.create(sandbox)).await else {
            fleet.end(id, EndReason::Abandoned).await;
            return Err(Failure::new(FailureCode::Engine, "the sandbox did not start in time").into());
        };
        created
    }
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
