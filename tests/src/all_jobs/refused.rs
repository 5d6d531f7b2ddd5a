//! Ids of the job table that are reserved: the contract refuses each by name, and a call that is sent all the same does nothing.

use std::time::Duration;

use alloy::network::TransactionBuilder as _;
use alloy::primitives::{B256, Bytes};
use alloy::providers::Provider as _;
use anyhow::{Context, Result, bail, ensure};
use sandbox_protocol::Job;
use sandbox_sdk::Refusal;
use sandbox_sdk::calls;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::IAgentSandboxBlueprintErrors as BlueprintRefusal;

use super::Trio;
use crate::wait::until;

/// Gas for a call that is refused.
const GAS: u64 = 3_000_000;
/// Time for it to be in a block.
const MINED_WITHIN: Duration = Duration::from_secs(20);

/// A reserved id, refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// The id.
    pub id: u8,
    /// In the contract's words.
    pub why: String,
    /// Gas of the call that was refused in its block.
    pub gas: u64,
}

impl Trio {
    /// Has every reserved id refused, by the contract's own error and in a block.
    ///
    /// # Errors
    /// One is taken, or refused for something else.
    pub async fn reserved_ids(&self) -> Result<Vec<Reserved>> {
        let mut refused = Vec::new();
        for id in (0..Job::TABLE_LENGTH).filter(|id| Job::from_id(*id).is_none()) {
            refused.push(self.refused(id).await?);
        }
        Ok(refused)
    }

    async fn refused(&self, id: u8) -> Result<Reserved> {
        let (deployment, provider) = (&self.ground.deployment, self.ground.chain.provider());
        // At its rate, or the core would refuse it for that.
        let rate = self.account.chain().price(id).await.context("the rate")?;
        let call = calls::submit_job(deployment, self.service, id, Bytes::new(), rate);
        let call = call.transaction(self.account.address()).with_gas_limit(GAS).with_gas_price(0);
        let why = match provider.call(call.clone()).await {
            Ok(_) => bail!("job {id} is not refused"),
            Err(error) => Refusal::of(&error).with_context(|| format!("not a refusal: {error}"))?,
        };
        let is_named = matches!(&why, Refusal::Blueprint(BlueprintRefusal::UnknownJob(error)) if error.job == id);
        ensure!(is_named, "job {id} is refused for something else: {why}");
        // As it is, unlike a client of ours would: none sends what is refused in its simulation.
        let hash: B256 = provider.raw_request("eth_sendTransaction".into(), (call,)).await.context("a raw call")?;
        let mined = || async { provider.get_transaction_receipt(hash).await.ok().flatten() };
        let receipt = until("a raw call to be in a block", MINED_WITHIN, mined).await?;
        ensure!(!receipt.status(), "job {id} was taken");
        Ok(Reserved { id, why: why.to_string(), gas: receipt.gas_used })
    }
}
