//! Jobs that are asked for while no operator listens, and what the chain says of their answers.

use std::collections::BTreeMap;
use std::fmt::Debug;

use alloy::network::TransactionBuilder as _;
use alloy::primitives::{Address, B256, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::{Filter, TransactionReceipt};
use alloy::sol_types::SolEvent as _;
use anyhow::{Context, Result, ensure};
use sandbox_protocol::{CallKey, Job, SandboxId};
use sandbox_sdk::chain::Account;
use sandbox_sdk::contracts::ITangleCore::{JobResultSubmitted, JobSubmitted};
use sandbox_sdk::requests::ExecBuilder;
use sandbox_sdk::{Chain, calls};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Blocks of the outage.
pub(super) const BLOCKS: u64 = 500;
/// Jobs that are asked for in it, one of them by somebody whose call reverts.
pub(super) const JOBS: u64 = 1_000;
/// Gas of a submission, which is not estimated: the one that reverts would not be sent.
const GAS: u64 = 3_000_000;

/// What was answered, as far as it was looked at.
#[derive(Default)]
pub(super) struct Answered {
    /// How often, by the number of the call, whoever did it.
    pub(super) times: BTreeMap<u64, usize>,
    /// The first block that was not looked at.
    next: u64,
}

/// A chain on which the jobs of an outage wait.
pub(super) struct Outage {
    chain: Chain,
    service: u64,
    /// The first of its blocks.
    pub(super) since: u64,
    /// The calls that were accepted.
    pub(super) calls: Vec<CallKey>,
}

impl Outage {
    /// Has `owner` ask for `true` in its sandbox, two jobs a block; one of them is `stranger`'s.
    pub(super) async fn new(owner: &Account, stranger: Address, sandbox: SandboxId) -> Result<Self> {
        let chain = owner.chain().clone();
        let service = sandbox.origin.service;
        let since = chain.head().await? + 1;
        let mut outage = Self { chain, service, since, calls: Vec::new() };
        let inputs = ExecBuilder::new(sandbox, "true").build()?.inputs;
        let value = outage.chain.call_cost(service, Job::Exec.id()).await?.amount;
        let submission = calls::submit_job(outage.chain.deployment(), service, Job::Exec.id(), inputs, value);
        outage.mine_by_hand(true).await?;
        let mut sent = Vec::new();
        for job in 0..JOBS {
            let from = if job == JOBS / 2 { stranger } else { owner.address() };
            let transaction = submission.transaction(from).with_gas_limit(GAS).with_gas_price(0);
            sent.push(outage.node::<B256>("eth_sendTransaction", (transaction,)).await?);
            if (job + 1) % (JOBS / BLOCKS) == 0 {
                outage.node::<String>("evm_mine", ()).await?;
            }
        }
        for transaction in sent {
            outage.calls.extend(outage.submitted(transaction).await?);
        }
        let accepted = outage.calls.len() as u64;
        ensure!(accepted == JOBS - 1, "{accepted} jobs of {JOBS} were accepted");
        outage.mine_by_hand(false).await?;
        Ok(outage)
    }

    /// The call of a transaction, unless it was refused.
    async fn submitted(&self, transaction: B256) -> Result<Option<CallKey>> {
        let receipt: Option<TransactionReceipt> = self.node("eth_getTransactionReceipt", (transaction,)).await?;
        let receipt = receipt.context("a submission is in no block")?;
        let event = receipt.logs().iter().find_map(|log| log.log_decode::<JobSubmitted>().ok());
        Ok(event.map(|log| CallKey { service: log.inner.serviceId, call: log.inner.callId }))
    }

    /// Remembers the state of the chain.
    pub(super) async fn mark(&self) -> Result<U256> {
        self.node("evm_snapshot", ()).await
    }

    /// Goes back to a state.
    pub(super) async fn back_to(&self, mark: U256) -> Result<()> {
        // The node's own mining does not bear it.
        self.mine_by_hand(true).await?;
        ensure!(self.node::<bool>("evm_revert", (mark,)).await?, "the chain did not go back");
        self.mine_by_hand(false).await
    }

    /// Adds what was answered since the last look.
    pub(super) async fn look(&self, answers: &mut Answered) -> Result<()> {
        let (from, head) = (answers.next.max(self.since), self.chain.head().await?);
        if head < from {
            return Ok(());
        }
        let filter = Filter::new()
            .address(self.chain.deployment().core)
            .event_signature(JobResultSubmitted::SIGNATURE_HASH)
            .topic1(U256::from(self.service))
            .from_block(from)
            .to_block(head);
        for log in self.chain.provider().get_logs(&filter).await.context("the answers")? {
            *answers.times.entry(log.log_decode::<JobResultSubmitted>()?.inner.callId).or_default() += 1;
        }
        answers.next = head + 1;
        Ok(())
    }

    async fn mine_by_hand(&self, by_hand: bool) -> Result<()> {
        self.node::<()>("evm_setAutomine", (!by_hand,)).await
    }

    async fn node<A>(
        &self,
        method: &'static str,
        parameters: impl Serialize + Clone + Debug + Send + Sync + Unpin,
    ) -> Result<A>
    where
        A: DeserializeOwned + Debug + Send + Sync + Unpin + 'static,
    {
        self.chain.provider().raw_request(method.into(), parameters).await.context(method)
    }
}
