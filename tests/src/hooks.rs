//! What the manager's hooks cost where the core calls them: the gas of the hook's own frame in a transaction of its own.
//!
//! Nothing but what the core itself does is warm then. The hook's cap counts the same gas.

use std::fmt::Write as _;

use alloy::primitives::{Address, B256, Bytes, U64};
use alloy::rpc::types::TransactionReceipt;
use alloy::sol_types::SolCall;
use anyhow::{Context, Result, ensure};
use sandbox_sdk::devchain::checkout;
use serde::{Deserialize, Serialize};

use crate::stage::Stage;

/// A call within a transaction.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Frame {
    to: Option<Address>,
    input: Bytes,
    gas_used: U64,
    error: Option<String>,
    #[serde(default)]
    calls: Vec<Frame>,
}

#[derive(Debug, Clone, Serialize)]
struct Tracer {
    tracer: &'static str,
}

impl Stage {
    /// Gas of each run of hook `H` in a transaction, in their order. None of them may have failed.
    ///
    /// # Errors
    /// There was no such hook, or it failed.
    pub async fn hook_gas<H: SolCall>(&self, receipt: &TransactionReceipt) -> Result<Vec<u64>> {
        let hash: B256 = receipt.transaction_hash;
        let root: Frame = self.node("debug_traceTransaction", (hash, Tracer { tracer: "callTracer" })).await?;
        let mut found = Vec::new();
        collect(&root, self.deployment().manager, &H::SELECTOR, &mut found);
        ensure!(!found.is_empty(), "{} was not called", H::SIGNATURE);
        let gas = |frame: &&Frame| match &frame.error {
            Some(error) => Err(anyhow::anyhow!("{} failed: {error}", H::SIGNATURE)),
            None => Ok(frame.gas_used.to::<u64>()),
        };
        found.iter().map(gas).collect()
    }
}

/// The outermost frames of a hook; what it delegates on is part of it.
fn collect<'a>(frame: &'a Frame, manager: Address, selector: &[u8], found: &mut Vec<&'a Frame>) {
    if frame.to == Some(manager) && frame.input.starts_with(selector) {
        found.push(frame);
    } else {
        frame.calls.iter().for_each(|call| collect(call, manager, selector, found));
    }
}

/// One figure and what it must not exceed.
#[derive(Debug, Clone, Serialize)]
pub struct Weighing {
    /// The hook and what it was given.
    pub case: String,
    /// Operators of the service.
    pub operators: usize,
    /// Gas of the hook.
    pub gas: u64,
    /// The most it may be.
    pub gas_max: u64,
}

/// Figures of one kind.
#[derive(Debug, Default)]
pub struct Scale(Vec<Weighing>);

impl Scale {
    /// Adds a figure.
    pub fn add(&mut self, case: impl Into<String>, operators: usize, gas: u64, gas_max: u64) {
        self.0.push(Weighing { case: case.into(), operators, gas, gas_max });
    }

    /// Prints the figures, keeps them beside those of the benches as `hooks.<kind>.json`, and fails if one is too high.
    ///
    /// # Errors
    /// One is too high, or they cannot be kept.
    pub fn read_out(&self, kind: &str) -> Result<()> {
        let mut table = format!("{:<72} {:>9} {:>9} {:>9}\n", format!("hooks: {kind}"), "operators", "gas", "at most");
        for Weighing { case, operators, gas, gas_max } in &self.0 {
            let mark = if gas > gas_max { " !" } else { "" };
            writeln!(table, "{case:<72} {operators:>9} {gas:>9} {gas_max:>9}{mark}").context("a table")?;
        }
        println!("{table}");
        let dir = checkout().join("bench-results");
        std::fs::create_dir_all(&dir).context("no directory for figures")?;
        let file = dir.join(format!("hooks.{kind}.json"));
        std::fs::write(file, serde_json::to_vec_pretty(&self.0)?).context("cannot keep figures")?;
        let too_high: Vec<_> = self.0.iter().filter(|weighing| weighing.gas > weighing.gas_max).collect();
        ensure!(too_high.is_empty(), "too dear: {too_high:#?}");
        Ok(())
    }
}
