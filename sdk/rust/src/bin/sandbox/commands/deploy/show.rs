//! What a deployment prints.

use std::path::Path;
use std::process::ExitCode;

use alloy::primitives::{Address, U256};
use sandbox_sdk::deploy::{Asset, Deployer, Done, Preview, PriceFile, PriceTable, Sending};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;

#[derive(Serialize)]
struct Deployed<'a> {
    manager: Address,
    blueprint_id: u64,
    sent: &'a [Done],
}

/// The built-in prices as a file.
pub(super) fn built_in_prices(output: &Output) -> Result<ExitCode, Failure> {
    let file = PriceFile::from(&PriceTable::built_in());
    let text = serde_json::to_string_pretty(&file).map_err(|error| Failure::local(error.to_string()))?;
    output.result(&text, &file)?;
    Ok(ExitCode::SUCCESS)
}

/// What would be sent.
pub(super) fn preview(preview: &Preview, output: &Output) -> Result<ExitCode, Failure> {
    let mut text: Vec<String> = preview.transactions.iter().enumerate().map(transaction).collect();
    let (count, from, chain) = (preview.transactions.len(), preview.from, preview.chain_id);
    text.push(match (count, preview.gas()) {
        (0, _) => format!("nothing would be sent on chain {chain}: all is as asked for"),
        (_, Some(gas)) => {
            let cost = Asset::coin().amount(U256::from(gas) * U256::from(preview.gas_price));
            format!("{count} transactions of {from} on chain {chain}, {gas} gas: {cost} at the node's gas price now\nnothing was sent")
        }
        (_, None) => format!("{count} transactions of {from} on chain {chain}; the node tells the gas of the first only\nnothing was sent"),
    });
    output.result(&text.join("\n\n"), preview)?;
    Ok(ExitCode::SUCCESS)
}

fn transaction((index, sending): (usize, &Sending)) -> String {
    let gas = sending.gas.map_or_else(|| "not known before the one above is in a block".into(), |gas| gas.to_string());
    let mut lines = vec![
        format!("{}. {}", index + 1, sending.what),
        format!("   to        {}", sending.to),
        format!("   function  {}", sending.function),
    ];
    let width = sending.arguments.iter().map(|argument| argument.name.len()).max().unwrap_or_default();
    lines
        .extend(sending.arguments.iter().map(|argument| format!("     {:<width$}  {}", argument.name, argument.value)));
    lines.push(format!("   value     {} wei", sending.value));
    lines.push(format!("   gas       {gas}"));
    lines.push(format!("   calldata  {} bytes, keccak256 {}", sending.input_bytes, sending.input_hash));
    lines.join("\n")
}

/// A transaction that is done.
pub(super) fn done(done: &Done, output: &Output) {
    output.progress(&format!("done: {}", done.what));
}

/// What stands now.
pub(super) async fn deployed(
    deployer: &Deployer,
    sent: &[Done],
    (path, output): (&Path, &Output),
) -> Result<ExitCode, Failure> {
    let deployment = deployer.deployment().await?;
    let (manager, blueprint_id) = (deployment.manager, deployment.blueprint_id);
    let mut lines: Vec<_> = sent
        .iter()
        .map(|done| format!("{}: transaction {}, {} gas", done.what, done.transaction, done.gas_used))
        .collect();
    if sent.is_empty() {
        lines.push("nothing was sent: all is as asked for".into());
    }
    lines.push(format!("contract   {manager}\nblueprint  {blueprint_id}\naddresses  {}", path.display()));
    output.result(&lines.join("\n"), &Deployed { manager, blueprint_id, sent })?;
    Ok(ExitCode::SUCCESS)
}
