//! Which services the operator takes part in.
//!
//! First policy: a service is approved when its jobs pay at least the configured price for a create and there is room for
//! one more sandbox; otherwise it is rejected, which frees the customer at once. Requests that do not name this operator
//! are none of its business. This reads the chain by itself, so that no flood of requests can hold up jobs.

use std::collections::BTreeMap;

use alloy::primitives::{Address, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::Filter;
use alloy::sol_types::SolEvent;
use sandbox_fleet::Fleet;
use sandbox_protocol::Job;
use sandbox_sdk::Chain;
use sandbox_sdk::calls;
use sandbox_sdk::contracts::ITangleCore::ServiceRequested;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::sender::Sender;
use super::until_answered;
use crate::config::OfferConfig;
use crate::limits::{
    LOG_RANGE_BLOCKS_MAX, REQUEST_AGE_BLOCKS_MAX, REQUEST_TRIES_MAX, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN,
};

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
        let mut open = BTreeMap::new();
        let mut next = head.borrow().saturating_sub(REQUEST_AGE_BLOCKS_MAX);
        let serving = async {
            loop {
                let height = *head.borrow_and_update();
                while next <= height {
                    let (found, behind) = self.requests(next, height.min(next + LOG_RANGE_BLOCKS_MAX - 1)).await;
                    open.extend(found.into_iter().map(|request| (request, 0)));
                    next = behind;
                }
                for (request, tries) in std::mem::take(&mut open) {
                    if tries < REQUEST_TRIES_MAX && !self.consider(request).await {
                        open.insert(request, tries + 1);
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

    /// Requests from `from` on, as far as the node serves them up to `to`; and the block behind.
    async fn requests(&self, from: u64, mut to: u64) -> (Vec<u64>, u64) {
        let deployment = self.chain.deployment();
        let filter = Filter::new()
            .address(deployment.core)
            .event_signature(ServiceRequested::SIGNATURE_HASH)
            .topic2(U256::from(deployment.blueprint_id))
            .from_block(from);
        loop {
            match self.chain.provider().get_logs(&filter.clone().to_block(to)).await {
                Ok(logs) => {
                    let found = logs.iter().filter_map(|log| log.log_decode::<ServiceRequested>().ok());
                    return (found.map(|log| log.inner.requestId).collect(), to + 1);
                }
                Err(error) => {
                    tracing::warn!(from, to, error = %crate::error_chain(&error), "service requests not read; trying again");
                    to = from + (to - from) / 2;
                    tokio::time::sleep(RETRY_PAUSE_MIN).await;
                }
            }
        }
    }

    /// Whether the request has its answer from us. One that the core would not let us approve is tried again for a while:
    /// it may not be ours to approve, or the node that said so may be behind.
    async fn consider(&self, request: u64) -> bool {
        let approve = calls::approve_service(self.chain.deployment(), request);
        if let Err(error) = self.chain.provider().estimate_gas(approve.transaction(self.me)).await {
            tracing::debug!(request, error = %crate::error_chain(&error), "not ours to approve, or not yet");
            return false;
        }
        let Ok(taken) = self.fleet.count().await else { return false };
        let (verdict, invocation) = match self.objection(taken).await {
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

    async fn objection(&self, taken: usize) -> Option<&'static str> {
        let asset = until_answered("settlement asset", || self.chain.settlement_asset()).await;
        if asset.is_zero() {
            let price: U256 = until_answered("price", || self.chain.price(Job::SandboxCreate.id())).await;
            if price < self.offer.create_price_min {
                return Some("the price of a create is below the operator's");
            }
        } else if !self.offer.token_prices_per_hour.contains_key(&asset) {
            return Some("the blueprint is paid in a token that the operator has no price in");
        }
        (taken >= self.offer.capacity.sandboxes as usize).then_some("there is no room for another sandbox")
    }
}
