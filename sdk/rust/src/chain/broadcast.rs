//! A signed transaction on its way into a block: sent, sent again, and replaced by one that pays more.
//!
//! All attempts have one nonce, so at most one of them is ever mined, whatever a node said or failed to say in between.

use std::time::Duration;

use alloy::eips::Encodable2718 as _;
use alloy::eips::eip1559::Eip1559Estimation;
use alloy::network::{EthereumWallet, NetworkTransactionBuilder as _, TransactionBuilder as _};
use alloy::primitives::{B256, Bytes};
use alloy::providers::{DynProvider, Provider as _};
use alloy::rpc::types::{TransactionReceipt, TransactionRequest};
use alloy::transports::{TransportError, TransportErrorKind};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::account::SendError;
use super::pause::Pause;
use crate::limits::{BROADCAST_TRIES_MAX, CHAIN_PAUSE_MAX};

/// What is paid for a transaction that does not come into a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How long a transaction is waited for at one price.
    pub bump_after: Duration,
    /// The most that is paid for a unit of gas, in wei; `None`: whatever it takes.
    pub fee_max: Option<u128>,
}

/// What a transaction costs, within a bound.
#[derive(Clone, Copy)]
pub(super) struct Market<'a> {
    pub(super) provider: &'a DynProvider,
    /// See [`Patience::fee_max`].
    pub(super) fee_max: Option<u128>,
}

/// A transaction on its way.
pub(super) struct Broadcast<'a> {
    pub(super) market: Market<'a>,
    pub(super) wallet: &'a EthereumWallet,
    /// Complete but for the fees.
    pub(super) request: TransactionRequest,
    /// How long it is waited for at one price.
    pub(super) bump_after: Duration,
    /// How long it is waited for in all.
    pub(super) within: Duration,
    /// Let go of once a node has it, and with it its nonce.
    pub(super) turn: Option<OwnedMutexGuard<()>>,
}

/// What a node said of a transaction that it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// It has it.
    Taken,
    /// Its nonce is used already.
    NonceUsed,
    /// It pays too little.
    TooCheap,
    /// It will not have it.
    Refused,
    /// Nothing.
    Nothing,
}

/// How a transaction ended that is in no block.
pub(super) enum Unmined {
    /// Its nonce went to another transaction, and no node ever had it.
    NonceUsed(TransportError),
    /// Anything else.
    Failed(SendError),
}

/// The transactions that were sent under one nonce, and what came back.
#[derive(Debug, Default)]
struct Attempts {
    hashes: Vec<B256>,
    is_taken: bool,
    /// How often nothing was heard: the node may have it, or not.
    unheard: usize,
}

impl Attempts {
    fn add(&mut self, hash: B256) {
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    fn note(&mut self, said: Said) {
        self.is_taken |= said == Said::Taken;
        self.unheard += usize::from(said == Said::Nothing);
    }

    /// Whether some node may have one of them, whatever was said of the last.
    const fn may_be_known(&self) -> bool {
        self.is_taken || self.unheard > 0
    }
}

impl Market<'_> {
    /// What the chain asks for now, within the bound.
    pub(super) async fn fees(&self) -> Result<Eip1559Estimation, TransportError> {
        Ok(bounded(self.provider.estimate_eip1559_fees().await?, self.fee_max))
    }

    /// Enough to replace a transaction of these fees, and what the chain asks for now; `None` where the bound forbids it.
    async fn dearer(&self, fees: Eip1559Estimation) -> Option<Eip1559Estimation> {
        let market = self.fees().await.ok();
        dearer(fees, market, self.fee_max)
    }
}

impl Broadcast<'_> {
    /// Returns when one attempt is in a block, of which the first pays `fees`.
    pub(super) async fn run(mut self, mut fees: Eip1559Estimation) -> Result<TransactionReceipt, Unmined> {
        let until = Instant::now() + self.within;
        let mut attempts = Attempts::default();
        loop {
            let (hash, raw) = self.signed(fees).await.map_err(broadcast)?;
            attempts.add(hash);
            let (said, error) = self.send(&raw).await;
            tracing::debug!(transaction = %hash, ?said, fee = fees.max_fee_per_gas, "sent");
            attempts.note(said);
            match said {
                Said::Taken => self.turn = None,
                _ if attempts.may_be_known() && attempts.unheard < BROADCAST_TRIES_MAX => {}
                Said::NonceUsed => return Err(Unmined::NonceUsed(error)),
                Said::TooCheap if attempts.hashes.len() < BROADCAST_TRIES_MAX => {
                    fees = self.market.dearer(fees).await.ok_or(broadcast(error))?;
                    continue;
                }
                Said::TooCheap | Said::Refused | Said::Nothing => return Err(broadcast(error)),
            }
            // One that no node has confirmed to have is sent again soon, at the same price.
            let patience = if said == Said::Nothing { CHAIN_PAUSE_MAX } else { self.bump_after };
            if let Some(receipt) = self.look(&attempts.hashes, until.min(Instant::now() + patience)).await {
                return Ok(receipt);
            }
            if said == Said::NonceUsed || Instant::now() >= until {
                let waited_s = self.within.as_secs();
                return Err(Unmined::Failed(SendError::NotMined { transaction: hash, waited_s }));
            }
            if said != Said::Nothing {
                fees = self.market.dearer(fees).await.unwrap_or(fees);
            }
        }
    }

    /// Looks for the receipt of any attempt until then.
    async fn look(&self, attempts: &[B256], until: Instant) -> Option<TransactionReceipt> {
        let mut pause = Pause::new();
        loop {
            for hash in attempts.iter().rev() {
                match self.market.provider.get_transaction_receipt(*hash).await {
                    Ok(Some(receipt)) => return Some(receipt),
                    Ok(None) => {}
                    Err(error) => tracing::debug!(%hash, %error, "the node did not answer for a transaction"),
                }
            }
            if Instant::now() >= until {
                return None;
            }
            pause.take().await;
        }
    }

    async fn send(&self, raw: &[u8]) -> (Said, TransportError) {
        match self.market.provider.send_raw_transaction(raw).await {
            Ok(_) => (Said::Taken, TransportErrorKind::custom_str("taken, but in no block")),
            Err(error) => (said(&error), error),
        }
    }

    async fn signed(&self, fees: Eip1559Estimation) -> Result<(B256, Bytes), TransportError> {
        let request = self
            .request
            .clone()
            .with_max_fee_per_gas(fees.max_fee_per_gas)
            .with_max_priority_fee_per_gas(fees.max_priority_fee_per_gas);
        let signed = request.build(self.wallet).await.map_err(TransportErrorKind::custom)?;
        Ok((*signed.tx_hash(), signed.encoded_2718().into()))
    }
}

fn broadcast(error: TransportError) -> Unmined {
    Unmined::Failed(SendError::Broadcast(error))
}

fn bounded(fees: Eip1559Estimation, fee_max: Option<u128>) -> Eip1559Estimation {
    let max = fee_max.unwrap_or(u128::MAX);
    Eip1559Estimation {
        max_fee_per_gas: fees.max_fee_per_gas.min(max),
        max_priority_fee_per_gas: fees.max_priority_fee_per_gas.min(max),
    }
}

/// Nodes replace a transaction only by one that pays an eighth more in both fees (some a tenth).
fn dearer(
    fees: Eip1559Estimation,
    market: Option<Eip1559Estimation>,
    fee_max: Option<u128>,
) -> Option<Eip1559Estimation> {
    let raised = |fee: u128| fee.saturating_add(fee / 8).saturating_add(1);
    let market = market.unwrap_or(fees);
    let dearer = Eip1559Estimation {
        max_fee_per_gas: raised(fees.max_fee_per_gas).max(market.max_fee_per_gas),
        max_priority_fee_per_gas: raised(fees.max_priority_fee_per_gas).max(market.max_priority_fee_per_gas),
    };
    // A tip beyond the whole fee is no transaction.
    let dearer =
        Eip1559Estimation { max_fee_per_gas: dearer.max_fee_per_gas.max(dearer.max_priority_fee_per_gas), ..dearer };
    (dearer.max_fee_per_gas <= fee_max.unwrap_or(u128::MAX)).then_some(dearer)
}

/// Nodes agree on what they refuse, not on the words.
fn said(error: &TransportError) -> Said {
    let Some(payload) = error.as_error_resp() else { return Said::Nothing };
    let words = payload.message.to_lowercase();
    let says = |any: &[&str]| any.iter().any(|phrase| words.contains(phrase));
    if says(&["already known", "already imported", "known transaction", "alreadyknown", "already exists"]) {
        Said::Taken
    } else if says(&["nonce too low", "nonce is too low", "old nonce", "oldnonce", "nonce has already been used"]) {
        Said::NonceUsed
    } else if says(&[
        "underpriced",
        "too low to replace",
        "fee too low",
        "less than block base fee",
        "below the minimum",
    ]) {
        Said::TooCheap
    } else if says(&["rate limit", "too many requests", "timeout", "timed out", "busy", "unavailable"]) {
        Said::Nothing
    } else {
        Said::Refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn fees(max_fee_per_gas: u128, max_priority_fee_per_gas: u128) -> Eip1559Estimation {
        Eip1559Estimation { max_fee_per_gas, max_priority_fee_per_gas }
    }

    #[test]
    fn a_replacement_pays_an_eighth_more_or_what_the_chain_asks_for() {
        let check = |market, expected| assert_eq!(dearer(fees(800, 80), market, Some(1_000)), expected);
        check(None, Some(fees(901, 91)));
        check(Some(fees(10, 200)), Some(fees(901, 200)));
        check(Some(fees(1_000, 1)), Some(fees(1_000, 91)));
        check(Some(fees(1_001, 1)), None);
        assert_eq!(dearer(fees(0, 0), None, None), Some(fees(1, 1)));
        assert_eq!(dearer(fees(1_000, 10), None, Some(1_000)), None, "the bound holds");
    }

    #[test]
    fn what_nodes_say_is_understood_in_their_words() {
        let of = |message: &str| {
            let json = format!(r#"{{"code":-32000,"message":{message:?}}}"#);
            said(&TransportError::ErrorResp(serde_json::from_str(&json).unwrap()))
        };
        for (message, expected) in [
            ("already known", Said::Taken),
            ("transaction already imported", Said::Taken),
            ("nonce too low: next nonce 7, tx nonce 6", Said::NonceUsed),
            ("replacement transaction underpriced", Said::TooCheap),
            ("max fee per gas less than block base fee", Said::TooCheap),
            ("insufficient funds for gas * price + value", Said::Refused),
            ("rate limit exceeded", Said::Nothing),
        ] {
            assert_eq!(of(message), expected, "{message}");
        }
        assert_eq!(said(&TransportErrorKind::backend_gone()), Said::Nothing);
    }
}
