//! What the chain says of a service as far as quotes depend on it, remembered for a few seconds.
//!
//! Anybody may ask for quotes, so what they cost the node is bounded: answers are kept, also the negative ones.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use alloy::primitives::{Address, U256};
use async_trait::async_trait;
use sandbox_protocol::SandboxId;
use sandbox_sdk::Chain;
use sandbox_sdk::chain::{CustomerError, ReadError, is_active};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::SandboxState;
use tokio::sync::OnceCell;

use crate::limits::{QUOTE_TERMS_AGE_MAX, QUOTE_TERMS_MAX};

/// What quotes are made from. The production one is [`ChainMarket`].
#[async_trait]
pub(super) trait Market: Send + Sync {
    /// The terms of a job in a service; `None` where this operator serves none such.
    async fn terms(&self, service: u64, job: u8) -> Result<Option<Terms>, ReadError>;
    /// Who holds a sandbox.
    async fn holding(&self, sandbox: SandboxId) -> Result<Holding, ReadError>;
}

/// A job in a service that this operator serves in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Terms {
    /// What the service is paid in; zero is the chain's coin.
    pub(super) asset: Address,
    /// The job's rate in it, by the price table.
    pub(super) rate: U256,
    /// This operator's index among those of the service.
    pub(super) place: u32,
    /// Who owns the service.
    pub(super) owner: Address,
    /// The service's demand for confidential hardware.
    pub(super) confidentiality: u8,
    /// Last second of the service; `None`: it has no end.
    pub(super) ends_at: Option<u64>,
    /// Mean time between blocks.
    pub(super) block_time_ms: u64,
    /// Second of the newest block, which clocks may be behind.
    pub(super) chain_time: u64,
}

/// A sandbox as far as it matters who may have something done in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) operator: Address,
    pub(super) owner: Address,
    pub(super) state: SandboxState,
}

/// The chain, asked as seldom as will do.
pub(super) struct ChainMarket {
    chain: Chain,
    me: Address,
    /// Only this service, where one is named.
    only: Option<u64>,
    block_time_ms: OnceCell<u64>,
    known: Mutex<HashMap<(u64, u8), Remembered>>,
}

/// What was found at some instant; nothing is remembered as well.
struct Remembered {
    at: Instant,
    terms: Option<Terms>,
}

impl ChainMarket {
    pub(super) fn new(chain: Chain, me: Address, only: Option<u64>) -> Self {
        Self { chain, me, only, block_time_ms: OnceCell::new(), known: Mutex::default() }
    }

    fn remembered(&self, service: u64, job: u8) -> Option<Option<Terms>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.get(&(service, job))?;
        (found.at.elapsed() < QUOTE_TERMS_AGE_MAX).then_some(found.terms)
    }

    fn remember(&self, service: u64, job: u8, terms: Option<Terms>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= QUOTE_TERMS_MAX {
            known.clear();
        }
        known.insert((service, job), Remembered { at: Instant::now(), terms });
    }

    async fn ask(&self, service: u64, job: u8) -> Result<Option<Terms>, ReadError> {
        if self.only.is_some_and(|only| only != service) {
            return Ok(None);
        }
        let found = match self.chain.quotable_service(service).await {
            Ok(found) => found,
            Err(CustomerError::Read(error)) => return Err(error),
            Err(not_ours) => {
                tracing::debug!(service, %not_ours, "not quoted for");
                return Ok(None);
            }
        };
        let ends_at = (found.ttl != 0).then(|| found.createdAt.saturating_add(found.ttl));
        let chain_time = self.chain.time().await?;
        let operators = self.chain.operators(service).await?;
        let place = operators.iter().position(|operator| *operator == self.me);
        let lives = is_active(&found) && ends_at.is_none_or(|end| chain_time <= end);
        let Some(place) = place.filter(|_| lives) else { return Ok(None) };
        let cost = self.chain.call_cost(service, job).await?;
        let block_time_ms = *self.block_time_ms.get_or_try_init(|| self.chain.mean_block_time_ms()).await?;
        Ok(Some(Terms {
            asset: cost.asset,
            rate: cost.amount,
            place: u32::try_from(place).unwrap_or(u32::MAX),
            owner: found.owner,
            confidentiality: found.confidentiality,
            ends_at,
            block_time_ms,
            chain_time,
        }))
    }
}

#[async_trait]
impl Market for ChainMarket {
    async fn terms(&self, service: u64, job: u8) -> Result<Option<Terms>, ReadError> {
        if let Some(terms) = self.remembered(service, job) {
            return Ok(terms);
        }
        let terms = self.ask(service, job).await?;
        self.remember(service, job, terms);
        Ok(terms)
    }

    async fn holding(&self, sandbox: SandboxId) -> Result<Holding, ReadError> {
        let row = self.chain.sandbox(sandbox).await?;
        Ok(Holding { operator: row.operator, owner: row.owner, state: row.state })
    }
}

impl Terms {
    /// Whether a sandbox that lives so many blocks would outlive the service, by the contract's own reckoning.
    pub(super) fn outlived_by(&self, blocks: u64) -> bool {
        let life_ms = u128::from(blocks) * u128::from(self.block_time_ms);
        self.ends_at.is_some_and(|end| u128::from(self.now()) * 1_000 + life_ms > u128::from(end) * 1_000)
    }

    /// The present second: this host's, or the chain's where that is ahead.
    pub(super) fn now(&self) -> u64 {
        let here = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        here.max(self.chain_time)
    }
}
