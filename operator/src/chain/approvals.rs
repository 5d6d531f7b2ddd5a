//! Service requests that name this operator: found, and answered by the policy where it says so.
//!
//! A rejection frees the customer at once. Requests that do not name this operator are none of its business. This reads the
//! chain by itself, so that no flood of requests can hold up jobs.

use std::collections::BTreeMap;

use alloy::primitives::{Address, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::Filter;
use alloy::sol_types::SolEvent;
use alloy::transports::TransportError;
use sandbox_fleet::Fleet;
use sandbox_protocol::Job;
use sandbox_sdk::Chain;
use sandbox_sdk::calls;
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::ITangleCore::ServiceRequested;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::policy::{Approve, Facts, Objection, Payment, Policy};
use super::sender::Sender;
use super::until_answered;
use crate::config::OfferConfig;
use crate::intake::Intake;
use crate::limits::{
    LOG_RANGE_BLOCKS_MAX, REQUEST_AGE_BLOCKS_MAX, REQUEST_TRIES_MAX, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN,
};

/// Approves and rejects what arrives.
pub(crate) struct Approvals {
    pub(crate) chain: Chain,
    pub(crate) sender: Sender,
    pub(crate) fleet: Fleet,
    pub(crate) offer: OfferConfig,
    pub(crate) policy: Policy,
    pub(crate) intake: Intake,
    pub(crate) me: Address,
}

/// A request that waits for this operator's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenRequest {
    pub(crate) id: u64,
    pub(crate) requester: Address,
    /// Life of the service in seconds; zero is without end.
    pub(crate) ttl_s: u64,
}

/// The service requests of the blueprint in these blocks.
pub(crate) async fn requests(chain: &Chain, from: u64, to: u64) -> Result<Vec<u64>, TransportError> {
    let deployment = chain.deployment();
    let filter = Filter::new()
        .address(deployment.core)
        .event_signature(ServiceRequested::SIGNATURE_HASH)
        .topic2(U256::from(deployment.blueprint_id))
        .from_block(from)
        .to_block(to);
    let logs = chain.provider().get_logs(&filter).await?;
    let found = logs.iter().filter_map(|log| log.log_decode::<ServiceRequested>().ok());
    Ok(found.map(|log| log.inner.requestId).collect())
}

/// The request, if the core would take `me`'s approval of it now.
pub(crate) async fn open_request(chain: &Chain, me: Address, id: u64) -> Result<Option<OpenRequest>, ReadError> {
    let approve = calls::approve_service(chain.deployment(), id);
    if let Err(error) = chain.provider().estimate_gas(approve.transaction(me)).await {
        tracing::debug!(request = id, error = %crate::error_chain(&error), "not ours to approve, or not yet");
        return Ok(None);
    }
    let found = chain.request(id).await?;
    Ok(found.map(|request| OpenRequest { id, requester: request.requester, ttl_s: request.ttl }))
}

/// What a create of the blueprint pays an operator with this offer.
pub(crate) async fn payment(chain: &Chain, offer: &OfferConfig) -> Result<Payment, ReadError> {
    let asset = chain.settlement_asset().await?;
    if asset.is_zero() {
        return Ok(Payment::Coin(chain.price(Job::SandboxCreate.id()).await?));
    }
    Ok(Payment::Token { priced: offer.token_prices_per_hour.contains_key(&asset) })
}

impl Approvals {
    /// Serves requests until `stop`: first those of the last while, since a former life may have left some open.
    pub(crate) async fn run(self, mut head: watch::Receiver<u64>, stop: CancellationToken) {
        if self.policy.approve == Approve::Manual {
            tracing::info!("service requests wait for `operator approve` and `operator reject`");
            return;
        }
        let mut open = BTreeMap::new();
        let mut next = head.borrow().saturating_sub(REQUEST_AGE_BLOCKS_MAX);
        let serving = async {
            loop {
                let height = *head.borrow_and_update();
                while next <= height {
                    let (found, behind) = self.read(next, height.min(next + LOG_RANGE_BLOCKS_MAX - 1)).await;
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
    async fn read(&self, from: u64, mut to: u64) -> (Vec<u64>, u64) {
        loop {
            match requests(&self.chain, from, to).await {
                Ok(found) => return (found, to + 1),
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
    async fn consider(&self, id: u64) -> bool {
        let Ok(Some(request)) = open_request(&self.chain, self.me, id).await else { return false };
        let Ok(taken) = self.fleet.count().await else { return false };
        let deployment = self.chain.deployment();
        let (verdict, invocation) = match self.objection(request, taken).await {
            None => ("approved", calls::approve_service(deployment, id)),
            Some(objection) => {
                tracing::info!(request = id, requester = %request.requester, %objection, "rejecting a service");
                ("rejected", calls::reject_service(deployment, id))
            }
        };
        match self.sender.send(invocation).await {
            Ok(Ok(mined)) => {
                tracing::info!(request = id, verdict, transaction = %mined.transaction, "service request");
                return true;
            }
            Ok(Err(error)) => {
                tracing::warn!(request = id, error = %crate::error_chain(&error), "service request not answered yet");
            }
            Err(stopped) => tracing::debug!(%stopped, "service request not answered"),
        }
        false
    }

    async fn objection(&self, request: OpenRequest, taken: usize) -> Option<Objection> {
        self.policy.objection(&Facts {
            requester: request.requester,
            ttl_s: request.ttl_s,
            payment: until_answered("payment", || payment(&self.chain, &self.offer)).await,
            room: (self.offer.capacity.sandboxes as usize).saturating_sub(taken),
            draining: self.intake.is_closed(),
        })
    }
}
