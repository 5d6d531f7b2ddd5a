//! The events that the operator reads, and what each says.

use alloy::primitives::B256;
use alloy::providers::Provider as _;
use alloy::rpc::types::{Filter, Log};
use alloy::sol_types::SolEvent;
use alloy::transports::TransportError;
use sandbox_protocol::CallKey;
use sandbox_sdk::Chain;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::{CallReassigned, WorkflowStatusSet};
use sandbox_sdk::contracts::ITangleCore::{JobSubmitted, JobSubmittedFromQuote, ServiceTerminated};

use crate::records::CallRecord;

/// Which blocks to read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Blocks {
    /// Exactly this one.
    One(B256),
    /// Those of these numbers, both included, on the node's present fork.
    Range(u64, u64),
}

/// What an event says.
#[derive(Debug)]
pub(super) enum Word {
    /// A call was submitted.
    Submitted(Box<CallRecord>),
    /// A call moved to another operator, in this block.
    Reassigned(CallKey, u64),
    /// A workflow's owner paused or resumed it.
    Workflow(CallKey),
    /// A service ended.
    Ended(u64),
}

/// The events of these blocks, in their order.
pub(super) async fn words(chain: &Chain, blocks: Blocks) -> Result<Vec<Word>, TransportError> {
    let deployment = chain.deployment();
    let filter = match blocks {
        Blocks::One(hash) => Filter::new().at_block_hash(hash),
        Blocks::Range(from, to) => Filter::new().from_block(from).to_block(to),
    };
    let filter = filter.address(vec![deployment.core, deployment.manager]).event_signature(vec![
        JobSubmitted::SIGNATURE_HASH,
        JobSubmittedFromQuote::SIGNATURE_HASH,
        ServiceTerminated::SIGNATURE_HASH,
        CallReassigned::SIGNATURE_HASH,
        WorkflowStatusSet::SIGNATURE_HASH,
    ]);
    Ok(chain.provider().get_logs(&filter).await?.iter().filter(|log| !log.removed).filter_map(word).collect())
}

fn word(log: &Log) -> Option<Word> {
    if let Some(call) = submitted(log) {
        return Some(Word::Submitted(Box::new(call)));
    }
    if let Ok(event) = log.log_decode::<CallReassigned>() {
        let event = event.inner.data;
        return Some(Word::Reassigned(CallKey { service: event.serviceId, call: event.callId }, log.block_number?));
    }
    if let Ok(event) = log.log_decode::<WorkflowStatusSet>() {
        let event = event.inner.data;
        return Some(Word::Workflow(CallKey { service: event.serviceId, call: event.workflowId }));
    }
    Some(Word::Ended(log.log_decode::<ServiceTerminated>().ok()?.inner.serviceId))
}

/// The call that a log tells of, by either of the core's two events.
fn submitted(log: &Log) -> Option<CallRecord> {
    let block = log.block_number?;
    if let Ok(event) = log.log_decode::<JobSubmitted>() {
        let event = event.inner.data;
        let key = CallKey { service: event.serviceId, call: event.callId };
        return Some(CallRecord::seen(key, event.jobIndex, event.caller, event.inputs, block));
    }
    let event = log.log_decode::<JobSubmittedFromQuote>().ok()?.inner.data;
    let key = CallKey { service: event.serviceId, call: event.callId };
    Some(CallRecord::seen(key, event.jobIndex, event.caller, event.inputs, block))
}
