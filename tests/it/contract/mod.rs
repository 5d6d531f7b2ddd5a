//! What the contract promises, on the real Tangle core and without an operator process.

mod batch;
mod crowd;
mod ends;
mod gas;
mod gate;
mod jobs;
mod membership;
mod payments;
mod quoted;
mod reassign;
mod requests;
mod sweep;
mod workflows;

use alloy::primitives::{Address, U256};
use anyhow::{Context, Result};
use sandbox_protocol::{CallKey, Job, SandboxId};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::Assignment;
use sandbox_sdk::deploy::{Asset, Floor, Pricing, Terms};
use sandbox_sdk::devchain;
use sandbox_tests::stage::{STRANGER, Stage, receipt};

use self::requests::slot;

/// Outcomes of receipts.
const DONE: u8 = 0;
const CALLER: u8 = 1;
const OPERATOR: u8 = 2;
/// The bitmap of a create's one sandbox.
const FIRST_SLOT: u64 = 1;
const HOUR_S: u64 = 3_600;
/// The chain's coin.
const COIN: Address = Address::ZERO;

/// A create that is submitted, and whom it is assigned to.
async fn created(stage: &Stage, service: u64) -> Result<(CallKey, Address)> {
    let key = stage.submit(service, Job::SandboxCreate, &requests::create()).await?;
    Ok((key, stage.assigned(key).await?))
}

/// A live sandbox and its operator.
async fn live(stage: &Stage, service: u64) -> Result<(SandboxId, Address)> {
    let (key, operator) = created(stage, service).await?;
    stage.answer(operator, key, &receipt(DONE, FIRST_SLOT)).await?;
    Ok((slot(key, 0), operator))
}

/// Some operator of the stage that is not this one.
fn another(stage: &Stage, operator: Address) -> Result<Address> {
    stage.operators().iter().copied().find(|other| *other != operator).context("no other operator")
}

/// Somebody who has nothing to do with anything.
fn stranger() -> Address {
    devchain::key(STRANGER).address()
}

/// What our contract knows of a call.
async fn assignment(stage: &Stage, key: CallKey) -> Result<Assignment> {
    stage.chain().assignment(key).await?.context("no such call")
}

/// How a blueprint is paid whose services cost `per_operator_hour` in coin, all at once.
fn pay_once(per_operator_hour: u64) -> Terms {
    let floor = Floor { asset: Asset::coin(), per_operator_hour: U256::from(per_operator_hour) };
    Terms { pricing: Some(Pricing::PayOnce), floor: Some(floor), ..Default::default() }
}

/// A service of an hour for which exactly the floor is paid.
async fn service_at_floor(stage: &Stage, operators: &[Address]) -> Result<u64> {
    let floor = stage.chain().service_floor(operators.len() as u32, HOUR_S).await?;
    stage.activate(&stage.paid_request(operators, HOUR_S, floor), operators).await
}

async fn rate(stage: &Stage, job: Job) -> Result<U256> {
    Ok(stage.chain().price(job.id()).await?)
}
