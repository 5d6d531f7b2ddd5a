//! A chain on which everybody acts without a key: the real Tangle core, our blueprint on it, and no operator process.
//!
//! What an operator does here is what the test has it do. Transactions are sent as they are, also such as no client of ours
//! would send, and their receipts say what came of them.

use std::fmt::Debug;

use alloy::network::TransactionBuilder as _;
use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::providers::{DynProvider, Provider as _};
use alloy::rpc::types::{TransactionReceipt, TransactionRequest};
use alloy::sol_types::{SolCall, SolEvent, SolValue};
use anyhow::{Context, Result, bail, ensure};
use sandbox_protocol::abi::JobReceipt;
use sandbox_protocol::{CallKey, Job};
use sandbox_sdk::calls::{self, Invocation, ServiceTerms};
use sandbox_sdk::chain::Cost;
use sandbox_sdk::contracts::ITangleCore::{JobSubmitted, ServiceActivated, ServiceRequested};
use sandbox_sdk::deploy::{Plan, Terms, deploy};
use sandbox_sdk::devchain::{self, BLOCK_TIME_MS, CORE, DevChain};
use sandbox_sdk::{Chain, Deployment, Refusal};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::actors::Operators;
use crate::programs::tools;
use crate::tangle::ICore::{ICoreInstance, requestServiceCall};

/// Index of the key that owns the blueprint; not the treasury, which is 0.
pub const DEVELOPER: usize = 7;
/// A customer with coin.
pub const CUSTOMER: usize = 5;
/// Somebody who has nothing to do with anything.
pub const STRANGER: usize = 6;
/// Gas for whatever a test does, within a block of the local chain.
pub const PLENTY_OF_GAS: u64 = 30_000_000;

/// The stage.
pub struct Stage {
    dev: DevChain,
    chain: Chain,
    pub(crate) cast: Operators,
}

/// What a node can be asked with.
pub trait Parameters: Serialize + Clone + Debug + Send + Sync + Unpin {}

impl<P: Serialize + Clone + Debug + Send + Sync + Unpin> Parameters for P {}

/// A state of the chain to go back to.
#[derive(Debug)]
pub struct Mark(U256);

impl Stage {
    /// An event-driven blueprint at the built-in prices, and `operators` staked operators with room for 4 sandboxes each.
    ///
    /// # Errors
    /// The tools are not installed, the contracts not built, or the chain refuses.
    pub async fn new(operators: usize) -> Result<Self> {
        Self::with(Terms::default(), operators).await
    }

    /// As [`Stage::new`], paid for as `terms` say.
    ///
    /// # Errors
    /// As [`Stage::new`].
    pub async fn with(terms: Terms, operators: usize) -> Result<Self> {
        let dev = DevChain::start(&tools()?, None).await.context("the chain")?;
        let plan = Plan::new(dev.rpc_url().clone(), CORE, devchain::artifact(), BLOCK_TIME_MS);
        let deployment = deploy(&Plan { terms, ..plan }, devchain::key(DEVELOPER)).await.context("the blueprint")?;
        let chain = Chain::connect(deployment).await.context("the chain")?;
        let mut stage = Self { dev, chain, cast: Operators::default() };
        stage.node::<()>("anvil_autoImpersonateAccount", (true,)).await?;
        // Mined on demand: the node's own mining of what comes in is not done when it says so, and does not bear going back.
        stage.node::<()>("evm_setAutomine", (false,)).await?;
        stage.enlist(operators, |_| crate::actors::offer(4, 1)).await?;
        Ok(stage)
    }

    /// The chain process.
    pub const fn dev(&self) -> &DevChain {
        &self.dev
    }

    /// The blueprint as clients see it.
    pub const fn chain(&self) -> &Chain {
        &self.chain
    }

    /// Where the blueprint is.
    pub const fn deployment(&self) -> &Deployment {
        self.chain.deployment()
    }

    /// The core as our clients do not know it.
    pub fn core(&self) -> ICoreInstance<&DynProvider> {
        ICoreInstance::new(CORE, self.chain.provider())
    }

    /// The staked operators, in the order of their registration.
    pub fn operators(&self) -> &[Address] {
        self.cast.addresses()
    }

    /// Sends a request to the node as it is.
    ///
    /// # Errors
    /// The node refuses it.
    pub async fn node<A>(&self, method: &'static str, parameters: impl Parameters) -> Result<A>
    where
        A: DeserializeOwned + Debug + Send + Sync + Unpin + 'static,
    {
        self.chain.provider().raw_request(method.into(), parameters).await.context(method)
    }

    /// Remembers the state of the chain.
    ///
    /// # Errors
    /// The node refuses.
    pub async fn mark(&self) -> Result<Mark> {
        self.node("evm_snapshot", ()).await.map(Mark)
    }

    /// Goes back to a state; it can be done once.
    ///
    /// # Errors
    /// The node refuses.
    pub async fn back_to(&self, mark: Mark) -> Result<()> {
        let done: bool = self.node("evm_revert", (mark.0,)).await?;
        ensure!(done, "the chain did not go back");
        Ok(())
    }
}

/// Transactions of anybody's.
impl Stage {
    /// Sends a transaction that must do what it should.
    ///
    /// # Errors
    /// It was refused.
    pub async fn send(&self, from: Address, call: &Invocation) -> Result<TransactionReceipt> {
        let receipt = self.attempt(from, call, PLENTY_OF_GAS).await?;
        if !receipt.status() {
            bail!("refused: {:?}", self.refusal(from, call).await.map(|refusal| refusal.to_string()));
        }
        Ok(receipt)
    }

    /// Puts a transaction with exactly this much gas into a block of its own, whatever comes of it.
    ///
    /// # Errors
    /// The node does not take it.
    pub async fn attempt(&self, from: Address, call: &Invocation, gas: u64) -> Result<TransactionReceipt> {
        let hash: B256 = self.node("eth_sendTransaction", (transaction(from, call, gas),)).await?;
        self.node::<String>("evm_mine", ()).await?;
        let receipt: Option<TransactionReceipt> = self.node("eth_getTransactionReceipt", (hash,)).await?;
        receipt.context("the transaction is not in the block")
    }

    /// The receipts of a block's transactions, in their order.
    ///
    /// # Errors
    /// The node refuses.
    pub async fn block_receipts(&self, block: u64) -> Result<Vec<TransactionReceipt>> {
        self.node("eth_getBlockReceipts", (format!("{block:#x}"),)).await
    }

    /// Why a transaction would be refused.
    ///
    /// # Errors
    /// It would not.
    pub async fn refusal(&self, from: Address, call: &Invocation) -> Result<Refusal> {
        match self.chain.provider().call(transaction(from, call, PLENTY_OF_GAS)).await {
            Ok(_) => bail!("it is not refused"),
            Err(error) => Refusal::of(&error).with_context(|| format!("not a refusal: {error}")),
        }
    }

    /// Calls a function of the core that changes something.
    ///
    /// # Errors
    /// It was refused.
    pub async fn to_core(&self, from: Address, call: &impl SolCall) -> Result<TransactionReceipt> {
        self.send(from, &Invocation::new(CORE, call)).await
    }
}

/// The transaction of an invocation, at no price.
pub(crate) fn transaction(from: Address, call: &Invocation, gas: u64) -> TransactionRequest {
    call.transaction(from).with_gas_limit(gas).with_gas_price(0)
}

/// The first event of this kind in a receipt.
///
/// # Errors
/// There is none.
pub fn event<E: SolEvent>(receipt: &TransactionReceipt) -> Result<E> {
    events(receipt).into_iter().next().with_context(|| format!("no {}", E::SIGNATURE))
}

/// Every event of this kind in a receipt.
pub fn events<E: SolEvent>(receipt: &TransactionReceipt) -> Vec<E> {
    receipt.logs().iter().filter_map(|log| log.log_decode::<E>().ok()).map(|log| log.inner.data).collect()
}

/// Deeds of the customer's.
impl Stage {
    /// The customer's address.
    pub fn customer(&self) -> Address {
        devchain::key(CUSTOMER).address()
    }

    /// Requests a service of these operators for the customer, and has all of them approve.
    ///
    /// # Errors
    /// It was refused.
    pub async fn service(&self, operators: &[Address]) -> Result<u64> {
        let terms = ServiceTerms::named(operators.to_vec());
        self.activate(&calls::request_service(self.deployment(), &terms), operators).await
    }

    /// A service of the first `count` operators.
    ///
    /// # Errors
    /// It was refused.
    pub async fn service_of(&self, count: usize) -> Result<u64> {
        self.service(&self.operators()[..count]).await
    }

    /// The customer's request for a service that lives `ttl_s` seconds and pays `cost` when it begins.
    pub fn paid_request(&self, operators: &[Address], ttl_s: u64, cost: Cost) -> Invocation {
        let Cost { asset, amount } = cost;
        let call = requestServiceCall {
            blueprintId: self.deployment().blueprint_id,
            operators: operators.to_vec(),
            config: Bytes::new(),
            permittedCallers: Vec::new(),
            ttl: ttl_s,
            paymentToken: asset,
            paymentAmount: amount,
            confidentiality: 0,
        };
        let value = if cost.is_native() { amount } else { U256::ZERO };
        Invocation { value, ..Invocation::new(CORE, &call) }
    }

    /// Sends a request of the customer's for a service, and has these operators approve it.
    ///
    /// # Errors
    /// It was refused.
    pub async fn activate(&self, request: &Invocation, operators: &[Address]) -> Result<u64> {
        let requested: ServiceRequested = event(&self.send(self.customer(), request).await?)?;
        let approval = calls::approve_service(self.deployment(), requested.requestId);
        let mut activated = Vec::new();
        for operator in operators {
            activated = events::<ServiceActivated>(&self.send(*operator, &approval).await?);
        }
        Ok(activated.first().context("not activated by the last approval")?.serviceId)
    }

    /// Submits a job of the customer's at its rate in native coin.
    ///
    /// # Errors
    /// It was refused.
    pub async fn submit(&self, service: u64, job: Job, request: &impl SolValue) -> Result<CallKey> {
        let call = self.submission(service, job.id(), request.abi_encode().into()).await?;
        submitted(&self.send(self.customer(), &call).await?)
    }

    /// The submission of a job at its rate, which is nothing to be sent along where it is paid in a token.
    ///
    /// # Errors
    /// The chain does not answer.
    pub async fn submission(&self, service: u64, job: u8, inputs: Bytes) -> Result<Invocation> {
        let cost = match Job::from_id(job) {
            Some(_) => self.chain.call_cost(service, job).await.context("the cost")?,
            None => Cost { asset: Address::ZERO, amount: self.chain.price(job).await? },
        };
        let value = if cost.is_native() { cost.amount } else { U256::ZERO };
        Ok(calls::submit_job(self.deployment(), service, job, inputs, value))
    }
}

/// The call that a transaction submitted.
///
/// # Errors
/// It submitted none.
pub fn submitted(receipt: &TransactionReceipt) -> Result<CallKey> {
    let event: JobSubmitted = event(receipt)?;
    Ok(CallKey { service: event.serviceId, call: event.callId })
}

/// Deeds of operators'.
impl Stage {
    /// An operator's receipt for a call, which the core must take.
    ///
    /// # Errors
    /// It was refused.
    pub async fn answer(&self, operator: Address, key: CallKey, receipt: &JobReceipt) -> Result<TransactionReceipt> {
        self.send(operator, &calls::submit_receipt(self.deployment(), key, receipt)).await
    }

    /// Bytes that an operator answers a call with, receipt or not.
    ///
    /// # Errors
    /// It was refused.
    pub async fn answer_raw(&self, operator: Address, key: CallKey, result: Bytes) -> Result<TransactionReceipt> {
        let call =
            sandbox_sdk::contracts::ITangleCore::submitResultCall { serviceId: key.service, callId: key.call, result };
        self.to_core(operator, &call).await
    }

    /// Whom a call is assigned to.
    ///
    /// # Errors
    /// To nobody.
    pub async fn assigned(&self, key: CallKey) -> Result<Address> {
        let assignment = self.chain.assignment(key).await?.context("no assignment")?;
        ensure!(!assignment.operator.is_zero(), "a batch");
        Ok(assignment.operator)
    }

    /// Whether the core has completed a call.
    ///
    /// # Errors
    /// There is no such call.
    pub async fn is_completed(&self, key: CallKey) -> Result<bool> {
        Ok(self.chain.job_call(key).await?.context("no such call")?.completed)
    }
}

/// A receipt with a made-up answer.
pub fn receipt(outcome: u8, detail: u64) -> JobReceipt {
    JobReceipt { outcome, responseHash: B256::repeat_byte(0x11), detail: U256::from(detail) }
}
