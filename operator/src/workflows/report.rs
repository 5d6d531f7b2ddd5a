//! Tells the chain of firings: of each workflow only the last, many in one transaction, and not too often.
//!
//! What the chain is told is for its readers, and for who comes to fire a workflow after this operator: that one leaves alone what was
//! fired before. A firing that was not reported yet is reported by the next life of the process.

use std::collections::BTreeSet;
use std::sync::Arc;

use sandbox_protocol::CallKey;
use sandbox_sdk::calls;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{Firing, WorkflowFired};
use tokio::time::sleep;

use super::Shared;
use crate::limits::WORKFLOW_REPORTED_AT_ONCE_MAX;

impl Shared {
    /// Reports, as often as is set.
    pub(super) async fn report(self: &Arc<Self>) {
        let Some(pause) = self.parts.report_pause else { return };
        loop {
            while self.report_some().await {}
            sleep(pause).await;
            if self.unreported().is_empty() {
                self.unreported.notified().await;
            }
        }
    }

    /// Reports as many as one transaction takes; whether there are more.
    async fn report_some(&self) -> bool {
        let mut waiting = self.unreported();
        let is_more = waiting.len() > WORKFLOW_REPORTED_AT_ONCE_MAX;
        waiting.truncate(WORKFLOW_REPORTED_AT_ONCE_MAX);
        if waiting.is_empty() {
            return false;
        }
        let call = calls::record_firings(self.parts.chain.deployment(), waiting.clone());
        match self.parts.sender.send(call).await {
            Ok(Ok(mined)) => {
                tracing::debug!(firings = waiting.len(), transaction = %mined.transaction, "firings reported");
                let manager = self.parts.chain.deployment().manager;
                let recorded: BTreeSet<(u64, u64)> =
                    mined.events::<WorkflowFired>(manager).map(|fired| (fired.serviceId, fired.workflowId)).collect();
                // The contract leaves out, without a word, what is later than its block: that is reported again.
                let head_s = self.parts.looks.borrow().block.time_s;
                for firing in waiting {
                    if recorded.contains(&(firing.serviceId, firing.workflowId)) || firing.at <= head_s {
                        self.reported(&firing).await;
                    }
                }
                is_more
            }
            Ok(Err(error)) => {
                tracing::warn!(error = %crate::error_chain(&error), "firings are not reported; trying again later");
                false
            }
            Err(_) => false,
        }
    }

    /// Firings that the chain does not know, the oldest first.
    fn unreported(&self) -> Vec<Firing> {
        let table = self.table();
        let waiting = table.iter().filter(|(_, known)| known.standing.fired_s > known.standing.reported_s);
        let mut waiting: Vec<Firing> = waiting
            .map(|(key, known)| Firing {
                serviceId: key.service,
                workflowId: key.call,
                epoch: known.standing.epoch,
                at: known.standing.fired_s,
            })
            .collect();
        waiting.sort_by_key(|firing| firing.at);
        waiting
    }

    async fn reported(&self, firing: &Firing) {
        let key = CallKey { service: firing.serviceId, call: firing.workflowId };
        let turn = self.table().get(key).map(|known| known.turn.clone());
        let Some(turn) = turn else { return };
        // Who fires writes the same record.
        let _turn = turn.lock_owned().await;
        let standing = self.table().get_mut(key).filter(|known| known.standing.epoch == firing.epoch).map(|known| {
            known.standing.reported_s = firing.at;
            known.standing.clone()
        });
        let Some(standing) = standing else { return };
        if let Err(error) = self.parts.records.put_workflow_standing(key, &standing).await {
            // It is reported once more in the next life, and left out by the contract.
            tracing::warn!(error = %crate::error_chain(&error), "a report is not written down");
        }
    }
}
