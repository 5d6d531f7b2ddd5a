//! Which calls are a batch, and which sandboxes it has made. What is done in those may not be undone, so that no operator's word
//! alone decides it.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use sandbox_protocol::abi::{self, BatchCreateRequest, BatchExecRequest, BatchTaskRequest};
use sandbox_protocol::batch::BatchId;
use sandbox_protocol::sealed::is_sealed;
use sandbox_protocol::{CallKey, Job, SandboxId};

use super::claims::slots;
use super::parts::{Attested, attested};
use super::{Batch, BatchCall, BatchError};
use crate::answers::Answers;
use crate::chain::{Chain, Submission};
use crate::contracts::IAgentSandboxBlueprint::SandboxState;
use crate::limits::BATCH_ASKED_MAX;
use crate::requests::{BATCH_KEY, JobRequest};

/// A batch that was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// It.
    pub batch: Batch,
    /// Creates that were said to be of it, of which nothing proves that; they are left out.
    pub unattested: Vec<CallKey>,
}

impl Batch {
    /// The batch of these calls, as far as the chain has them as the account's own and of that name. No operator is believed that a
    /// call is one of them: where what a create is called by is sealed, a proven answer to it must say so, and not as many another
    /// name. The call that the batch is named by needs none that says so.
    ///
    /// # Errors
    /// [`BatchError::Unknown`] where there is none, [`BatchError::Unattested`] where none is proven to be, [`BatchError::Read`].
    pub async fn find(
        answers: &Answers,
        (service, id): (u64, &BatchId),
        told: impl IntoIterator<Item = u64>,
    ) -> Result<Found, BatchError> {
        let named = id.as_str().strip_prefix(&format!("batch-{service}-")).and_then(|call| call.parse().ok());
        let calls: BTreeSet<u64> = told.into_iter().chain(named).collect();
        let looks = calls.into_iter().map(|call| look(answers, CallKey { service, call }, id));
        let looked: Vec<_> = stream::iter(looks).buffered(BATCH_ASKED_MAX).try_collect().await?;
        let (mut found, mut unattested) = (Vec::new(), Vec::new());
        for (look, submission) in looked.into_iter().flatten() {
            match look {
                Look::Of(job) => found.push((job, submission)),
                Look::Unattested => unattested.push(submission.key),
            }
        }
        match (found.is_empty(), unattested.is_empty()) {
            (true, true) => Err(BatchError::Unknown { service, id: id.clone() }),
            (true, false) => Err(BatchError::Unattested { id: id.clone(), calls: unattested }),
            (false, _) => Ok(Found { batch: Self::of_submissions(id.clone(), found)?, unattested }),
        }
    }

    /// The sandboxes that it has made and that live, by slot.
    ///
    /// # Errors
    /// [`BatchError::Read`].
    pub async fn sandboxes(&self, chain: &Chain) -> Result<Vec<SandboxId>, BatchError> {
        let mut made = Vec::new();
        for call in self.calls.iter().filter(|call| call.job == Job::BatchCreate) {
            let assignment = chain.assignment(call.key).await?.ok_or(BatchError::NotABatch(call.key))?;
            made.extend(slots(assignment.detail).map(|slot| SandboxId { origin: call.key, slot }));
        }
        let living = stream::iter(made)
            .map(|id| async move { chain.sandbox(id).await.map(|row| (id, row.state == SandboxState::Live)) })
            .buffered(BATCH_ASKED_MAX)
            .try_filter_map(|(id, lives)| async move { Ok(lives.then_some(id)) })
            .try_collect();
        Ok(living.await?)
    }
}

/// What a call of the account's own is to a batch.
enum Look {
    /// One of its calls.
    Of(Job),
    /// A create whose name is sealed, and of which nothing proves that it is.
    Unattested,
}

/// Whether a call is one of this batch; `None` where it is not, or not the account's.
async fn look(answers: &Answers, key: CallKey, id: &BatchId) -> Result<Option<(Look, Submission)>, BatchError> {
    let account = answers.account();
    let submission = account.chain().submission(key).await?.filter(|found| found.caller == account.address());
    let Some((submission, (job, name))) = submission.and_then(|found| name_of(&found).map(|name| (found, name))) else {
        return Ok(None);
    };
    if let Some(name) = name {
        let is_it = BatchId::asked(&name, key).as_ref() == Ok(id);
        return Ok(is_it.then_some((Look::Of(job), submission)));
    }
    let request = JobRequest { job, inputs: submission.inputs.clone() };
    let call = BatchCall::of(key, (submission.caller, submission.block), &request)?;
    let Attested { this, another } = attested(answers, id, &call).await?;
    // The account itself has named the call where the batch is called by it.
    let is_it = this > another || (another == 0 && *id == BatchId::of_call(key));
    Ok(Some((if is_it { Look::Of(job) } else { Look::Unattested }, submission)))
}

/// The job of a call that may be one of a batch, with what it calls that; of what is sealed nothing.
fn name_of(submission: &Submission) -> Option<(Job, Option<String>)> {
    let job = Job::from_id(submission.job)?;
    let inputs = &submission.inputs;
    let name = match job {
        Job::BatchCreate => {
            let env_json = abi::decode::<BatchCreateRequest>(inputs).ok()?.template.env_json;
            (!is_sealed(&env_json)).then(|| named_in(&env_json))
        }
        Job::BatchExec => Some(abi::decode::<BatchExecRequest>(inputs).ok()?.batch_id),
        Job::BatchTask => Some(abi::decode::<BatchTaskRequest>(inputs).ok()?.batch_id),
        _ => return None,
    };
    Some((job, name))
}

/// What an environment calls a batch. One that operators could not read either names none.
fn named_in(env_json: &str) -> String {
    let env: BTreeMap<String, String> = serde_json::from_str(env_json).unwrap_or_default();
    env.get(BATCH_KEY).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{Address, B256};

    use super::*;
    use crate::requests::{BatchBuilder, BatchCreateBuilder, CreateBuilder, batch_collect};

    fn name(request: JobRequest) -> Option<(Job, Option<String>)> {
        let (key, job) = (CallKey { service: 1, call: 4 }, request.job.id());
        let (caller, block, transaction) = (Address::ZERO, 1, B256::ZERO);
        name_of(&Submission { key, job, caller, inputs: request.inputs, block, transaction })
    }

    #[test]
    fn what_a_call_is_called_is_read_where_it_is_not_sealed() {
        let night: BatchId = "night".parse().unwrap();
        let create = |env_json: &str| {
            let mut request: BatchCreateRequest =
                abi::decode(&BatchCreateBuilder::new(1, CreateBuilder::new()).build().unwrap().inputs).unwrap();
            env_json.clone_into(&mut request.template.env_json);
            JobRequest { job: Job::BatchCreate, inputs: alloy::sol_types::SolValue::abi_encode(&request).into() }
        };
        for (env_json, expected) in [
            ("", Some("")),
            (r#"{"A":"1"}"#, Some("")),
            (r#"{"SANDBOX_BATCH_ID":"night"}"#, Some("night")),
            ("sealed:v1:AAAA", None),
        ] {
            assert_eq!(name(create(env_json)), Some((Job::BatchCreate, expected.map(str::to_owned))), "{env_json}");
        }
        let work = BatchBuilder::exec(vec!["sbx-1-2-0".parse().unwrap()], "x").batch(&night).build().unwrap();
        assert_eq!(name(work), Some((Job::BatchExec, Some("night".to_owned()))));
        assert_eq!(name(batch_collect(&night).unwrap()), None, "it asks for one and is none");
    }
}
