//! The other calls of a batch that is paid by quotes: one for each operator, submitted together by one caller under one name. The
//! contract knows nothing of such a batch, so its calls are found by their logs.

use std::collections::BTreeSet;

use alloy::primitives::{Address, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::{Filter, Log};
use alloy::sol_types::SolEvent as _;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use sandbox_protocol::abi::{self, BatchExecRequest, BatchTaskRequest};
use sandbox_protocol::batch::{Aggregation, BatchId};
use sandbox_protocol::{CallKey, Job};
use sandbox_sdk::Chain;
use sandbox_sdk::chain::ReadError;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::Part;
use sandbox_sdk::contracts::ITangleCore::JobSubmittedFromQuote;
use sandbox_sdk::limits::SERVICE_OPERATORS_MAX;

use crate::limits::{BATCH_LOOKUPS_MAX, BATCH_SIBLING_BLOCKS_MAX};

/// What a call has in common with the others of its batch.
#[derive(Debug, Clone)]
pub(super) struct InCommon {
    pub(super) job: Job,
    pub(super) caller: Address,
    pub(super) batch: BatchId,
}

/// A call whose batch may have others.
pub(super) struct Siblings {
    call: CallKey,
    common: InCommon,
    /// Blocks whose logs are still to be read: first and last.
    unread: (u64, u64),
    found: BTreeSet<CallKey>,
}

impl Siblings {
    /// The others of a call that came in `block`.
    pub(super) const fn of(call: CallKey, common: InCommon, block: u64) -> Self {
        let unread = (block.saturating_sub(BATCH_SIBLING_BLOCKS_MAX), block.saturating_add(BATCH_SIBLING_BLOCKS_MAX));
        Self { call, common, unread, found: BTreeSet::new() }
    }

    /// The parts of all calls of the batch that are known by the block `head`, this one's among them. What the chain does not tell
    /// of one hides nothing of another.
    pub(super) async fn parts(&mut self, chain: &Chain, head: u64) -> Vec<Part> {
        heard(self.call, self.read(chain, head).await);
        let ask = async |call: CallKey| heard(call, chain.parts(call).await);
        let calls: Vec<BoxFuture<'_, _>> =
            self.found.iter().chain([&self.call]).map(|call| ask(*call).boxed()).collect();
        let parts: Vec<_> = stream::iter(calls).buffered(BATCH_LOOKUPS_MAX).collect().await;
        parts.into_iter().flatten().flatten().collect()
    }

    async fn read(&mut self, chain: &Chain, head: u64) -> Result<(), ReadError> {
        let (from, last) = self.unread;
        let to = last.min(head);
        if from > to {
            return Ok(());
        }
        let filter = Filter::new()
            .address(chain.deployment().core)
            .event_signature(JobSubmittedFromQuote::SIGNATURE_HASH)
            .topic1(U256::from(self.call.service))
            .from_block(from)
            .to_block(to);
        let logs = chain.provider().get_logs(&filter).await.map_err(ReadError::node("eth_getLogs"))?;
        let found = logs.iter().filter_map(|log| self.common.other(log)).filter(|call| *call != self.call);
        // A batch has a call for each operator at the most.
        self.found.extend(found.take((SERVICE_OPERATORS_MAX as usize).saturating_sub(self.found.len())));
        self.unread.0 = to + 1;
        Ok(())
    }
}

fn heard<T>(call: CallKey, answer: Result<T, ReadError>) -> Option<T> {
    answer.inspect_err(|error| tracing::debug!(%call, error = %crate::error_chain(error), "looked in vain")).ok()
}

impl InCommon {
    /// The call that a log tells of, if it is one of the batch.
    fn other(&self, log: &Log) -> Option<CallKey> {
        let event = log.log_decode::<JobSubmittedFromQuote>().ok()?.inner.data;
        if event.caller != self.caller || event.jobIndex != self.job.id() {
            return None;
        }
        let (batch, aggregation) = match self.job {
            Job::BatchExec => {
                let request: BatchExecRequest = abi::decode(&event.inputs).ok()?;
                (request.batch_id, request.aggregation)
            }
            Job::BatchTask => {
                let request: BatchTaskRequest = abi::decode(&event.inputs).ok()?;
                (request.batch_id, request.aggregation)
            }
            _ => return None,
        };
        let call = CallKey { service: event.serviceId, call: event.callId };
        let is_named = BatchId::asked(&batch, call).as_ref() == Ok(&self.batch);
        (is_named && aggregation.parse() == Ok(Aggregation::FirstSuccess)).then_some(call)
    }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Bytes;
    use alloy::sol_types::SolValue as _;
    use alloy::transports::mock::Asserter;

    use super::*;
    use crate::chain::mocked;

    const CALLER: Address = Address::repeat_byte(1);
    const CALL: CallKey = CallKey { service: 7, call: 3 };
    const BLOCK: u64 = 100;

    fn log(call: u64, caller: Address, job: Job, (batch, aggregation): (&str, &str)) -> Log {
        let request = BatchExecRequest {
            sidecar_endpoints: vec!["sbx-7-1-0".into()],
            command: "true".into(),
            aggregation: aggregation.into(),
            batch_id: batch.into(),
            ..Default::default()
        };
        let event = JobSubmittedFromQuote {
            serviceId: 7,
            callId: call,
            jobIndex: job.id(),
            caller,
            quotedOperators: vec![Address::ZERO],
            totalPrice: U256::ONE,
            inputs: request.abi_encode().into(),
        };
        let inner = alloy::primitives::Log { address: Address::ZERO, data: event.encode_log_data() };
        Log { inner, block_number: Some(BLOCK), ..Default::default() }
    }

    fn part(operator: u8) -> Part {
        Part { operator: Address::repeat_byte(operator), ..Default::default() }
    }

    #[tokio::test]
    async fn calls_of_one_caller_under_one_name_are_one_batch_and_their_parts_are_known() {
        let answers = Asserter::new();
        let chain = mocked::chain(&answers).await;
        let first = ("b", "first_success");
        let (exec, task) = (Job::BatchExec, Job::BatchTask);
        answers.push_success(&vec![
            log(3, CALLER, exec, first),
            log(4, CALLER, exec, first),
            log(5, Address::repeat_byte(9), exec, first),
            log(6, CALLER, task, first),
            log(7, CALLER, exec, ("c", "first_success")),
            log(8, CALLER, exec, ("b", "all")),
        ]);
        answers.push_success(&Bytes::from(vec![part(4)].abi_encode()));
        answers.push_success(&Bytes::from(vec![part(3)].abi_encode()));
        let common = InCommon { job: Job::BatchExec, caller: CALLER, batch: "b".parse().unwrap() };
        let mut siblings = Siblings::of(CALL, common, BLOCK);
        assert_eq!(siblings.parts(&chain, BLOCK).await, [part(4), part(3)]);
        // The same block is not read again, and what cannot be read of one call hides no other.
        answers.push_failure_msg("busy");
        answers.push_success(&Bytes::from(vec![part(3)].abi_encode()));
        assert_eq!(siblings.parts(&chain, BLOCK).await, [part(3)]);
        // The next one is, as long as calls of the batch may come.
        answers.push_success(&vec![log(9, CALLER, exec, first)]);
        for operator in [4, 9, 3] {
            answers.push_success(&Bytes::from(vec![part(operator)].abi_encode()));
        }
        let last = BLOCK + BATCH_SIBLING_BLOCKS_MAX;
        assert_eq!(siblings.parts(&chain, last).await, [part(4), part(9), part(3)]);
        for operator in [4, 9, 3] {
            answers.push_success(&Bytes::from(vec![part(operator)].abi_encode()));
        }
        assert_eq!(siblings.parts(&chain, last + 1).await.len(), 3);
    }
}
