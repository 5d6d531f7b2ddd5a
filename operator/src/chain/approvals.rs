//! Which services the operator takes part in.
//!
//! First policy: a service is approved when its jobs pay at least the configured price for a create and there is room for
//! one more sandbox; otherwise it is rejected, which frees the customer at once. Requests that do not name this operator
//! are none of its business. This reads the chain by itself, so that no flood of requests can hold up jobs.

use std::collections::BTreeSet;

use alloy::primitives::{Address, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::Filter;
use alloy::sol_types::SolEvent;
use sandbox_fleet::Fleet;
use sandbox_protocol::Job;
use sandbox_sdk::Chain;
use sandbox_sdk::calls;
use sandbox_sdk::contracts::ITangleCore::ServiceRequested;
use sandbox_sdk::reverts::Refusal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::sender::Sender;
use super::until_answered;
use crate::config::OfferConfig;
use crate::limits::{LOG_RANGE_BLOCKS_MAX, REQUEST_AGE_BLOCKS_MAX, RETRY_PAUSE_MAX};

/// Approves and rejects what arrives.
pub(crate) struct Approvals {
    pub(crate) chain: Chain,
    pub(crate) sender: Sender,
    pub(crate) fleet: Fleet,
    pub(crate) offer: OfferConfig,
    pub(crate) me: Address,
}

impl Approvals {
    /// Serves requests until `stop`: first those of the last while, since a former life may have left some open.
    pub(crate) async fn run(self, mut head: watch::Receiver<u64>, stop: CancellationToken) {
        let mut open = BTreeSet::new();
        let mut next = head.borrow().saturating_sub(REQUEST_AGE_BLOCKS_MAX);
        let serving = async {
            loop {
                let height = *head.borrow_and_update();
                while next <= height {
                    let to = height.min(next + LOG_RANGE_BLOCKS_MAX - 1);
                    open.extend(self.requests(next, to).await);
                    next = to + 1;
                }
                for request in open.clone() {
                    if self.consider(request).await {
                        open.remove(&request);
                    }
                }
                // Whatever is still open is tried again, also when no block comes.
                if let Ok(Err(_)) = tokio::time::timeout(RETRY_PAUSE_MAX, head.changed()).await {
                    return;
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = serving => {}
        }
    }

    async fn requests(&self, from: u64, to: u64) -> Vec<u64> {
        let deployment = self.chain.deployment();
        let filter = Filter::new()
            .address(deployment.core)
            .event_signature(ServiceRequested::SIGNATURE_HASH)
            .topic2(U256::from(deployment.blueprint_id))
            .from_block(from)
            .to_block(to);
        let logs = until_answered("service requests", || self.chain.provider().get_logs(&filter)).await;
        logs.iter().filter_map(|log| log.log_decode::<ServiceRequested>().ok()).map(|log| log.inner.requestId).collect()
    }

    /// Whether the request has its answer, or needs none of ours.
    async fn consider(&self, request: u64) -> bool {
        let approve = calls::approve_service(self.chain.deployment(), request);
        match self.accepts(&approve).await {
            Some(true) => {}
            Some(false) => return true,
            None => return false,
        }
        let (verdict, invocation) = match self.objection().await {
            None => ("approved", approve),
            Some(objection) => {
                tracing::info!(request, objection, "rejecting a service");
                ("rejected", calls::reject_service(self.chain.deployment(), request))
            }
        };
        match self.sender.send(invocation).await {
            Ok(Ok(mined)) => {
                tracing::info!(request, verdict, transaction = %mined.transaction, "service request");
                return true;
            }
            Ok(Err(error)) => {
                tracing::warn!(request, error = %crate::error_chain(&error), "service request not answered yet");
            }
            Err(stopped) => tracing::debug!(%stopped, "service request not answered"),
        }
        false
    }

    /// Whether the core would take our approval: it knows who was asked, who answered already and what is too late.
    /// `None` where it was not the core that spoke.
    async fn accepts(&self, approve: &calls::Invocation) -> Option<bool> {
        match self.chain.provider().estimate_gas(approve.transaction(self.me)).await {
            Ok(_) => Some(true),
            Err(error) if Refusal::of(&error).is_some() => Some(false),
            Err(error) => {
                tracing::warn!(error = %crate::error_chain(&error), "an approval cannot be tried; trying again");
                None
            }
        }
    }

    async fn objection(&self) -> Option<&'static str> {
        let price: U256 = until_answered("price", || self.chain.price(Job::SandboxCreate.id())).await;
        if price < self.offer.create_price_min {
            return Some("the price of a create is below the operator's");
        }
        match self.fleet.count().await {
            Ok(taken) if taken < self.offer.capacity.sandboxes as usize => None,
            Ok(_) | Err(_) => Some("there is no room for another sandbox"),
        }
    }
}
