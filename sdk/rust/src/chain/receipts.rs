//! The receipts of a call, as the chain has recorded them: of a batch one of each operator.

use alloy::primitives::{Address, B256, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::{Filter, Log};
use alloy::sol_types::SolEvent as _;
use sandbox_protocol::CallKey;

use super::{Chain, ReadError};
use crate::contracts::IAgentSandboxBlueprint::ReceiptRecorded;
use crate::limits::RECEIPT_SPAN_BLOCKS;

/// A receipt on chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Whose it is.
    pub operator: Address,
    /// Its outcome.
    pub outcome: u8,
    /// keccak256 of the response.
    pub response_hash: B256,
    /// Of a batch create, the slots that it made.
    pub detail: U256,
    /// Where it stands among all that happened: its block, and its log there.
    pub place: (u64, u64),
}

impl Chain {
    /// The receipts of a call that is in block `since`, in the chain's order, as soon as there are `wanted`.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn recorded(&self, key: CallKey, since: u64, wanted: usize) -> Result<Vec<Recorded>, ReadError> {
        let head = self.head().await?;
        let (mut from, mut found) = (since, Vec::new());
        while from <= head && found.len() < wanted {
            let to = head.min(from.saturating_add(RECEIPT_SPAN_BLOCKS - 1));
            let filter = Filter::new()
                .address(self.deployment().manager)
                .event_signature(ReceiptRecorded::SIGNATURE_HASH)
                .topic1(U256::from(key.service))
                .topic2(U256::from(key.call))
                .from_block(from)
                .to_block(to);
            let logs = self.provider().get_logs(&filter).await.map_err(ReadError::node("eth_getLogs"))?;
            found.extend(logs.iter().filter_map(recorded));
            from = to + 1;
        }
        Ok(found)
    }
}

fn recorded(log: &Log) -> Option<Recorded> {
    let event = log.log_decode::<ReceiptRecorded>().ok()?.inner.data;
    let place = (log.block_number?, log.log_index?);
    let ReceiptRecorded { operator, outcome, responseHash: response_hash, detail, .. } = event;
    Some(Recorded { operator, outcome, response_hash, detail, place })
}
