//! Bodies and headers of the operator's HTTP API.

use alloy_primitives::{Address, B256, Bytes, Signature, U256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::abi::{self, Malformed};
use crate::failure::FailureCode;
use crate::jobs::Job;
use crate::receipt::{Outcome, SignedReceipt};

/// Where a call is on its road, in the order of the road.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum CallStatus {
    /// Taken in, not yet answered.
    Pending,
    /// Answered; the receipt is on its way to the chain.
    Answered,
    /// The receipt is on chain.
    Settled,
}

/// Query of `GET /v1/services/{service}/calls/{call}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct CallQuery {
    /// Seconds that the answer is held back until the call has come as far as `until`, at most 60.
    #[serde(default)]
    pub wait: u64,
    /// `answered`, unless told otherwise.
    #[serde(default = "answered")]
    pub until: CallStatus,
}

const fn answered() -> CallStatus {
    CallStatus::Answered
}

/// Answer to `GET /v1/services/{service}/calls/{call}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CallBody {
    /// Service id.
    pub service: u64,
    /// Call id within the service.
    pub call: u64,
    /// Job id.
    pub job: u8,
    /// Where it is on its road.
    pub status: CallStatus,
    /// Id of its run, for prompts and tasks: while it goes on it is followed in the sandbox, at `/runs/{id}/events`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The answer, unless pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerBody>,
}

/// The answer of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AnswerBody {
    /// As on chain.
    pub outcome: Outcome,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureCode>,
    /// The response as ABI bytes: what the receipt's hash is of.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub response: Bytes,
    /// The same response, readable.
    pub response_json: Value,
    /// The signed receipt.
    pub receipt: SignedReceipt,
    /// The transaction that put the receipt on chain, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub transaction: Option<B256>,
}

/// Body of `POST /v1/quotes`: what is to be done, for whom. Anybody may ask; only the requester can redeem the quote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuoteRequest {
    /// Who will submit the job.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub requester: Address,
    /// Service id.
    pub service: u64,
    /// Job id.
    pub job: u8,
    /// The job's inputs as they will be submitted, in hex.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub inputs: Bytes,
}

/// Answer to `POST /v1/quotes`: the core's `JobQuoteDetails` by plainer names, signed by the operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QuoteBody {
    /// Chain id of the EIP-712 domain `TangleQuote`, version 1.
    pub chain_id: u64,
    /// The Tangle core, verifying contract of the domain.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub core: Address,
    /// Who signed, and answers the job.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub operator: Address,
    /// Asset of the price: the service's; zero is the chain's coin.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub asset: Address,
    /// Who alone may redeem it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub requester: Address,
    /// Service id.
    pub service: u64,
    /// Job id.
    pub job: u8,
    /// In the asset's smallest unit.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub price: U256,
    /// Second since 1970 in which it was signed.
    pub timestamp: u64,
    /// Last second in which it can be redeemed.
    pub expiry: u64,
    /// The service's demand for confidential hardware, as the core counts it.
    pub confidentiality: u8,
    /// keccak256 of the inputs.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub inputs_hash: B256,
    /// 65 bytes r, s, v.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub signature: Bytes,
}

/// Every error of an HTTP API of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{code}: {message}")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
}

/// Scheme of the `Authorization` header by which a caller proves to be one.
pub const CALLER_SCHEME: &str = "EIP712";

/// `Authorization: EIP712 address=0x…,expires=…,signature=0x…`, the signature of a
/// [`ReadCall`](crate::receipt::ReadCall) in our domain. It is void for another call and at another operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerProof {
    /// Who claims to ask.
    pub address: Address,
    /// Second since 1970 after which the proof is void.
    pub expires: u64,
    /// Its signature.
    pub signature: Signature,
}

impl std::fmt::Display for CallerProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { address, expires, signature } = self;
        write!(f, "{CALLER_SCHEME} address={address},expires={expires},signature={signature}")
    }
}

/// A header that is no [`CallerProof`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected: {CALLER_SCHEME} address=0x…,expires=…,signature=0x…")]
pub struct NotAProof;

impl std::str::FromStr for CallerProof {
    type Err = NotAProof;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fields = text.strip_prefix(CALLER_SCHEME).ok_or(NotAProof)?.trim_start();
        let field = |name: &str| {
            let found = fields.split(',').find_map(|field| field.trim().strip_prefix(name)?.strip_prefix('='));
            found.ok_or(NotAProof)
        };
        Ok(Self {
            address: field("address")?.parse().map_err(|_| NotAProof)?,
            expires: field("expires")?.parse().map_err(|_| NotAProof)?,
            signature: field("signature")?.parse().map_err(|_| NotAProof)?,
        })
    }
}

/// The readable form of a response: its struct's fields by name, bytes as hex.
///
/// # Errors
/// [`Malformed`] where the bytes are not the response that job and failure call for.
pub fn response_json(job: Job, failure: Option<FailureCode>, response: &[u8]) -> Result<Value, Malformed> {
    if failure.is_some_and(|code| !code.keeps_response()) {
        return json::<abi::JobError>(response);
    }
    match job {
        Job::SandboxCreate => json::<abi::SandboxCreateResponse>(response),
        Job::SandboxStop | Job::SandboxResume | Job::SandboxDelete => json::<abi::SandboxStatusResponse>(response),
        Job::SandboxSnapshot => json::<abi::SandboxSnapshotResponse>(response),
        Job::Exec => json::<abi::ExecResponse>(response),
        Job::Prompt => json::<abi::PromptResponse>(response),
        Job::Task => json::<abi::TaskResponse>(response),
        Job::BatchCreate => json::<abi::BatchCreateResponse>(response),
        Job::BatchTask => json::<abi::BatchTaskResponse>(response),
        Job::BatchExec => json::<abi::BatchExecResponse>(response),
        Job::BatchCollect => json::<abi::BatchCollectResponse>(response),
        Job::WorkflowCreate | Job::WorkflowTrigger | Job::WorkflowCancel => {
            json::<abi::WorkflowCreateResponse>(response)
        }
        Job::SshProvision => json::<abi::SshProvisionResponse>(response),
        Job::SshRevoke => json::<abi::SandboxStatusResponse>(response),
    }
}

fn json<T>(response: &[u8]) -> Result<Value, Malformed>
where
    T: alloy_sol_types::SolValue + From<<T::SolType as alloy_sol_types::SolType>::RustType> + Serialize,
{
    let value = abi::decode::<T>(response)?;
    serde_json::to_value(value).map_err(|_| Malformed("JSON"))
}
