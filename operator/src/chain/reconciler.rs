//! Holds what the chain says of sandboxes against what is here, now and then and at every start.
//!
//! Events tell of ends too, but an event can fall into a gap: between two writes, into a crash. What the chain says can be
//! asked again. It is acted on only where it positively says that a sandbox's time is over; and where a sandbox ended
//! without a receipt (it expired, or was lost), its slot is reaped, or the operator would count as full for ever.

use std::collections::HashSet;

use alloy::primitives::Address;
use sandbox_fleet::Fleet;
use sandbox_fleet::sandbox::{EndReason, Sandbox};
use sandbox_protocol::{CallKey, SandboxId};
use sandbox_sdk::Chain;
use sandbox_sdk::calls;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::SandboxState;
use tokio_util::sync::CancellationToken;

use super::sender::Sender;
use crate::limits::RECONCILE_PAUSE;
use crate::records::{CallRecord, Records, RecordsError, RunKey};

/// The task's parts.
pub(crate) struct Reconciler {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) fleet: Fleet,
    pub(crate) sender: Sender,
    pub(crate) me: Address,
}

impl Reconciler {
    /// Compares until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut settled = HashSet::new();
        let comparing = async {
            loop {
                let sandboxes = self.sandboxes();
                // What is forgotten here needs no remembering either.
                let known: HashSet<SandboxId> = sandboxes.iter().map(|sandbox| sandbox.id).collect();
                settled.retain(|id| known.contains(id));
                for sandbox in sandboxes {
                    if !settled.contains(&sandbox.id) && self.compare(&sandbox).await {
                        settled.insert(sandbox.id);
                    }
                }
                tokio::time::sleep(RECONCILE_PAUSE).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = comparing => {}
        }
    }

    fn sandboxes(&self) -> Vec<Sandbox> {
        let mut sandboxes = self.records.sandboxes().unwrap_or_else(|error| {
            tracing::error!(error = %crate::error_chain(&error), "cannot read the sandboxes");
            Vec::new()
        });
        // Those that live first: of the others there are ever more.
        sandboxes.sort_by_key(|sandbox| sandbox.phase.is_final());
        sandboxes
    }

    /// Whether both sides agree that the sandbox is over, so that it need not be looked at again.
    async fn compare(&self, sandbox: &Sandbox) -> bool {
        let id = sandbox.id;
        if sandbox.child.is_some() {
            return self.compare_child(sandbox).await;
        }
        let over = match self.chain.sandbox(id).await {
            // Its create was given to another operator: what was made of it here is nobody's.
            Ok(row) if row.state != SandboxState::Unknown && row.operator != self.me => Some(EndReason::Abandoned),
            Ok(row) => end_of(row.state),
            Err(error) => {
                tracing::debug!(sandbox = %id, error = %crate::error_chain(&error), "comparing waits for the chain");
                return false;
            }
        };
        match (over, sandbox.phase.is_final()) {
            // Its block is kept by the source, after the calls that came before it.
            (Some(EndReason::Expired), false) if sandbox.expires_at_block.is_some() => false,
            (Some(reason), false) => {
                tracing::info!(sandbox = %id, ?reason, "over by what the chain says");
                self.fleet.end(id, reason).await;
                false
            }
            (Some(EndReason::Expired), true) => self.reap(id).await,
            (Some(_), true) => true,
            (None, _) => false,
        }
    }

    /// No row on chain stands for a child: it is over when the run of a workflow that it was made for is, or its parent call, or
    /// when these are in no record any more.
    async fn compare_child(&self, sandbox: &Sandbox) -> bool {
        let is_over = match RunKey::of_child(sandbox) {
            Some(run) => self.records.is_open_run(run).map(|is_open| !is_open),
            None => self.is_call_over(sandbox.id.origin),
        };
        let is_over = match is_over {
            Ok(is_over) => is_over,
            Err(error) => {
                tracing::error!(sandbox = %sandbox.id, error = %crate::error_chain(&error), "its parent cannot be read");
                return false;
            }
        };
        if is_over && !sandbox.phase.is_final() {
            self.fleet.end(sandbox.id, EndReason::ParentEnded).await;
        }
        sandbox.phase.is_final()
    }

    /// Whether nothing goes on in the name of a call. One that created a workflow has runs after its own end.
    fn is_call_over(&self, key: CallKey) -> Result<bool, RecordsError> {
        let is_over = self.records.call(key)?.as_ref().is_none_or(CallRecord::is_over);
        Ok(is_over && !self.records.has_open_runs(key)?)
    }

    async fn reap(&self, id: SandboxId) -> bool {
        match self.sender.send(calls::reap(self.chain.deployment(), id.origin)).await {
            Ok(Ok(mined)) => {
                tracing::info!(sandbox = %id, transaction = %mined.transaction, "reaped");
                return true;
            }
            Ok(Err(error)) => tracing::warn!(sandbox = %id, error = %crate::error_chain(&error), "not reaped"),
            Err(stopped) => tracing::debug!(sandbox = %id, %stopped, "not reaped"),
        }
        false
    }
}

/// Why a sandbox in this state is over; `None` where it is not, or where the chain says nothing of it.
const fn end_of(state: SandboxState) -> Option<EndReason> {
    match state {
        SandboxState::Failed => Some(EndReason::Abandoned),
        SandboxState::Deleted => Some(EndReason::Deleted),
        SandboxState::Expired => Some(EndReason::Expired),
        // This operator has left the service: the chain counts nothing of it as standing any more.
        SandboxState::Lost => Some(EndReason::ServiceEnded),
        SandboxState::Unknown | SandboxState::Requested | SandboxState::Live | SandboxState::__Invalid => None,
    }
}
