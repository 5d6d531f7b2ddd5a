//! A key that sends: simulate, sign, broadcast, pay more where that is needed, wait with a bound.

use std::sync::Arc;
use std::time::Duration;

use alloy::eips::eip1559::Eip1559Estimation;
use alloy::network::{EthereumWallet, TransactionBuilder as _};
use alloy::primitives::{Address, B256};
use alloy::providers::{DynProvider, Provider as _};
use alloy::rpc::types::TransactionReceipt;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolEvent;
use alloy::transports::TransportError;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Chain;
use super::broadcast::{Broadcast, Market, Patience, Unmined};
use super::pause::Pause;
use crate::calls::Invocation;
use crate::deployment::Deployment;
use crate::limits::{BUMP_AFTER_DEFAULT, HOOK_GAS_RESERVE, MINED_WITHIN_DEFAULT, NONCE_TRIES_MAX};
use crate::reverts::Refusal;
use crate::sealing::Sealing;

/// A key on a chain.
#[derive(Debug, Clone)]
pub struct Account {
    chain: Chain,
    sender: Sender,
    sealing: Sealing,
}

/// A key before a blueprint is known: what a deployment is made with.
#[derive(Debug, Clone)]
pub struct Sender {
    key: PrivateKeySigner,
    wallet: EthereumWallet,
    provider: DynProvider,
    mined_within: Duration,
    patience: Patience,
    nonces: Nonces,
    gas_max: Option<u64>,
    /// Held from the question for a nonce until a node has the transaction. Clones share it, so that many may send at once.
    turn: Arc<Mutex<()>>,
}

/// Which nonce a transaction gets where others of the key are in no block yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nonces {
    /// The next: the key may be used elsewhere too.
    Append,
    /// The first, in the place of one that does not come into a block for a while: the key is this sender's alone, and what
    /// it replaces is sent again by whoever wants it.
    Heal,
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
        let missing = SendError::NoEvent { transaction: self.transaction, event: E::SIGNATURE };
        self.events(emitter).next().ok_or(missing)
    }

    /// All events of this kind that `emitter` emitted in it.
    pub fn events<E: SolEvent>(&self, emitter: Address) -> impl Iterator<Item = E> {
        let logs = self.receipt.logs().iter().filter(move |log| log.address() == emitter);
        logs.filter_map(|log| log.log_decode::<E>().ok()).map(|log| log.inner.data)
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
    /// It would take more gas than the sender gives a transaction, so it was not sent.
    #[error("the transaction would take {gas} gas, at most {max} are given")]
    TooMuchGas {
        /// What it would take, with a reserve.
        gas: u64,
        /// What is given.
        max: u64,
    },
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
            Self::TooMuchGas { .. } | Self::Receipt { .. } | Self::NotMined { .. } | Self::NoEvent { .. } => false,
        }
    }
}

impl Account {
    /// An account that signs with `key` and sends through the chain's own provider.
    pub fn new(chain: Chain, key: PrivateKeySigner) -> Self {
        let sender = Sender::new(chain.provider().clone(), key);
        Self { chain, sender, sealing: Sealing::default() }
    }

    /// The same account with another bound on the wait for a transaction.
    #[must_use]
    pub fn mined_within(mut self, bound: Duration) -> Self {
        self.sender.mined_within = bound;
        self
    }

    /// The same account, which uses nonces, pays for haste and gives gas in this manner.
    #[must_use]
    pub const fn manner(mut self, nonces: Nonces, patience: Patience, gas_max: Option<u64>) -> Self {
        (self.sender.nonces, self.sender.patience, self.sender.gas_max) = (nonces, patience, gas_max);
        self
    }

    /// The same account, which seals these fields of what it submits.
    #[must_use]
    pub const fn sealing_only(mut self, sealing: Sealing) -> Self {
        self.sealing = sealing;
        self
    }

    /// Which fields it seals of what it submits.
    pub const fn sealing(&self) -> Sealing {
        self.sealing
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
        Self {
            wallet: EthereumWallet::from(key.clone()),
            key,
            provider,
            mined_within: MINED_WITHIN_DEFAULT,
            patience: Patience { bump_after: BUMP_AFTER_DEFAULT, fee_max: None },
            nonces: Nonces::Append,
            gas_max: None,
            turn: Arc::default(),
        }
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
        let transaction = transaction.with_from(self.address());
        let market = Market { provider: &self.provider, fee_max: self.patience.fee_max };
        let estimate = self.provider.estimate_gas(transaction.clone());
        let (estimate, chain_id, fees) = tokio::join!(estimate, self.provider.get_chain_id(), market.fees());
        let estimate = estimate.map_err(refused_or(SendError::Simulate))?;
        let gas = estimate.saturating_add(estimate / 4).saturating_add(HOOK_GAS_RESERVE);
        if let Some(max) = self.gas_max.filter(|max| gas > *max) {
            return Err(SendError::TooMuchGas { gas, max });
        }
        let (chain_id, fees) = (chain_id.map_err(SendError::Broadcast)?, fees.map_err(SendError::Broadcast)?);
        let transaction = transaction.with_gas_limit(gas).with_chain_id(chain_id);
        self.broadcast(transaction, market, fees).await
    }

    /// Sends until it is in a block. The nonce is asked of the node each time: a cached one fails as soon as the key is used
    /// elsewhere too, and one that somebody else took in between is asked for again.
    async fn broadcast(
        &self,
        transaction: alloy::rpc::types::TransactionRequest,
        market: Market<'_>,
        fees: Eip1559Estimation,
    ) -> Result<Mined, SendError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let turn = self.turn.clone().lock_owned().await;
            let request = transaction.clone().with_nonce(self.nonce().await?);
            let (wallet, bump_after, within) = (&self.wallet, self.patience.bump_after, self.mined_within);
            let sending = Broadcast { market, wallet, request, bump_after, within, turn: Some(turn) };
            match sending.run(fees).await {
                Ok(receipt) => return mined(receipt),
                Err(Unmined::Failed(error)) => return Err(error),
                Err(Unmined::NonceUsed(error)) if tries >= NONCE_TRIES_MAX => return Err(SendError::Broadcast(error)),
                Err(Unmined::NonceUsed(error)) => tracing::debug!(%error, "the nonce was used meanwhile"),
            }
        }
    }

    async fn nonce(&self) -> Result<u64, SendError> {
        let until = Instant::now() + self.patience.bump_after;
        let mut pause = Pause::new();
        loop {
            let mined = async { self.provider.get_transaction_count(self.address()).await };
            let known = async { self.provider.get_transaction_count(self.address()).pending().await };
            let (mined, known) = tokio::try_join!(mined, known).map_err(SendError::Broadcast)?;
            if self.nonces == Nonces::Append || known <= mined {
                return Ok(known.max(mined));
            }
            if Instant::now() >= until {
                tracing::warn!(nonce = mined, "replacing a transaction that does not come into a block");
                return Ok(mined);
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
