//! Who holds what, so that a test can say that nobody was paid, or who was and how much.

use alloy::primitives::{Address, Bytes, U256, address};
use alloy::providers::Provider as _;
use alloy::rpc::client::BatchRequest;
use alloy::rpc::types::TransactionRequest;
use alloy::sol_types::{SolCall, SolValue as _};
use anyhow::{Context, Result};
use sandbox_sdk::contracts::IERC20::balanceOfCall;
use sandbox_sdk::contracts::ITokenRewards::pendingRewardsCall;
use sandbox_sdk::devchain::{self, CORE};

use crate::actors::stake;
use crate::stage::{DEVELOPER, Stage};

/// The core's treasury in the snapshot.
pub const TREASURY: usize = 0;
/// Where the core sends what delegators earn.
pub const FEE_DISTRIBUTOR: Address = address!("0xfbC22278A96299D91d41C453234d97b4F5Eb9B2d");

/// Where that goes first for a service that ends: it is handed on as its time passes.
pub const STREAMS: Address = address!("0xc9a43158891282a2b1475592d5719c001986aaec");

/// What everybody has of one asset whom the core could pay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purses {
    /// What each operator has earned and not claimed.
    pub rewards: Vec<U256>,
    /// Balance of the blueprint's owner.
    pub developer: U256,
    /// Balance of the core's treasury.
    pub treasury: U256,
    /// Balance of the contract that pays delegators.
    pub delegators: U256,
    /// Balance of the contract that pays them by and by.
    pub streams: U256,
    /// Balance of the core.
    pub core: U256,
}

impl Stage {
    /// Reads the purses of the first `operators` operators and of everybody else who is paid; the zero address is native coin.
    ///
    /// # Errors
    /// The chain does not answer.
    pub async fn purses(&self, asset: Address, operators: usize) -> Result<Purses> {
        let client = self.chain().provider().client();
        let mut batch = BatchRequest::new(client);
        let mut rewards = Vec::new();
        for account in &self.operators()[..operators] {
            let call = pendingRewardsCall { account: *account, token: asset };
            rewards.push(batch.add_call::<_, Bytes>("eth_call", &(view(CORE, &call), "latest"))?);
        }
        let mut balances = Vec::new();
        for holder in [developer(), devchain::key(TREASURY).address(), FEE_DISTRIBUTOR, STREAMS, CORE] {
            balances.push(if asset.is_zero() {
                batch.add_call::<_, U256>("eth_getBalance", &(holder, "latest"))?
            } else {
                let call = view(asset, &balanceOfCall { account: holder });
                batch.add_call::<_, U256>("eth_call", &(call, "latest"))?
            });
        }
        batch.send().await.context("the purses")?;
        let mut purses = Purses {
            rewards: Vec::new(),
            developer: U256::ZERO,
            treasury: U256::ZERO,
            delegators: U256::ZERO,
            streams: U256::ZERO,
            core: U256::ZERO,
        };
        for reward in rewards {
            purses.rewards.push(U256::abi_decode(&reward.await?)?);
        }
        let mut found = Vec::new();
        for balance in balances {
            found.push(balance.await?);
        }
        (purses.developer, purses.treasury) = (found[0], found[1]);
        (purses.delegators, purses.streams, purses.core) = (found[2], found[3], found[4]);
        Ok(purses)
    }
}

/// How the core splits an amount, in ten-thousandths; the rest is for delegators.
#[derive(Debug, Clone, Copy)]
struct Split {
    developer: u16,
    protocol: u16,
    operators: u16,
    /// What is for delegators is streamed.
    is_streamed: bool,
}

const WHOLE: u16 = 10_000;

impl Stage {
    /// The purses once the core has distributed `amount` for a service: its operators share by what they have staked.
    ///
    /// # Errors
    /// The chain does not answer.
    pub async fn after_payment(&self, before: &Purses, service: u64, amount: U256) -> Result<Purses> {
        let serving = self.core().getServiceOperators(service).call().await.context("the operators")?;
        let indexes: Vec<_> = serving.iter().filter_map(|one| self.operators().iter().position(|o| o == one)).collect();
        Ok(before.paid(self.split(service).await?, amount, &indexes))
    }

    /// The purses once the core has paid the operator at `index` its quoted price.
    ///
    /// # Errors
    /// The chain does not answer.
    pub async fn after_quote(&self, before: &Purses, service: u64, index: usize, price: U256) -> Result<Purses> {
        Ok(before.paid(self.split(service).await?, price, &[index]))
    }

    async fn split(&self, service: u64) -> Result<Split> {
        let split = self.core().paymentSplit().call().await.context("the split")?;
        let is_streamed = self.chain().service(service).await?.context("no such service")?.ttl != 0;
        Ok(Split { developer: split._0, protocol: split._1, operators: split._2, is_streamed })
    }
}

impl Purses {
    fn paid(&self, split: Split, amount: U256, operators: &[usize]) -> Self {
        let part = |share: u16| amount * U256::from(share) / U256::from(WHOLE);
        let (developer, protocol, pool) = (part(split.developer), part(split.protocol), part(split.operators));
        let delegators = amount - developer - protocol - pool;
        let mut after = self.clone();
        after.developer += developer;
        after.treasury += protocol;
        // Nobody delegates to the operators of a stage.
        *if split.is_streamed { &mut after.streams } else { &mut after.treasury } += delegators;
        after.core -= amount - pool;
        let stakes: U256 = operators.iter().map(|index| stake(*index)).sum();
        let mut left = pool;
        for (place, index) in operators.iter().enumerate() {
            // What cannot be divided is the last one's.
            let is_last = place + 1 == operators.len();
            let share = if is_last { left } else { pool * stake(*index) / stakes };
            after.rewards[*index] += share;
            left -= share;
        }
        after
    }
}

/// Who owns the blueprint.
pub fn developer() -> Address {
    devchain::key(DEVELOPER).address()
}

fn view(to: Address, call: &impl SolCall) -> TransactionRequest {
    TransactionRequest::default().to(to).input(call.abi_encode().into())
}
