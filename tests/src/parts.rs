//! Answers of calls that have several: each operator of a batch answers its part.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use alloy::primitives::Address;
use alloy::signers::SignerSync as _;
use alloy::sol_types::SolStruct as _;
use anyhow::{Context, Result};
use futures::future::try_join_all;
use sandbox_protocol::CallKey;
use sandbox_protocol::http::{AnswerBody, CallBody, CallStatus, CallerProof};
use sandbox_protocol::receipt::{ReadCall, domain};
use sandbox_sdk::Account;
use sandbox_sdk::chain::SubmittedJob;
use sandbox_sdk::verify::{self, Expectation};

use crate::wait::until;

/// Life of a signature that a request shows.
const PROOF_S: u64 = 200;

/// What proves to `operator` for a while that this account asks for the call.
///
/// # Errors
/// The key does not sign.
pub fn proof(account: &Account, operator: Address, key: CallKey) -> Result<CallerProof> {
    let expires = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + PROOF_S;
    let CallKey { service, call } = key;
    let document = ReadCall { operator, service, call, expires };
    let domain = domain(account.deployment().chain_id, account.deployment().core);
    let signature = account.key().sign_hash_sync(&document.eip712_signing_hash(&domain))?;
    Ok(CallerProof { address: account.address(), expires, signature })
}

/// Who must answer a call: those that have a part in it, or the one that it is assigned to.
///
/// # Errors
/// The chain does not answer, or knows of no such call.
pub async fn operators(account: &Account, key: CallKey) -> Result<Vec<Address>> {
    let parts = account.chain().parts(key).await.context("the parts")?;
    if !parts.is_empty() {
        return Ok(parts.iter().map(|part| part.operator).collect());
    }
    let assignment = account.chain().assignment(key).await.context("the assignment")?;
    Ok(vec![assignment.context("no such call")?.operator])
}

/// The answer of every operator that has a part in a call, each proven and, with `Settled`, on chain.
///
/// # Errors
/// One does not answer in time, or its answer proves nothing.
pub async fn answers(
    account: &Account,
    submitted: &SubmittedJob,
    far_enough: CallStatus,
    bound: Duration,
) -> Result<Vec<AnswerBody>> {
    let operators = operators(account, submitted.key).await?;
    try_join_all(operators.into_iter().map(|operator| answer(account, submitted, (operator, far_enough), bound))).await
}

async fn answer(
    account: &Account,
    submitted: &SubmittedJob,
    (operator, far_enough): (Address, CallStatus),
    bound: Duration,
) -> Result<AnswerBody> {
    let key = submitted.key;
    let url = account.chain().operator(operator).await.context("the operator")?.apiUrl;
    let url = format!("{}/v1/services/{}/calls/{}", url.trim_end_matches('/'), key.service, key.call);
    let query = [("wait", "10"), ("until", if far_enough == CallStatus::Settled { "settled" } else { "answered" })];
    let request = reqwest::Client::new().get(url).query(&query);
    let request = request.header("authorization", proof(account, operator, key)?.to_string());
    let answered = || async {
        let response = request.try_clone()?.send().await.ok()?.error_for_status().ok()?;
        let body: CallBody = response.json().await.ok()?;
        body.answer.filter(|_| body.status >= far_enough)
    };
    let answer = until(&format!("the answer of operator {operator} to call {key}"), bound, answered).await?;
    verify::offline(&answer)?;
    verify::matches(&answer, &expected(account, submitted, operator))?;
    Ok(answer)
}

fn expected(account: &Account, submitted: &SubmittedJob, operator: Address) -> Expectation {
    Expectation {
        chain_id: account.deployment().chain_id,
        core: account.deployment().core,
        key: submitted.key,
        job: submitted.request.job.id(),
        caller: account.address(),
        operator,
        inputs_hash: submitted.inputs_hash(),
    }
}
