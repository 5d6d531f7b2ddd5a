//! Batches: many sandboxes created, or one thing done in many, over all operators of a service.
//!
//! | module | what it is |
//! |---|---|
//! | `plan` | who will make how many, before anything is sent |
//! | `send` | one call for all, or one quoted call for each operator, under one batch id |
//! | `parts` | what each operator answered, proven by its own receipt |
//! | `claims` | what an answer says of its items, and where it lies |
//! | `merge` | all parts as one table |
//! | `find` | which calls are a batch that is known by its name |
//! | `live` | what operators tell meanwhile, which nothing proves |
//!
//! No operator is believed about another's part: who must answer is read from the chain, as is what each has attested to.

mod claims;
mod find;
mod live;
mod merge;
mod parts;
mod plan;
mod send;

use alloy::primitives::{Address, B256, keccak256};
use sandbox_protocol::abi;
use sandbox_protocol::batch::{Aggregation, BatchId};
use sandbox_protocol::{CallKey, Job, SandboxId};

use crate::answers::AnswerError;
use crate::api::ApiError;
use crate::chain::{CustomerError, ReadError, Submission, SubmittedJob};
use crate::quotes::AskError;
use crate::requests::{JobRequest, RequestError};
use crate::sealing::SealingError;

pub use claims::Lie;
pub use find::Found;
pub use live::{LiveBatch, LiveReport, NotTold, Unheard};
pub use merge::{Item, Merged, PartStanding, State};
pub use parts::Standing;
pub use plan::{Offer, Share, plan, seed};
pub use send::{Quoted, QuotedCall, Sent, fresh_id};

/// What became of a batch.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The chain could not be asked.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The request would be refused.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// What is not to be public could not be sealed.
    #[error(transparent)]
    Sealing(#[from] SealingError),
    /// A call was not sent.
    #[error(transparent)]
    Customer(#[from] CustomerError),
    /// Quotes could not be asked for.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// An answer could not be asked for.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// An operator's API did not do what was asked.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// An operator that is named is none of the service's.
    #[error("operator {operator} does not serve service {service}")]
    NotOfService {
        /// The service.
        service: u64,
        /// The operator.
        operator: Address,
    },
    /// More sandboxes than the operators would take.
    #[error("{wanted} sandboxes are more than the {free} that the operators have room for")]
    NoRoom {
        /// How many are to be made.
        wanted: u32,
        /// How many can be.
        free: u32,
    },
    /// An operator that holds some of the sandboxes does not quote, so nothing was sent.
    #[error("operator {operator} does not quote for what it holds; nothing was sent")]
    Unquoted {
        /// The operator.
        operator: Address,
        /// Why.
        source: AskError,
    },
    /// Nobody that has room quotes.
    #[error("no operator that has room quotes: {0}")]
    Nobody(String),
    /// A sandbox that the chain knows nobody for.
    #[error("nobody holds sandbox {0}")]
    NoSandbox(SandboxId),
    /// Nobody knows of such a batch, or it is somebody else's.
    #[error("no operator of service {service} knows a batch {id} of this account")]
    Unknown {
        /// The service.
        service: u64,
        /// The batch.
        id: BatchId,
    },
    /// Creates are said to be of such a batch, and no answer to them proves it.
    #[error("{} said to be of batch {id}, and not proven to be", said_of(calls))]
    Unattested {
        /// The batch.
        id: BatchId,
        /// The creates.
        calls: Vec<CallKey>,
    },
    /// It is no call of a batch.
    #[error("call {0} is not one of a batch")]
    NotABatch(CallKey),
}

fn said_of(calls: &[CallKey]) -> String {
    let names: Vec<_> = calls.iter().map(CallKey::to_string).collect();
    let (calls, are) = if names.len() == 1 { ("call", "is") } else { ("calls", "are") };
    format!("{calls} {} {are}", names.join(", "))
}

/// A batch: the calls that are it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// What it is called.
    pub id: BatchId,
    /// Its calls, by number.
    pub calls: Vec<BatchCall>,
}

/// One call of a batch: 20, 21 or 22; or the 23 that asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchCall {
    /// The call.
    pub key: CallKey,
    /// Its job.
    pub job: Job,
    /// Who submitted it.
    pub caller: Address,
    /// keccak256 of its inputs.
    pub inputs_hash: B256,
    /// The block it is in.
    pub block: u64,
    /// How its parts are taken together; of a create nothing.
    pub aggregation: Option<Aggregation>,
    /// What its items are named by; of a create nothing, as often as there are slots.
    pub(crate) endpoints: Vec<Option<SandboxId>>,
    /// Where its items stand among those of the batch.
    pub(crate) places: Vec<u32>,
}

impl Batch {
    /// The batch of calls that were just submitted, with the places of their items.
    pub(crate) fn of_submitted(
        id: BatchId,
        caller: Address,
        sent: &[(SubmittedJob, Option<Vec<u32>>)],
    ) -> Result<Self, BatchError> {
        let mut calls = Vec::new();
        for (job, places) in sent {
            let call = BatchCall::of(job.key, (caller, job.block), &job.request)?;
            calls.push(BatchCall { places: places.clone().unwrap_or_default(), ..call });
        }
        Ok(Self::numbered(id, calls))
    }

    /// The batch of calls that are on chain.
    pub(crate) fn of_submissions(id: BatchId, found: Vec<(Job, Submission)>) -> Result<Self, BatchError> {
        let call = |(job, submission): (Job, Submission)| {
            let request = JobRequest { job, inputs: submission.inputs };
            BatchCall::of(submission.key, (submission.caller, submission.block), &request)
        };
        Ok(Self::numbered(id, found.into_iter().map(call).collect::<Result<_, _>>()?))
    }

    /// Items without a place follow those of the calls before.
    fn numbered(id: BatchId, mut calls: Vec<BatchCall>) -> Self {
        calls.sort_by_key(|call| call.key);
        let mut next = 0;
        for call in &mut calls {
            if call.places.len() != call.endpoints.len() {
                call.places = (next..).take(call.endpoints.len()).collect();
            }
            next = call.places.iter().map(|place| place + 1).max().unwrap_or(next).max(next);
        }
        Self { id, calls }
    }
}

impl BatchCall {
    fn of(key: CallKey, (caller, block): (Address, u64), request: &JobRequest) -> Result<Self, BatchError> {
        let not_one = |_| BatchError::NotABatch(key);
        let named = |endpoints: Vec<String>| -> Vec<Option<SandboxId>> {
            endpoints.iter().map(|endpoint| SandboxId::from_endpoint(endpoint).ok()).collect()
        };
        let (aggregation, endpoints) = match request.job {
            Job::BatchCreate => {
                let create: abi::BatchCreateRequest = abi::decode(&request.inputs).map_err(not_one)?;
                (None, vec![None; create.count as usize])
            }
            Job::BatchTask => {
                let task: abi::BatchTaskRequest = abi::decode(&request.inputs).map_err(not_one)?;
                (task.aggregation.parse().ok(), named(task.sidecar_endpoints))
            }
            Job::BatchExec => {
                let exec: abi::BatchExecRequest = abi::decode(&request.inputs).map_err(not_one)?;
                (exec.aggregation.parse().ok(), named(exec.sidecar_endpoints))
            }
            // It has no items of its own, and parts like the others.
            Job::BatchCollect => (None, Vec::new()),
            _ => return Err(BatchError::NotABatch(key)),
        };
        let inputs_hash = keccak256(&request.inputs);
        Ok(Self { key, job: request.job, caller, inputs_hash, block, aggregation, endpoints, places: Vec::new() })
    }

    /// How many items it has.
    pub fn len(&self) -> usize {
        self.endpoints.len()
    }

    /// Whether it has none; the contract takes no such call.
    pub fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    /// Where an item stands among those of the batch.
    pub fn place(&self, index: u32) -> Option<u32> {
        self.places.get(index as usize).copied()
    }

    /// The sandbox of an item.
    pub(crate) fn sandbox(&self, index: usize) -> Option<SandboxId> {
        if self.job == Job::BatchCreate {
            return Some(SandboxId { origin: self.key, slot: u8::try_from(index).ok()? });
        }
        self.endpoints.get(index).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::{BatchBuilder, BatchCreateBuilder, CreateBuilder, delete};

    fn submitted(call: u64, request: JobRequest) -> SubmittedJob {
        let (price, asset, transaction) = Default::default();
        SubmittedJob { key: CallKey { service: 1, call }, request, price, asset, block: 5, transaction }
    }

    #[test]
    fn items_of_several_calls_have_one_place_each() {
        let sandboxes: Vec<SandboxId> = ["sbx-1-0-0", "sbx-1-0-1"].map(|id| id.parse().unwrap()).to_vec();
        let exec = BatchBuilder::exec(sandboxes.clone(), "true").aggregation(Aggregation::Majority).build().unwrap();
        let create = BatchCreateBuilder::new(3, CreateBuilder::new()).build().unwrap();
        let sent = [(submitted(8, exec.clone()), None), (submitted(7, create), None)];
        let batch = Batch::of_submitted("b".parse().unwrap(), Address::ZERO, &sent).unwrap();
        let places: Vec<_> = batch.calls.iter().map(|call| (call.key.call, call.places.clone())).collect();
        assert_eq!(places, [(7, vec![0, 1, 2]), (8, vec![3, 4])]);
        assert_eq!(
            (batch.calls[1].sandbox(1), batch.calls[1].aggregation),
            (Some(sandboxes[1]), Some(Aggregation::Majority))
        );
        assert_eq!(batch.calls[0].sandbox(2).unwrap().to_string(), "sbx-1-7-2");

        let kept = [(submitted(8, exec), Some(vec![4, 0]))];
        let batch = Batch::of_submitted("b".parse().unwrap(), Address::ZERO, &kept).unwrap();
        assert_eq!((batch.calls[0].places.as_slice(), batch.calls[0].len()), ([4, 0].as_slice(), 2));
        let other =
            Batch::of_submitted("b".parse().unwrap(), Address::ZERO, &[(submitted(1, delete(sandboxes[0])), None)]);
        assert!(matches!(other, Err(BatchError::NotABatch(_))));
    }
}
