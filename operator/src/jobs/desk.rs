//! Where calls are answered: begun once, carried out, signed, written down.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use alloy::primitives::{Address, Bytes, U256, keccak256};
use alloy::signers::SignerSync;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolStruct, SolValue};
use sandbox_fleet::ports::{Sidecars, Snapshots};
use sandbox_fleet::request::Menu;
use sandbox_fleet::sandbox::Instance;
use sandbox_fleet::{Fleet, Unfinished};
use sandbox_protocol::abi::{self, JobError, JobReceipt};
use sandbox_protocol::receipt::{SandboxReceipt, SignedReceipt, domain};
use sandbox_protocol::{CallKey, Failure, FailureCode, Outcome, SandboxId};
use sandbox_sdk::Chain;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use tracing::field::Empty;

use crate::intake::Intake;
use crate::metrics::Metrics;
use crate::records::{Answer, CallRecord, Progress, Records, RecordsError};

/// What the desk works with.
pub(crate) struct DeskParts {
    pub(crate) chain: Chain,
    pub(crate) key: PrivateKeySigner,
    pub(crate) records: Records,
    pub(crate) fleet: Fleet,
    pub(crate) sidecars: Arc<dyn Sidecars>,
    pub(crate) snapshots: Arc<dyn Snapshots>,
    pub(crate) menu: Menu,
    pub(crate) api_url: String,
    pub(crate) head: watch::Receiver<u64>,
    pub(crate) metrics: Metrics,
    pub(crate) intake: Intake,
}

/// Answers calls. Shared by all handlers.
pub(crate) struct Desk {
    parts: DeskParts,
    work: TaskTracker,
    in_hand: Mutex<HashSet<CallKey>>,
}

/// A call as its handler sees it.
pub(crate) struct JobCall {
    /// Which call.
    pub(crate) key: CallKey,
    /// Who asked.
    pub(crate) caller: Address,
    /// What was asked.
    pub(crate) inputs: Bytes,
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
    /// The request, strictly decoded.
    pub(crate) fn request<T>(&self) -> Result<T, Failure>
    where
        T: SolValue + From<<T::SolType as alloy::sol_types::SolType>::RustType>,
    {
        abi::decode(&self.inputs).map_err(|error| Failure::new(FailureCode::BadRequest, error.to_string()))
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

impl Work {
    /// A response and nothing else to be said.
    pub(crate) fn done(response: &impl SolValue, instance: Option<Instance>) -> Self {
        Self { response: response.abi_encode(), limit: None, detail: U256::ZERO, instance }
    }
}

impl Desk {
    /// A desk with nothing on it.
    pub(crate) fn new(parts: DeskParts) -> Arc<Self> {
        Arc::new(Self { parts, work: TaskTracker::new(), in_hand: Mutex::default() })
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
            // A call may be delivered again while it is being answered; one handler is enough.
            let Some(_hold) = Hold::of(&self, key) else { return Ok(None) };
            self.clone().answer_here(key, handler).await
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

    async fn answer_here<H, F>(self: Arc<Self>, key: CallKey, handler: H) -> Result<Option<JobReceipt>, RecordsError>
    where
        H: FnOnce(JobCall) -> F + Send + 'static,
        F: Future<Output = Result<Work, Unfinished>> + Send + 'static,
    {
        if self.work.is_closed() {
            return Ok(None);
        }
        let Some(mut call) = self.parts.records.call(key)? else { return Ok(None) };
        tracing::Span::current().record("job", call.job);
        let started = Instant::now();
        let (resumed, started_block) = match call.progress {
            Progress::Seen => {
                let block = *self.parts.head.borrow();
                call.progress = Progress::Begun { block };
                self.parts.records.put_call(&call).await?;
                (false, block)
            }
            Progress::Begun { block } => (true, block),
            Progress::Answered(answer) | Progress::Settled { answer, .. } | Progress::Refused { answer, .. } => {
                return Ok(Some(answer.receipt.receipt.on_chain()));
            }
            Progress::Dropped { .. } => return Ok(None),
        };
        let (caller, inputs) = (call.caller, call.inputs.clone());
        let job_call = JobCall { key, caller, inputs, resumed, desk: self.clone() };
        let result = match contained(key, handler(job_call)).await {
            Ok(work) => Ok(work),
            Err(Unfinished::Failed(failure)) => Err(failure),
            Err(Unfinished::Stopping) => return Ok(None),
        };
        let answer = self.seal(&call, result, started_block, started.elapsed());
        let receipt = answer.receipt.receipt.on_chain();
        call.progress = Progress::Answered(answer);
        self.parts.records.put_call(&call).await?;
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
                tracing::info!(call = %call.key, %failure, "failed");
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

/// A call that is being answered.
struct Hold {
    desk: Arc<Desk>,
    key: CallKey,
}

impl Hold {
    /// `None` where the call is held already.
    fn of(desk: &Arc<Desk>, key: CallKey) -> Option<Self> {
        let taken = desk.in_hand.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        taken.then(|| Self { desk: desk.clone(), key })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.desk.in_hand.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// Runs a handler; a panic becomes a failure with a reference that the log has as well.
async fn contained(
    key: CallKey,
    handling: impl Future<Output = Result<Work, Unfinished>> + Send + 'static,
) -> Result<Work, Unfinished> {
    match tokio::spawn(handling.in_current_span()).await {
        Ok(result) => result,
        Err(error) => {
            let reference = format!("{:08x}", rand::random::<u32>());
            tracing::error!(call = %key, %reference, %error, "a handler panicked");
            Err(Failure::new(FailureCode::Internal, format!("the operator failed; reference {reference}")).into())
        }
    }
}
