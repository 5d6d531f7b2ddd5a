//! Where calls are answered: begun once, carried out, signed, written down.

use std::sync::Arc;
use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256, Bytes, U256, keccak256};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolStruct, SolValue};
use sandbox_fleet::ports::{Sidecars, Snapshots};
use sandbox_fleet::request::Menu;
use sandbox_fleet::sandbox::Instance;
use sandbox_fleet::{Fleet, Unfinished};
use sandbox_protocol::abi::{self, JobError, JobReceipt};
use sandbox_protocol::receipt::{SandboxReceipt, SignedReceipt, domain};
use sandbox_protocol::sealed::{Binding, Sealable, is_in};
use sandbox_protocol::{CallKey, Failure, FailureCode, Job, Outcome, SandboxId};
use sandbox_sdk::Chain;
use tokio::sync::watch;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::Instrument as _;
use tracing::field::Empty;

use super::executor::Executor;
use super::fence::{Fence, Verdict};
use super::negotiation::Conductor;
use super::queue::{Hold, JobQueue};
use super::sealed::open_fields;
use super::terms;
use crate::chain::key::SealKeys;
use crate::intake::Intake;
use crate::metrics::Metrics;
use crate::records::{Answer, CallRecord, Progress, Records, RecordsError};
use crate::ssh::SshOffer;
use crate::workflows::Workflows;

/// What the desk works with.
pub(crate) struct DeskParts {
    pub(crate) chain: Chain,
    pub(crate) key: PrivateKeySigner,
    pub(crate) seal_keys: SealKeys,
    pub(crate) records: Records,
    pub(crate) fleet: Fleet,
    pub(crate) sidecars: Arc<dyn Sidecars>,
    pub(crate) conductor: Conductor,
    pub(crate) workflows: Workflows,
    pub(crate) snapshots: Arc<dyn Snapshots>,
    pub(crate) menu: Menu,
    pub(crate) api_url: String,
    /// Where customers come over SSH, if they may.
    pub(crate) ssh: Option<SshOffer>,
    pub(crate) head: watch::Receiver<u64>,
    pub(crate) fence: Fence,
    pub(crate) queue: JobQueue,
    pub(crate) metrics: Metrics,
    pub(crate) intake: Intake,
}

/// Answers calls. Shared by all handlers.
pub(crate) struct Desk {
    parts: DeskParts,
    work: TaskTracker,
}

/// A call as its handler sees it.
pub(crate) struct JobCall {
    /// Which call.
    pub(crate) key: CallKey,
    /// Its job, by its id on chain.
    pub(crate) job: u8,
    /// Who asked.
    pub(crate) caller: Address,
    /// What was asked.
    pub(crate) inputs: Bytes,
    /// keccak256 of it.
    pub(crate) inputs_hash: B256,
    /// What its execution in a sandbox is called.
    pub(crate) execution: String,
    /// The block in which it was begun first.
    pub(crate) started_block: u64,
    /// A former life began it already: its effect may exist, or exist in part.
    pub(crate) resumed: bool,
    /// The desk.
    pub(crate) desk: Arc<Desk>,
}

/// What a handler achieved.
pub(crate) struct Work {
    /// The ABI-encoded response.
    pub(crate) response: Vec<u8>,
    /// The limit of the caller's that it ran into, though there is a response.
    pub(crate) limit: Option<FailureCode>,
    /// Detail of the receipt on chain.
    pub(crate) detail: U256,
    /// The container that it was done in, where there still is one.
    pub(crate) instance: Option<Instance>,
}

impl JobCall {
    /// The request, strictly decoded, and what is sealed in it opened.
    pub(crate) fn request<T>(&self) -> Result<T, Failure>
    where
        T: Sealable + SolValue + From<<T::SolType as alloy::sol_types::SolType>::RustType>,
    {
        let decoded = abi::decode(&self.inputs);
        let mut request: T = decoded.map_err(|error| Failure::new(FailureCode::BadRequest, error.to_string()))?;
        let deployment = self.parts().chain.deployment();
        let binding = Binding {
            chain_id: deployment.chain_id,
            core: deployment.core,
            service: self.key.service,
            caller: self.caller,
            job: self.job,
        };
        open_fields(&mut request, &self.parts().seal_keys, &binding)?;
        Ok(request)
    }

    /// Names the sandbox in what is logged of this call.
    pub(crate) fn is_of(&self, sandbox: SandboxId) {
        tracing::Span::current().record("sandbox", tracing::field::display(sandbox));
    }

    /// What handlers work with.
    pub(crate) fn parts(&self) -> &DeskParts {
        &self.desk.parts
    }
}

impl DeskParts {
    /// Who works in sandboxes.
    pub(crate) fn executor(&self) -> Executor {
        let (fleet, sidecars) = (self.fleet.clone(), self.sidecars.clone());
        Executor { fleet, sidecars, agents: self.conductor.agents.clone() }
    }
}

impl Work {
    /// A response and nothing else to be said.
    pub(crate) fn done(response: &impl SolValue, instance: Option<Instance>) -> Self {
        Self { response: response.abi_encode(), limit: None, detail: U256::ZERO, instance }
    }
}

impl Desk {
    /// A desk with nothing on it.
    pub(crate) fn new(parts: DeskParts) -> Arc<Self> {
        Arc::new(Self { parts, work: TaskTracker::new() })
    }

    /// The workflows that are fired here.
    pub(super) fn workflows(&self) -> &Workflows {
        &self.parts.workflows
    }

    /// Waits until what is being worked on is answered.
    pub(crate) async fn finish(&self) {
        self.work.close();
        self.work.wait().await;
    }

    /// Answers a call by `handler`, unless it is answered or not to be. The receipt goes to the consumer.
    pub(crate) async fn answer<H, F>(self: Arc<Self>, key: CallKey, handler: H) -> Option<JobReceipt>
    where
        H: FnOnce(JobCall) -> F + Send + 'static,
        F: Future<Output = Result<Work, Unfinished>> + Send + 'static,
    {
        // In a task of its own: when the runner stops, the answer is still written before the process ends.
        let work = self.work.clone();
        let span = tracing::info_span!("job", call = %key, service = key.service, job = Empty, sandbox = Empty);
        let answering = async move {
            let Some(hold) = self.parts.queue.hold(key) else { return Ok(None) };
            self.parts.metrics.running(self.parts.queue.running());
            let answered = self.clone().answer_held(hold, handler).await;
            self.parts.metrics.running(self.parts.queue.running());
            answered
        };
        match work.spawn(answering.instrument(span)).await {
            Ok(Ok(receipt)) => receipt,
            Ok(Err(error)) => {
                tracing::error!(call = %key, error = %crate::error_chain(&error), "call left for the next start");
                None
            }
            Err(error) => {
                tracing::error!(call = %key, %error, "answering panicked; call left for the next start");
                None
            }
        }
    }

    async fn answer_held<H, F>(self: Arc<Self>, hold: Hold, handler: H) -> Result<Option<JobReceipt>, RecordsError>
    where
        H: FnOnce(JobCall) -> F + Send + 'static,
        F: Future<Output = Result<Work, Unfinished>> + Send + 'static,
    {
        if self.work.is_closed() {
            return Ok(None);
        }
        let Some(call) = self.parts.records.call(hold.key())? else { return Ok(None) };
        tracing::Span::current().record("job", call.job);
        if let Some(answer) = call.answer() {
            return Ok(Some(answer.receipt.receipt.on_chain()));
        }
        let given_up = hold.given_up().clone();
        let verdict = given_up.run_until_cancelled(self.verdict(&call)).await;
        match verdict {
            None => Ok(None),
            Some(Verdict::Begin) => {
                let carried_out = given_up.run_until_cancelled(self.clone().carry_out(call, handler)).await;
                if carried_out.is_none() {
                    self.parts.fleet.parent_ended(hold.key()).await;
                }
                carried_out.unwrap_or(Ok(None))
            }
            Some(Verdict::Leave) => {
                tracing::info!(call = %call.key, "too few blocks are left; the call is left for another operator");
                hold.leave(&call);
                Ok(None)
            }
            Some(Verdict::Answered) => self.drop_answered(call).await,
            Some(Verdict::Elsewhere) => {
                tracing::warn!(call = %call.key, "an open call is another operator's now");
                // What was made of it for nobody is undone by who reads the chain.
                self.parts.records.give_up(&call, "assigned to another operator").await.map(|()| None)
            }
        }
    }

    async fn verdict(&self, call: &CallRecord) -> Verdict {
        match call.progress {
            Progress::Seen => self.parts.fence.before(call).await,
            _ => self.parts.fence.again(call).await,
        }
    }

    /// The contract has this operator's answer, which is not known here. What was made of the call stands.
    async fn drop_answered(&self, mut call: CallRecord) -> Result<Option<JobReceipt>, RecordsError> {
        tracing::warn!(call = %call.key, "an open call is answered on chain already");
        call.progress = Progress::Dropped { reason: "answered already".into() };
        self.parts.records.put_call(&call).await.map(|_| None)
    }

    async fn carry_out<H, F>(
        self: Arc<Self>,
        mut call: CallRecord,
        handler: H,
    ) -> Result<Option<JobReceipt>, RecordsError>
    where
        H: FnOnce(JobCall) -> F + Send + 'static,
        F: Future<Output = Result<Work, Unfinished>> + Send + 'static,
    {
        let started = Instant::now();
        let (resumed, started_block) = match call.progress {
            Progress::Begun { block } => (true, block),
            _ => (false, *self.parts.head.borrow()),
        };
        if !resumed {
            call.progress = Progress::Begun { block: started_block };
            if !self.parts.records.put_call(&call).await? {
                return Ok(None);
            }
        }
        let (key, caller, inputs, inputs_hash) = (call.key, call.caller, call.inputs.clone(), call.inputs_hash);
        let bound = Job::from_id(call.job).map_or(Duration::ZERO, terms::work_within);
        let execution = call.execution();
        let (job, desk) = (call.job, self.clone());
        let job_call = JobCall { key, job, caller, inputs, inputs_hash, execution, started_block, resumed, desk };
        let result = match contained(key, bound, handler(job_call)).await {
            Ok(work) => Ok(work),
            Err(Unfinished::Failed(failure)) => Err(failure),
            Err(Unfinished::Stopping) => return Ok(None),
        };
        let answer = self.seal(&call, result, started_block, started.elapsed());
        let receipt = answer.receipt.receipt.on_chain();
        call.progress = Progress::Answered(answer);
        if !self.parts.records.put_call(&call).await? {
            return Ok(None);
        }
        // Nothing goes on in the name of a call that is answered.
        self.parts.fleet.parent_ended(key).await;
        self.parts.metrics.answered(call.job, receipt.outcome, started.elapsed());
        tracing::info!(call = %key, job = call.job, outcome = receipt.outcome, resumed, "answered");
        Ok(Some(receipt))
    }

    fn seal(&self, call: &CallRecord, result: Result<Work, Failure>, started_block: u64, took: Duration) -> Answer {
        let (work, failure) = match result {
            Ok(work) => {
                let limit = work.limit;
                (work, limit)
            }
            Err(failure) => {
                // What is said of sealed fields may repeat what is in them, and what a model's provider says anything at all.
                let said = if is_in(&call.inputs) || asks_a_model(call.job) { "" } else { &failure.message };
                tracing::info!(call = %call.key, code = %failure.code, message = said, "failed");
                (Work::done(&JobError::from(&failure), None), Some(failure.code))
            }
        };
        let (runtime, image_digest) = match work.instance {
            Some(Instance { runtime, image_digest, .. }) => (runtime, image_digest),
            None => Default::default(),
        };
        let receipt = SandboxReceipt {
            service: call.key.service,
            call: call.key.call,
            job: call.job,
            operator: self.parts.key.address(),
            caller: call.caller,
            inputs_hash: call.inputs_hash,
            response_hash: keccak256(&work.response),
            outcome: failure.map_or(Outcome::Done, FailureCode::outcome).id(),
            detail: work.detail,
            failure: failure.map(|code| code.to_string()).unwrap_or_default(),
            runtime,
            image_digest,
            started_block,
            ended_block: *self.parts.head.borrow(),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        Answer { response: work.response.into(), failure, receipt: self.sign(receipt) }
    }

    #[allow(clippy::expect_used)] // a key in memory signs every 32 bytes
    fn sign(&self, receipt: SandboxReceipt) -> SignedReceipt {
        let deployment = self.parts.chain.deployment();
        let (chain_id, core) = (deployment.chain_id, deployment.core);
        let digest = receipt.eip712_signing_hash(&domain(chain_id, core));
        let signature = self.parts.key.sign_hash_sync(&digest).expect("a local key signs any digest");
        SignedReceipt { chain_id, core, receipt, signature }
    }
}

/// Whether it is the words of a model, or of who provides it, that come back.
fn asks_a_model(job: u8) -> bool {
    matches!(Job::from_id(job), Some(Job::Prompt | Job::Task))
}

/// Runs a handler for so long at most; a panic becomes a failure with a reference that the log has as well.
async fn contained(
    key: CallKey,
    bound: Duration,
    handling: impl Future<Output = Result<Work, Unfinished>> + Send + 'static,
) -> Result<Work, Unfinished> {
    // Dropped, it is aborted: one that is late, or whose call was given up, goes no further.
    let handling = AbortOnDropHandle::new(tokio::spawn(handling.in_current_span()));
    let reference = format!("{:08x}", rand::random::<u32>());
    let message = match tokio::time::timeout(bound, handling).await {
        Ok(Ok(result)) => return result,
        Ok(Err(error)) => {
            tracing::error!(call = %key, %reference, %error, "a handler panicked");
            format!("the operator failed; reference {reference}")
        }
        Err(_) => {
            tracing::error!(call = %key, %reference, bound_s = bound.as_secs(), "a handler did not end in time");
            format!("the operator did not finish within {} s; reference {reference}", bound.as_secs())
        }
    };
    Err(Failure::new(FailureCode::Internal, message).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: CallKey = CallKey { service: 1, call: 2 };

    async fn failure(
        handling: impl Future<Output = Result<Work, Unfinished>> + Send + 'static,
    ) -> (FailureCode, String) {
        match contained(KEY, Duration::from_secs(585), handling).await {
            Err(Unfinished::Failed(failure)) => (failure.code, failure.message),
            Ok(_) | Err(Unfinished::Stopping) => panic!("no failure"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_does_not_end_is_a_failure_of_the_operators() {
        let (code, message) = failure(std::future::pending()).await;
        assert_eq!(code.outcome(), Outcome::Operator);
        assert!(message.starts_with("the operator did not finish within 585 s"), "{message}");
        let in_time = async {
            tokio::time::advance(Duration::from_secs(584)).await;
            Ok(Work { response: Vec::new(), limit: None, detail: U256::ZERO, instance: None })
        };
        assert!(contained(KEY, Duration::from_secs(585), in_time).await.is_ok());
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_of_the_operators() {
        let (code, message) = failure(async { panic!("a defect") }).await;
        assert_eq!(code.outcome(), Outcome::Operator);
        assert!(message.starts_with("the operator failed; reference "), "{message}");
    }

    #[test]
    fn another_call_under_the_same_id_is_another_execution() {
        let of = |inputs: &[u8]| CallRecord::seen(KEY, 10, Address::ZERO, inputs.to_vec().into(), 1).execution();
        assert_ne!(of(b"one"), of(b"other"));
        assert_eq!(of(b"one"), of(b"one"));
    }
}
