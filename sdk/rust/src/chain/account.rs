//! A key that sends: simulate, sign, broadcast, wait with a bound.

use std::time::Duration;

use alloy::network::TransactionBuilder as _;
use alloy::primitives::{Address, B256};
use alloy::providers::{DynProvider, Provider as _, ProviderBuilder};
use alloy::rpc::types::TransactionReceipt;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolEvent;
use alloy::transports::TransportError;
use tokio::time::Instant;

use super::Chain;
use super::pause::Pause;
use crate::calls::Invocation;
use crate::deployment::Deployment;
use crate::limits::{HOOK_GAS_RESERVE, MINED_WITHIN_DEFAULT};
use crate::reverts::Refusal;

/// A key on a chain.
#[derive(Debug, Clone)]
pub struct Account {
    chain: Chain,
    sender: Sender,
}

/// A key before a blueprint is known: what a deployment is made with.
#[derive(Debug, Clone)]
pub struct Sender {
    key: PrivateKeySigner,
    provider: DynProvider,
    mined_within: Duration,
}

/// A transaction that is in a block and did what it should.
#[derive(Debug, Clone)]
pub struct Mined {
    /// Its hash.
    pub transaction: B256,
    /// The block it is in.
    pub block: u64,
    /// Its receipt.
    pub receipt: TransactionReceipt,
}

impl Mined {
    /// The first event of this kind that `emitter` emitted in it.
    ///
    /// # Errors
    /// [`SendError::NoEvent`].
    pub fn event<E: SolEvent>(&self, emitter: Address) -> Result<E, SendError> {
        let logs = self.receipt.logs().iter().filter(|log| log.address() == emitter);
        let found = logs.filter_map(|log| log.log_decode::<E>().ok()).next();
        let missing = SendError::NoEvent { transaction: self.transaction, event: E::SIGNATURE };
        found.map(|log| log.inner.data).ok_or(missing)
    }
}

/// A transaction that did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The chain would refuse it, so it was not sent.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// It could not be simulated, so it was not sent.
    #[error("the transaction could not be simulated and was not sent")]
    Simulate(#[source] TransportError),
    /// It could not be sent.
    #[error("the transaction could not be sent")]
    Broadcast(#[source] TransportError),
    /// It was sent, but the node does not answer for it.
    #[error("transaction {transaction} was sent, but the node did not answer for it")]
    Receipt {
        /// Its hash.
        transaction: B256,
        /// Why.
        source: TransportError,
    },
    /// It was sent and is in no block yet; it may still come.
    #[error("transaction {transaction} is in no block after {waited_s} s; it may still come")]
    NotMined {
        /// Its hash.
        transaction: B256,
        /// How long was waited.
        waited_s: u64,
    },
    /// It is in a block and was refused there, though its simulation was not.
    #[error("transaction {transaction} was refused in its block")]
    Reverted {
        /// Its hash.
        transaction: B256,
    },
    /// It is in a block without the event that it should have emitted.
    #[error("transaction {transaction} did not emit {event}")]
    NoEvent {
        /// Its hash.
        transaction: B256,
        /// Signature of the event.
        event: &'static str,
    },
}

impl SendError {
    /// Whether the same call may be accepted later.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.retryable(),
            Self::Simulate(_) | Self::Broadcast(_) | Self::Reverted { .. } => true,
            Self::Receipt { .. } | Self::NotMined { .. } | Self::NoEvent { .. } => false,
        }
    }
}

impl Account {
    /// An account that signs with `key` and sends through the chain's own provider.
    pub fn new(chain: Chain, key: PrivateKeySigner) -> Self {
        let sender = Sender::new(chain.provider().clone(), key);
        Self { chain, sender }
    }

    /// The same account with another bound on the wait for a transaction.
    #[must_use]
    pub fn mined_within(mut self, bound: Duration) -> Self {
        self.sender.mined_within = bound;
        self
    }

    /// The chain it is on.
    pub const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Where it is.
    pub const fn deployment(&self) -> &Deployment {
        self.chain.deployment()
    }

    /// Its address.
    pub const fn address(&self) -> Address {
        self.sender.key.address()
    }

    /// Its key.
    pub const fn key(&self) -> &PrivateKeySigner {
        &self.sender.key
    }

    /// Sends an invocation and waits until it is in a block.
    ///
    /// # Errors
    /// [`SendError`]; nothing was paid where it is [`SendError::Refused`] or [`SendError::Simulate`].
    pub async fn send(&self, invocation: &Invocation) -> Result<Mined, SendError> {
        self.sender.send(invocation).await
    }
}

impl Sender {
    /// Signs with `key`, sends through `provider`, which needs neither signer nor fillers.
    pub fn new(provider: DynProvider, key: PrivateKeySigner) -> Self {
        // The nonce is asked of the node each time: a cached one fails as soon as the key is used elsewhere too.
        let provider = ProviderBuilder::default()
            .with_gas_estimation()
            .with_simple_nonce_management()
            .fetch_chain_id()
            .wallet(key.clone())
            .connect_provider(provider)
            .erased();
        Self { key, provider, mined_within: MINED_WITHIN_DEFAULT }
    }

    /// Its address.
    pub const fn address(&self) -> Address {
        self.key.address()
    }

    /// The provider it sends through.
    pub const fn provider(&self) -> &DynProvider {
        &self.provider
    }

    /// As [`Account::send`].
    ///
    /// # Errors
    /// As [`Account::send`].
    pub async fn send(&self, invocation: &Invocation) -> Result<Mined, SendError> {
        self.send_transaction(invocation.transaction(self.address())).await
    }

    /// Simulates, signs and sends a transaction, and waits until it is in a block.
    ///
    /// # Errors
    /// As [`Account::send`].
    pub async fn send_transaction(
        &self,
        transaction: alloy::rpc::types::TransactionRequest,
    ) -> Result<Mined, SendError> {
        let estimate =
            self.provider.estimate_gas(transaction.clone()).await.map_err(refused_or(SendError::Simulate))?;
        let gas = estimate.saturating_add(estimate / 4).saturating_add(HOOK_GAS_RESERVE);
        let sent = self.provider.send_transaction(transaction.with_gas_limit(gas)).await;
        let hash = *sent.map_err(refused_or(SendError::Broadcast))?.tx_hash();
        tracing::debug!(transaction = %hash, gas, "sent");
        self.wait(hash).await
    }

    async fn wait(&self, transaction: B256) -> Result<Mined, SendError> {
        let until = Instant::now() + self.mined_within;
        let mut pause = Pause::new();
        loop {
            match self.provider.get_transaction_receipt(transaction).await {
                Ok(Some(receipt)) => return mined(receipt),
                Err(source) if Instant::now() >= until => return Err(SendError::Receipt { transaction, source }),
                Err(error) => tracing::debug!(%transaction, %error, "the node did not answer for a transaction"),
                Ok(None) if Instant::now() >= until => {
                    return Err(SendError::NotMined { transaction, waited_s: self.mined_within.as_secs() });
                }
                Ok(None) => {}
            }
            pause.take().await;
        }
    }
}

fn mined(receipt: TransactionReceipt) -> Result<Mined, SendError> {
    let transaction = receipt.transaction_hash;
    match receipt.block_number {
        Some(block) if receipt.status() => Ok(Mined { transaction, block, receipt }),
        _ => Err(SendError::Reverted { transaction }),
    }
}

fn refused_or(other: fn(TransportError) -> SendError) -> impl FnOnce(TransportError) -> SendError {
    move |error| match Refusal::of(&error) {
        Some(refusal) => SendError::Refused(Box::new(refusal)),
        None => other(error),
    }
}
