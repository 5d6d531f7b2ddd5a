//! Fetching answers from operators: who has the answer, long-poll until it is there, prove it before handing it on.
//!
//! The operator is the one assigned on chain and its URL the one it registered; nothing is asked of anybody else.

pub(crate) mod client;
mod follow;

use std::time::Duration;

use alloy::primitives::Address;
use sandbox_protocol::http::{AnswerBody, CallBody, CallStatus, ErrorBody};
use sandbox_protocol::{CallKey, Job, Outcome};
use tokio::time::Instant;

use crate::api::ApiError;
use crate::chain::{Account, ReadError, SubmittedJob};
use crate::contracts::IAgentSandboxBlueprint::Assignment;
use crate::limits::{RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
use crate::verify::{self, Expectation, Unproven};

use client::{Look, Operator};

pub use follow::{CallEvents, CallTold};

/// Whether an answer must be proven before it is handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Proof {
    /// An unproven answer is an error.
    #[default]
    Demanded,
    /// An answer is handed on as it came.
    Waived,
}

/// Fetches answers for one account.
#[derive(Debug, Clone)]
pub struct Answers {
    account: Account,
    http: reqwest::Client,
    proof: Proof,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The HTTP client could not be made.
    #[error("the HTTP client could not be made")]
    Client(#[source] reqwest::Error),
    /// The chain could not be asked.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The chain has no such call.
    #[error("the chain has no call {0} of this blueprint")]
    NoCall(CallKey),
    /// The operator has no URL that can be used.
    #[error("operator {operator} has no usable API URL: {url:?}")]
    NoUrl {
        /// The operator.
        operator: Address,
        /// What it registered.
        url: String,
    },
    /// The proof of who asks could not be signed.
    #[error("the request could not be signed")]
    Sign(#[source] alloy::signers::Error),
    /// The operator did not answer.
    #[error("the operator at {url} did not answer")]
    Unreachable {
        /// Its URL.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The operator refused the request.
    #[error("the operator refused with status {status}: {error}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What it said.
        error: ErrorBody,
    },
    /// What the operator sent is not an answer of ours.
    #[error("the operator at {url} sent something else than an answer: {why}")]
    Garbled {
        /// Its URL.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// What is told of a call broke off.
    #[error("what is told of the call broke off")]
    Stream(#[source] ApiError),
    /// There is no answer within the bound.
    #[error("call {key} has no answer after {waited_s} s")]
    TooLate {
        /// The call.
        key: CallKey,
        /// How long was waited.
        waited_s: u64,
        /// What went wrong last, if anything did.
        source: Option<Box<AnswerError>>,
    },
    /// The operator's receipt is on chain, but it does not hand over the response.
    #[error(
        "call {key} was answered on chain with outcome {outcome}, but its operator does not hand over the response"
    )]
    Withheld {
        /// The call.
        key: CallKey,
        /// Outcome on chain.
        outcome: u8,
        /// What went wrong last, if anything did.
        source: Option<Box<AnswerError>>,
    },
    /// The answer proves nothing, so it is not handed on.
    #[error("the answer to call {key} is not proven")]
    Unproven {
        /// The call.
        key: CallKey,
        /// Why.
        source: Unproven,
    },
}

impl AnswerError {
    /// Whether asking again may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Read(_) | Self::Unreachable { .. } | Self::TooLate { .. } | Self::Withheld { .. } => true,
            Self::Stream(error) => error.retryable(),
            Self::Refused { status, error } => error.retryable || client::is_transient(*status),
            Self::Client(_)
            | Self::NoCall(_)
            | Self::NoUrl { .. }
            | Self::Sign(_)
            | Self::Garbled { .. }
            | Self::Unproven { .. } => false,
        }
    }
}

impl Answers {
    /// Answers to calls that `account` submitted, or whose service it owns.
    ///
    /// # Errors
    /// [`AnswerError::Client`].
    pub fn new(account: Account) -> Result<Self, AnswerError> {
        let http = client::http().map_err(AnswerError::Client)?;
        Ok(Self { account, http, proof: Proof::default() })
    }

    /// The same with another demand for proof.
    #[must_use]
    pub const fn proof(mut self, proof: Proof) -> Self {
        self.proof = proof;
        self
    }

    /// The account that asks.
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// The answer to a job of one's own, waited for at most `bound`.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub async fn wait_for(&self, submitted: &SubmittedJob, bound: Duration) -> Result<CallBody, AnswerError> {
        let body = self.poll(submitted.key, CallStatus::Answered, bound).await?;
        if self.proof == Proof::Demanded {
            self.prove(&body, Expectation::of_submitted(self.account.chain(), submitted).await)?;
        }
        Ok(body)
    }

    /// As [`Answers::wait_for`], and its receipt is on chain: a job that builds on this one may follow.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub async fn wait_until_settled(&self, submitted: &SubmittedJob, bound: Duration) -> Result<CallBody, AnswerError> {
        let (key, chain) = (submitted.key, self.account.chain());
        let body = self.poll(key, CallStatus::Settled, bound).await?;
        if let (Some(answer), Proof::Demanded) = (&body.answer, self.proof) {
            self.prove(&body, Expectation::of_submitted(chain, submitted).await)?;
            let settled = verify::wait_until_settled(chain, answer, bound).await;
            settled.map_err(|source| AnswerError::Unproven { key, source })?;
        }
        Ok(body)
    }

    /// The answer to any call, waited for at most `bound`. What it must name is read from the chain.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub async fn wait_for_call(&self, key: CallKey, bound: Duration) -> Result<CallBody, AnswerError> {
        let body = self.poll(key, CallStatus::Answered, bound).await?;
        self.prove_from_chain(&body).await?;
        Ok(body)
    }

    /// Where a call is now, and its answer if there is one.
    ///
    /// # Errors
    /// [`AnswerError`].
    pub async fn look(&self, key: CallKey) -> Result<CallBody, AnswerError> {
        let operator = self.operator_of(key).await?;
        let body = match operator.look(key, Duration::ZERO, CallStatus::Answered).await? {
            Look::Body(body) => *body,
            Look::NotNow(error) => return Err(error),
        };
        self.prove_from_chain(&body).await?;
        Ok(body)
    }

    /// What one operator answers to its part of a batch, waited for at most `wait`; `None` while it has nothing. It is handed on
    /// as it came.
    pub(crate) async fn look_at_part(
        &self,
        key: CallKey,
        operator: Address,
        wait: Duration,
    ) -> Result<Option<AnswerBody>, AnswerError> {
        match self.operator_at(operator).await?.look(key, wait, CallStatus::Answered).await? {
            Look::Body(body) => Ok(body.answer),
            Look::NotNow(error) => Err(error),
        }
    }

    async fn prove_from_chain(&self, body: &CallBody) -> Result<(), AnswerError> {
        if self.proof == Proof::Waived || body.answer.is_none() {
            return Ok(());
        }
        let key = CallKey { service: body.service, call: body.call };
        self.prove(body, Expectation::of_call(self.account.chain(), key).await)
    }

    fn prove(&self, body: &CallBody, expected: Result<Expectation, Unproven>) -> Result<(), AnswerError> {
        let key = CallKey { service: body.service, call: body.call };
        let Some(answer) = &body.answer else { return Ok(()) };
        expected.and_then(|expected| proven(answer, &expected)).map_err(|source| AnswerError::Unproven { key, source })
    }

    async fn poll(&self, key: CallKey, far_enough: CallStatus, bound: Duration) -> Result<CallBody, AnswerError> {
        let until = Instant::now() + bound;
        let mut operator = self.operator_of(key).await?;
        let (mut pause, mut last) = (RETRY_PAUSE_MIN, None);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.too_late(key, bound, last).await);
            }
            match operator.look(key, left, far_enough).await {
                // One that answers before the call is as far as asked is taken at its word; the chain has the last.
                Ok(Look::Body(body)) if body.status != CallStatus::Pending && !may_move(&body) => return Ok(*body),
                Ok(Look::Body(body)) if body.status == CallStatus::Settled => {
                    let holder = self.operator_of(key).await?;
                    if holder.address() == operator.address() {
                        return Ok(*body);
                    }
                }
                Ok(Look::Body(_)) => (pause, last) = (RETRY_PAUSE_MIN, None),
                Ok(Look::NotNow(error)) => (pause, last) = ((pause * 2).min(RETRY_PAUSE_MAX), Some(Box::new(error))),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
            // The call may be another operator's by now.
            operator = self.operator_of(key).await?;
        }
    }

    async fn too_late(&self, key: CallKey, bound: Duration, source: Option<Box<AnswerError>>) -> AnswerError {
        match self.account.chain().assignment(key).await {
            Ok(Some(Assignment { answered: true, outcome, .. })) => AnswerError::Withheld { key, outcome, source },
            _ => AnswerError::TooLate { key, waited_s: bound.as_secs(), source },
        }
    }

    async fn operator_of(&self, key: CallKey) -> Result<Operator<'_>, AnswerError> {
        let assignment = self.account.chain().assignment(key).await?.ok_or(AnswerError::NoCall(key))?;
        self.operator_at(assignment.operator).await
    }

    async fn operator_at(&self, operator: Address) -> Result<Operator<'_>, AnswerError> {
        let url = self.account.chain().operator(operator).await?.apiUrl;
        let found = Operator::new(&self.http, &self.account, (operator, url.clone()));
        found.ok_or(AnswerError::NoUrl { operator, url })
    }
}

/// Whether the contract may give the call to another operator once it has this answer: it tells only then.
fn may_move(body: &CallBody) -> bool {
    let creates = [Job::SandboxCreate, Job::WorkflowCreate].map(Job::id);
    creates.contains(&body.job) && body.answer.as_ref().is_some_and(|answer| answer.outcome == Outcome::Operator)
}

fn proven(answer: &AnswerBody, expected: &Expectation) -> Result<(), Unproven> {
    verify::offline(answer)?;
    verify::matches(answer, expected)
}
