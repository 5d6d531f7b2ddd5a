//! Which services the operator takes part in.
//!
//! First policy: a service is approved when its jobs pay at least the configured price for a create and there is room for
//! one more sandbox; otherwise it is rejected, which frees the customer at once. Requests that do not name this operator
//! are none of its business.

use alloy::primitives::{Address, U256};
use sandbox_fleet::Fleet;
use sandbox_protocol::Job;
use sandbox_sdk::Chain;
use sandbox_sdk::calls;
use tokio::sync::mpsc;

use super::sender::Sender;
use super::until_answered;
use crate::config::OfferConfig;

/// Approves and rejects what arrives.
pub(crate) struct Approvals {
    pub(crate) chain: Chain,
    pub(crate) sender: Sender,
    pub(crate) fleet: Fleet,
    pub(crate) offer: OfferConfig,
    pub(crate) me: Address,
}

impl Approvals {
    /// Serves requests until there can be no more.
    pub(crate) async fn run(self, mut requests: mpsc::Receiver<u64>) {
        while let Some(request) = requests.recv().await {
            self.consider(request).await;
        }
    }

    async fn consider(&self, request: u64) {
        let approve = calls::approve_service(self.chain.deployment(), request);
        if !self.accepts(&approve).await {
            return tracing::debug!(request, "not asked, or too late");
        }
        let (verdict, invocation) = match self.objection().await {
            None => ("approved", approve),
            Some(objection) => {
                tracing::info!(request, objection, "rejecting a service");
                ("rejected", calls::reject_service(self.chain.deployment(), request))
            }
        };
        match self.sender.send(invocation).await {
            Ok(Ok(mined)) => tracing::info!(request, verdict, transaction = %mined.transaction, "service request"),
            Ok(Err(error)) => {
                tracing::warn!(request, error = %crate::error_chain(&error), "service request not answered")
            }
            Err(stopped) => tracing::debug!(%stopped, "service request not answered"),
        }
    }

    /// Whether the core would take our approval: it knows who was asked, who answered already and what is too late.
    async fn accepts(&self, approve: &calls::Invocation) -> bool {
        use alloy::providers::Provider as _;
        let ask = || async {
            match self.chain.provider().estimate_gas(approve.transaction(self.me)).await {
                Ok(_) => Ok(true),
                Err(error) if error.is_error_resp() => Ok(false),
                Err(error) => Err(error),
            }
        };
        until_answered("approval", ask).await
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
