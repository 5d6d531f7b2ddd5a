//! `operators`, `claim`: who offers what, and what one has earned.

use std::process::ExitCode;

use alloy::primitives::{Address, B256};
use sandbox_sdk::contracts::IAgentSandboxBlueprint::OperatorView;
use sandbox_sdk::deploy::Asset;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;

#[derive(Serialize)]
struct Shown {
    operator: Address,
    url: String,
    /// Whether new services and sandboxes may go to it now.
    eligible: bool,
    capacity: u32,
    taken: u32,
    /// Wei for one core-hour, as decimal digits.
    price_per_hour: String,
    seal_key: B256,
}

#[derive(Serialize)]
struct Claimed {
    rewards: Vec<Reward>,
    transaction: Option<B256>,
}

#[derive(Serialize)]
struct Reward {
    /// Zero: the chain's coin.
    asset: Address,
    /// In the asset's smallest unit, as decimal digits.
    amount: String,
}

/// Every operator that is registered, page by page from the contract.
pub(crate) async fn operators(settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let chain = settings.chain().await?;
    let coin = Asset::coin();
    let all = chain.all_operators().await?;
    let registered: Vec<&OperatorView> = all.iter().filter(|operator| operator.registered).collect();
    let line = |view: &&OperatorView| {
        let state = if view.eligible { "" } else { ", not eligible" };
        let price = coin.amount(view.pricePerHour);
        format!("{}  {}/{} taken{state}  {price} a core-hour  {}", view.account, view.used, view.capacity, view.apiUrl)
    };
    let lines: Vec<_> = registered.iter().map(line).collect();
    let shown: Vec<_> = registered.into_iter().map(shown).collect();
    output.result(&lines.join("\n"), &shown)?;
    Ok(ExitCode::SUCCESS)
}

fn shown(view: &OperatorView) -> Shown {
    Shown {
        operator: view.account,
        url: view.apiUrl.clone(),
        eligible: view.eligible,
        capacity: view.capacity,
        taken: view.used,
        price_per_hour: view.pricePerHour.to_string(),
        seal_key: view.sealKey,
    }
}

/// Pays out what the account has earned, in coin and in every token. Nothing is sent where there is nothing.
pub(crate) async fn claim(settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    let account = settings.account().await?;
    let pending = account.chain().all_pending_rewards(account.address()).await?;
    let pending: Vec<_> = pending.into_iter().filter(|cost| !cost.amount.is_zero()).collect();
    let (mut lines, mut rewards) = (Vec::new(), Vec::new());
    for cost in &pending {
        lines.push(Asset::at(account.chain().provider(), cost.asset).await?.amount(cost.amount));
        rewards.push(Reward { asset: cost.asset, amount: cost.amount.to_string() });
    }
    let transaction = if pending.is_empty() { None } else { Some(account.claim_rewards().await?.transaction) };
    let text = if lines.is_empty() { "nothing to claim".into() } else { format!("claimed {}", lines.join(", ")) };
    output.result(&text, &Claimed { rewards, transaction })?;
    Ok(ExitCode::SUCCESS)
}
