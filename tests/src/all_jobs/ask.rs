//! One job, from its submission to the receipts of all whom it is assigned to.

use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::Filter;
use alloy::sol_types::{SolEvent as _, SolType, SolValue};
use anyhow::{Context, Result, ensure};
use sandbox_protocol::http::{AnswerBody, CallStatus};
use sandbox_protocol::receipt::Outcome;
use sandbox_protocol::{CallKey, Job, abi};
use sandbox_sdk::Account;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::ReceiptRecorded;
use sandbox_sdk::requests::JobRequest;

use crate::ground::Ground;
use crate::parts;
use crate::wait::until;

/// Time for a job, its receipts on chain included.
const WITHIN: Duration = Duration::from_secs(120);

/// What one operator made of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The job.
    pub job: Job,
    /// Who answered.
    pub operator: Address,
    /// As on chain.
    pub outcome: Outcome,
    /// Gas of the customer's call, which all its parts share.
    pub call_gas: u64,
    /// Gas of the operator's receipt.
    pub receipt_gas: u64,
    /// From the submission to the receipt on chain.
    pub time: Duration,
}

/// A job that is done.
pub(super) struct Done {
    pub(super) key: CallKey,
    pub(super) answers: Vec<AnswerBody>,
    pub(super) rows: Vec<Row>,
}

impl Done {
    /// The one answer.
    pub(super) fn one<T>(&self) -> Result<T>
    where
        T: SolValue + From<<T::SolType as SolType>::RustType>,
    {
        let mut all = self.all()?;
        ensure!(all.len() == 1, "{} answers", all.len());
        all.pop().context("no answer")
    }

    /// Every operator's answer.
    pub(super) fn all<T>(&self) -> Result<Vec<T>>
    where
        T: SolValue + From<<T::SolType as SolType>::RustType>,
    {
        self.answers.iter().map(|answer| Ok(abi::decode(&answer.response)?)).collect()
    }
}

/// Has a job done, well, by all whom it is assigned to.
pub(super) async fn ask(ground: &Ground, account: &Account, service: u64, request: JobRequest) -> Result<Done> {
    let (job, begun) = (request.job, Instant::now());
    let what = || job.name().to_owned();
    let submitted = account.submit_job(service, request).await.with_context(what)?;
    let answers = parts::answers(account, &submitted, CallStatus::Settled, WITHIN).await.with_context(what)?;
    let receipts = recorded(ground, submitted.key, answers.len()).await.with_context(what)?;
    let time = begun.elapsed();
    let call_gas = gas(ground, submitted.transaction).await?;
    let mut rows = Vec::new();
    for answer in &answers {
        let signed = &answer.receipt.receipt;
        let of_its = |(receipt, _): &&(ReceiptRecorded, B256)| receipt.operator == signed.operator;
        let (receipt, transaction) = receipts.iter().find(of_its).context("an operator without a receipt")?;
        let is_same = (receipt.outcome, receipt.responseHash) == (signed.outcome, signed.response_hash);
        ensure!(is_same, "{}: another receipt is on chain than was signed", what());
        let outcome = answer.outcome;
        ensure!(outcome == Outcome::Done, "{}: {outcome:?}: {:#}", what(), answer.response_json);
        let receipt_gas = gas(ground, *transaction).await?;
        rows.push(Row { job, operator: signed.operator, outcome, call_gas, receipt_gas, time });
    }
    Ok(Done { key: submitted.key, answers, rows })
}

/// The receipts of a call, once there are so many, each with its transaction.
async fn recorded(ground: &Ground, key: CallKey, count: usize) -> Result<Vec<(ReceiptRecorded, B256)>> {
    let filter = Filter::new()
        .address(ground.deployment.manager)
        .event_signature(ReceiptRecorded::SIGNATURE_HASH)
        .topic1(U256::from(key.service))
        .topic2(U256::from(key.call))
        .from_block(0);
    let logs = until("the receipts on chain", WITHIN, || async {
        ground.chain.provider().get_logs(&filter).await.ok().filter(|logs| logs.len() >= count)
    });
    let logs = logs.await?;
    let read = |log: &alloy::rpc::types::Log| {
        Ok((log.log_decode::<ReceiptRecorded>()?.inner.data, log.transaction_hash.context("no transaction")?))
    };
    logs.iter().map(read).collect()
}

async fn gas(ground: &Ground, transaction: B256) -> Result<u64> {
    let receipt = ground.chain.provider().get_transaction_receipt(transaction).await.context("a receipt")?;
    Ok(receipt.context("no receipt of a transaction")?.gas_used)
}
