//! A local chain with the real Tangle core, our blueprint on it, and who takes part.

use std::path::PathBuf;
use std::time::Duration;

use alloy::network::TransactionBuilder as _;
use alloy::primitives::{Address, B256, U256};
use alloy::providers::Provider;
use alloy::rpc::types::Filter;
use alloy::sol_types::SolEvent as _;
use anyhow::{Context, Result, ensure};
use sandbox_protocol::CallKey;
use sandbox_sdk::calls::Invocation;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::ReceiptRecorded;
use sandbox_sdk::deploy::{Plan, deploy};
use sandbox_sdk::devchain::{self, BLOCK_TIME_MS, CORE, DevChain};
use sandbox_sdk::{Account, Chain, Deployment};
use tempfile::TempDir;

use crate::client::Client;
use crate::node::Node;
use crate::programs::tools;
use crate::wait::until;

/// Time for a transaction to be in a block.
const MINED_WITHIN: Duration = Duration::from_secs(20);

/// Who owns the blueprint.
pub const DEVELOPER: usize = 0;
/// The first operator; it is staked in the snapshot.
pub const OPERATOR: usize = 1;
/// The second operator, staked as well.
pub const SECOND_OPERATOR: usize = 2;
/// A customer with coin.
pub const CUSTOMER: usize = 5;
/// Another.
pub const STRANGER: usize = 6;

/// The ground.
pub struct Ground {
    /// The chain process.
    pub chain: DevChain,
    /// Where the blueprint is.
    pub deployment: Deployment,
    dir: TempDir,
}

impl Ground {
    /// Starts a chain that makes a block per transaction, and deploys the blueprint.
    ///
    /// # Errors
    /// The tools are not installed, the contracts not built, or the chain refuses.
    pub async fn new() -> Result<Self> {
        Self::with_blocks(None).await
    }

    /// As [`Ground::new`], with a block per `block_time` where that is given.
    ///
    /// # Errors
    /// As [`Ground::new`].
    pub async fn with_blocks(block_time: Option<Duration>) -> Result<Self> {
        let chain = DevChain::start(&tools()?, block_time).await.context("the chain")?;
        let plan = Plan::new(chain.rpc_url().clone(), CORE, devchain::artifact(), BLOCK_TIME_MS);
        let deployment = deploy(&plan, devchain::key(DEVELOPER)).await.context("the blueprint")?;
        let dir = tempfile::Builder::new().prefix("sbx").tempdir().context("no directory")?;
        let ground = Self { chain, deployment, dir };
        ground.deployment.save(&ground.addresses_file()).context("the addresses file")?;
        Ok(ground)
    }

    /// The file that the command line reads the addresses from.
    pub fn addresses_file(&self) -> PathBuf {
        self.dir.path().join("deployment.json")
    }

    /// An operator with one of the chain's keys, not started.
    ///
    /// # Errors
    /// As [`Node::new`].
    pub fn node(&self, key: usize) -> Result<Node> {
        Node::new(&self.deployment, &devchain::KEYS[key].to_string())
    }

    /// A customer at the command line.
    ///
    /// # Errors
    /// The program is not built, or the key cannot be written.
    pub fn client(&self, key: usize) -> Result<Client> {
        Client::new(
            &self.addresses_file(),
            &self.dir.path().join(format!("key-{key}")),
            &devchain::KEYS[key].to_string(),
        )
    }

    /// An account of the library.
    ///
    /// # Errors
    /// The chain does not answer.
    pub async fn account(&self, key: usize) -> Result<Account> {
        let chain = Chain::connect(self.deployment.clone()).await.context("the chain")?;
        Ok(Account::new(chain, devchain::key(key)))
    }

    /// Sends a transaction as somebody whose key nobody has, a contract say.
    ///
    /// # Errors
    /// It was refused.
    pub async fn send_as(&self, from: Address, call: &Invocation) -> Result<()> {
        let provider = self.chain.provider();
        provider.raw_request::<_, ()>("anvil_impersonateAccount".into(), (from,)).await.context("impersonation")?;
        let sent =
            provider.raw_request("eth_sendTransaction".into(), (call.transaction(from).with_gas_price(0),)).await;
        let hash: B256 = sent.context("the transaction")?;
        let mined = || async { provider.get_transaction_receipt(hash).await.ok().flatten() };
        let receipt = until("a transaction", MINED_WITHIN, mined).await?;
        ensure!(receipt.status(), "refused");
        Ok(())
    }

    /// The receipts that the contract recorded for a call.
    ///
    /// # Errors
    /// The chain does not answer.
    pub async fn receipts(&self, key: CallKey) -> Result<Vec<ReceiptRecorded>> {
        receipts(self.chain.provider(), self.deployment.manager, key).await
    }

    /// Waits until each of these calls has a receipt; none may have two.
    ///
    /// # Errors
    /// One has none in time, or two.
    pub async fn answered_once(&self, calls: &[CallKey], bound: Duration) -> Result<()> {
        for key in calls {
            let settled = || async { self.receipts(*key).await.ok().filter(|found| !found.is_empty()) };
            let found = until(&format!("the receipt of call {key}"), bound, settled).await?;
            ensure!(found.len() == 1, "call {key} was answered {} times", found.len());
        }
        Ok(())
    }

    /// An address of the chain.
    pub fn address(key: usize) -> Address {
        devchain::key(key).address()
    }
}

/// The receipts that the contract at `manager` recorded for a call.
///
/// # Errors
/// The chain does not answer.
pub async fn receipts(provider: &impl Provider, manager: Address, key: CallKey) -> Result<Vec<ReceiptRecorded>> {
    let filter = Filter::new()
        .address(manager)
        .event_signature(ReceiptRecorded::SIGNATURE_HASH)
        .topic1(U256::from(key.service))
        .topic2(U256::from(key.call))
        .from_block(0);
    let logs = provider.get_logs(&filter).await.context("the receipts")?;
    logs.iter().map(|log| Ok(log.log_decode::<ReceiptRecorded>()?.inner.data)).collect()
}
