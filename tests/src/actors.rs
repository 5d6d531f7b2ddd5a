//! Operators by the hundred: keys, stakes and registrations, made in few blocks.

use alloy::primitives::{Address, B256, Bytes, U256, keccak256};
use alloy::providers::Provider as _;
use alloy::rpc::client::BatchRequest;
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context, Result, ensure};
use sandbox_protocol::abi::OperatorProfile;
use sandbox_sdk::calls::{self, Invocation};
use sandbox_sdk::contracts::ITangleCore::{JobQuoteDetails, SignedJobQuote};
use sandbox_sdk::devchain::{self, CHAIN_ID, CORE, STAKING};
use sandbox_sdk::{operators, quotes};

use crate::stage::{Stage, transaction};
use crate::tangle::IMintable;

/// Index of the key that gives operators their stakes.
const PATRON: usize = 8;
/// Operators whose transactions go into the same four blocks.
const CHUNK: usize = 100;
/// Gas for one of those transactions: a hundred of them fit into a block.
const SMALL_GAS: u64 = 900_000;
const TNT: u64 = 1_000_000_000_000_000_000;

/// The operators of a stage.
#[derive(Debug, Default)]
pub struct Operators {
    keys: Vec<PrivateKeySigner>,
    addresses: Vec<Address>,
}

impl Operators {
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }
}

/// What an operator offers.
pub fn offer(capacity: u32, price_per_hour: u64) -> OperatorProfile {
    let (price, url) = (U256::from(price_per_hour), "https://operator.example".to_owned());
    OperatorProfile { capacity, pricePerHour: price, sealKey: B256::repeat_byte(7), apiUrl: url }
}

/// The stake of the operator at `index`, in the smallest unit: they differ, and so do their shares in what is earned.
pub fn stake(index: usize) -> U256 {
    U256::from(1 + index as u64 % 3) * U256::from(TNT)
}

fn key(index: usize) -> Result<PrivateKeySigner> {
    let secret = keccak256(format!("operator {index} of a test"));
    PrivateKeySigner::from_bytes(&secret).context("a key")
}

impl Stage {
    /// Makes `count` more operators, staked and registered with what `offer` says of the index among all.
    ///
    /// # Errors
    /// The chain refused.
    pub async fn enlist(&mut self, count: usize, offer: impl Fn(usize) -> OperatorProfile) -> Result<()> {
        let had = self.cast.keys.len();
        for index in had..had + count {
            let key = key(index)?;
            self.cast.addresses.push(key.address());
            self.cast.keys.push(key);
        }
        for start in (had..had + count).step_by(CHUNK) {
            self.enlist_chunk(start, (start + CHUNK).min(had + count), &offer).await?;
        }
        if let Some(last) = self.cast.addresses.last() {
            ensure!(
                self.chain().operator(*last).await?.registered,
                "the last of {} operators is not there",
                had + count
            );
        }
        Ok(())
    }

    async fn enlist_chunk(&self, start: usize, end: usize, offer: &impl Fn(usize) -> OperatorProfile) -> Result<()> {
        let (staking, token) = (STAKING.contract, STAKING.token);
        let of = |index: usize| self.cast.addresses[index];
        let all = start..end;
        let patron = devchain::key(PATRON).address();
        let gifts = all.clone().map(|index| {
            let gift = IMintable::transferCall { to: of(index), amount: stake(index) };
            (patron, Invocation::new(token, &gift))
        });
        let permits = all.clone().map(|index| (of(index), calls::approve_token(token, staking, stake(index))));
        let stakes = all.clone().map(|index| (of(index), calls::stake(staking, token, stake(index))));
        let registrations = all.map(|index| {
            let public_key: Bytes = operators::public_key(&self.cast.keys[index]);
            (of(index), calls::register_operator(self.deployment(), public_key, &offer(index)))
        });
        self.block(gifts.collect()).await?;
        self.block(permits.collect()).await?;
        self.block(stakes.collect()).await?;
        self.block(registrations.collect()).await
    }

    /// Puts transactions into one block, in their order.
    async fn block(&self, calls: Vec<(Address, Invocation)>) -> Result<()> {
        let client = self.chain().provider().client();
        let mut batch = BatchRequest::new(client);
        let mut sent = Vec::new();
        for (from, call) in calls {
            let transaction = transaction(from, &call, SMALL_GAS);
            sent.push(batch.add_call::<_, B256>("eth_sendTransaction", &(transaction,))?);
        }
        batch.send().await.context("a block of transactions")?;
        for hash in sent {
            hash.await?;
        }
        self.dev().mine(1).await.context("a block")
    }

    /// The offer of the operator at `index` to do exactly this for this price.
    ///
    /// # Errors
    /// The key does not sign.
    pub fn quote(&self, index: usize, details: &JobQuoteDetails) -> Result<SignedJobQuote> {
        quotes::signed(details.clone(), &self.cast.keys[index], (CHAIN_ID, CORE)).context("a quote")
    }
}
