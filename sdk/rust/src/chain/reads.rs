//! What a chain is asked. Each answer is what the chain says now; an id that stands for nothing gives `None`.

use alloy::consensus::BlockHeader as _;
use alloy::eips::{BlockId, BlockNumberOrTag};
use alloy::network::BlockResponse as _;
use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::{Filter, Log};
use alloy::sol_types::SolEvent as _;
use alloy::transports::TransportError;
use sandbox_protocol::{CallKey, SandboxId};

use super::Chain;
use crate::contracts::IAgentSandboxBlueprint::{Assignment, Part, SandboxView};
use crate::contracts::ITangleCore::{
    JobCall, JobSubmitted, JobSubmittedFromQuote, Service, ServiceActivated, ServiceRequest,
};
use crate::limits::LOG_WINDOW_BLOCKS;
use crate::reverts::Refusal;

/// A question that the chain did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A contract refused it.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// A contract could not be asked, or its answer not be read.
    #[error("the chain did not answer {question}")]
    Call {
        /// The view.
        question: &'static str,
        /// Why.
        source: Box<alloy::contract::Error>,
    },
    /// The node did not answer.
    #[error("the node did not answer {question}")]
    Node {
        /// The method.
        question: &'static str,
        /// Why.
        source: TransportError,
    },
}

impl ReadError {
    pub(crate) fn of(question: &'static str, source: alloy::contract::Error) -> Self {
        match Refusal::of_contract(&source) {
            Some(refusal) => Self::Refused(Box::new(refusal)),
            None => Self::Call { question, source: Box::new(source) },
        }
    }

    /// An error of the node, as one of the question.
    pub const fn node(question: &'static str) -> impl FnOnce(TransportError) -> Self {
        move |source| Self::Node { question, source }
    }

    /// An error of a contract, as one of the question.
    pub fn on(question: &'static str) -> impl FnOnce(alloy::contract::Error) -> Self {
        move |source| Self::of(question, source)
    }
}

/// A job as it was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submission {
    /// The call.
    pub key: CallKey,
    /// Job id.
    pub job: u8,
    /// Who submitted it.
    pub caller: Address,
    /// Its inputs.
    pub inputs: Bytes,
    /// The block it is in.
    pub block: u64,
    /// The transaction it is in.
    pub transaction: B256,
}

impl Chain {
    /// Number of the newest block.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn head(&self) -> Result<u64, ReadError> {
        self.provider().get_block_number().await.map_err(ReadError::node("eth_blockNumber"))
    }

    /// Second since 1970 of the newest block.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn time(&self) -> Result<u64, ReadError> {
        self.block_time(BlockNumberOrTag::Latest).await
    }

    /// A service, whichever blueprint it is of.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn service(&self, service: u64) -> Result<Option<Service>, ReadError> {
        let found = self.core().getService(service).call().await.map_err(ReadError::on("getService"));
        absent_if_refused(found, |service| service.owner == Address::ZERO)
    }

    /// A service request, whichever blueprint it is of.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn request(&self, request: u64) -> Result<Option<ServiceRequest>, ReadError> {
        let found = self.core().getServiceRequest(request).call().await.map_err(ReadError::on("getServiceRequest"));
        absent_if_refused(found, |request| request.requester == Address::ZERO)
    }

    /// The operators of a service.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn operators(&self, service: u64) -> Result<Vec<Address>, ReadError> {
        self.blueprint().serviceOperators(service).call().await.map_err(ReadError::on("serviceOperators"))
    }

    /// The core's record of a call.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn job_call(&self, key: CallKey) -> Result<Option<JobCall>, ReadError> {
        let found = self.core().getJobCall(key.service, key.call).call().await.map_err(ReadError::on("getJobCall"));
        absent_if_refused(found, |call| call.caller == Address::ZERO)
    }

    /// Our blueprint's record of a call: who must answer it, and the answer. A batch has no one operator but parts.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn assignment(&self, key: CallKey) -> Result<Option<Assignment>, ReadError> {
        let found = self.blueprint().assignment(key.service, key.call).call().await;
        let found = found.map_err(ReadError::on("assignment"))?;
        Ok((found.operator != Address::ZERO || found.parts != 0).then_some(found))
    }

    /// What services of the blueprint that begin now are paid in, call by call; zero is the chain's coin.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn settlement_asset(&self) -> Result<Address, ReadError> {
        let asked = self.core().getBlueprintSettlementAsset(self.deployment().blueprint_id).call().await;
        asked.map_err(ReadError::on("getBlueprintSettlementAsset"))
    }

    /// The operators of a batch with their parts, in the order of its plan; none for any other call.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn parts(&self, key: CallKey) -> Result<Vec<Part>, ReadError> {
        self.blueprint().parts(key.service, key.call).call().await.map_err(ReadError::on("parts"))
    }

    /// A sandbox as far as the chain knows; its state says whether there is one.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn sandbox(&self, id: SandboxId) -> Result<SandboxView, ReadError> {
        let (service, call) = (id.origin.service, id.origin.call);
        self.blueprint().sandbox(service, call, id.slot).call().await.map_err(ReadError::on("sandbox"))
    }

    /// A sandbox as it stood at a block; `None` where the node does not tell, since nodes forget old states.
    pub async fn sandbox_at(&self, id: SandboxId, block: u64) -> Option<SandboxView> {
        let (service, call) = (id.origin.service, id.origin.call);
        self.blueprint().sandbox(service, call, id.slot).block(BlockId::number(block)).call().await.ok()
    }

    /// A job as it was submitted, from the log of its block.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn submission(&self, key: CallKey) -> Result<Option<Submission>, ReadError> {
        let Some(call) = self.job_call(key).await? else { return Ok(None) };
        let head = self.head().await?;
        let mut from = self.first_block_since(call.createdAt, head).await?;
        // Its block is one of those of its second, which may be more than one question should ask about.
        loop {
            let to = head.min(from.saturating_add(LOG_WINDOW_BLOCKS - 1));
            if let Some(log) = self.submission_log(key, (from, to)).await? {
                return Ok(submission(key, &log));
            }
            from = to + 1;
            if from > head || self.block_time(from.into()).await? > call.createdAt {
                return Ok(None);
            }
        }
    }

    async fn submission_log(&self, key: CallKey, (from, to): (u64, u64)) -> Result<Option<Log>, ReadError> {
        let filter = Filter::new()
            .address(self.deployment().core)
            .event_signature(vec![JobSubmitted::SIGNATURE_HASH, JobSubmittedFromQuote::SIGNATURE_HASH])
            .topic1(U256::from(key.service))
            .topic2(U256::from(key.call))
            .from_block(from)
            .to_block(to);
        let logs = self.provider().get_logs(&filter).await.map_err(ReadError::node("eth_getLogs"))?;
        Ok(logs.into_iter().next())
    }

    /// The service that a request became, looked for from `since` on.
    ///
    /// # Errors
    /// [`ReadError`].
    pub async fn service_of(&self, request: u64, since: u64) -> Result<Option<u64>, ReadError> {
        let filter = Filter::new()
            .address(self.deployment().core)
            .event_signature(ServiceActivated::SIGNATURE_HASH)
            .topic2(U256::from(request))
            .from_block(since);
        let logs = self.provider().get_logs(&filter).await.map_err(ReadError::node("eth_getLogs"))?;
        Ok(logs.first().and_then(|log| log.log_decode::<ServiceActivated>().ok()).map(|log| log.inner.serviceId))
    }

    /// The first block of ours that is not older than `time` (seconds since 1970), by bisection: ranges of logs stay
    /// narrow however long the chain is.
    async fn first_block_since(&self, time: u64, head: u64) -> Result<u64, ReadError> {
        let deployed = self.blueprint().deployedBlock().call().await.map_err(ReadError::on("deployedBlock"))?;
        let (mut low, mut high) = (deployed, head);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.block_time(middle.into()).await? < time { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }

    async fn block_time(&self, block: BlockNumberOrTag) -> Result<u64, ReadError> {
        let question = "eth_getBlockByNumber";
        let block = self.provider().get_block_by_number(block).await.map_err(ReadError::node(question))?;
        let missing = || ReadError::Node { question, source: TransportError::NullResp };
        Ok(block.ok_or_else(missing)?.header().timestamp())
    }
}

fn submission(key: CallKey, log: &Log) -> Option<Submission> {
    let (job, caller, inputs) = submitted(log)?;
    Some(Submission { key, job, caller, inputs, block: log.block_number?, transaction: log.transaction_hash? })
}

/// Job, caller and inputs by either of the core's two events.
fn submitted(log: &Log) -> Option<(u8, Address, Bytes)> {
    if let Ok(plain) = log.log_decode::<JobSubmitted>() {
        let event = plain.inner.data;
        return Some((event.jobIndex, event.caller, event.inputs));
    }
    let event = log.log_decode::<JobSubmittedFromQuote>().ok()?.inner.data;
    Some((event.jobIndex, event.caller, event.inputs))
}

/// The core answers for an id that stands for nothing by an error or by zeros, by kind.
pub(super) fn absent_if_refused<T>(
    found: Result<T, ReadError>,
    is_absent: impl Fn(&T) -> bool,
) -> Result<Option<T>, ReadError> {
    match found {
        Ok(value) if is_absent(&value) => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(ReadError::Refused(refusal)) if matches!(*refusal, Refusal::Core(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
