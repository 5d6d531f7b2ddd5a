//! Proving an answer, in three steps that need more and more: its own signature, what was asked, and the chain.
//!
//! [`offline`] shows that the operator named in the receipt signed exactly this response. [`matches`] shows that it is
//! the answer to this call, by the operator that had to give it. [`settled`] shows that the chain has recorded the same.

use std::fmt::Display;
use std::time::Duration;

use alloy::primitives::{Address, B256, keccak256};
use sandbox_protocol::http::{AnswerBody, response_json};
use sandbox_protocol::receipt::VerifyError;
use sandbox_protocol::{CallKey, Job};
use tokio::time::Instant;

use crate::chain::pause::Pause;
use crate::chain::{Chain, ReadError, Recorded, SubmittedJob};

/// What a receipt must name to be the answer to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    /// Chain id.
    pub chain_id: u64,
    /// The Tangle core.
    pub core: Address,
    /// The call.
    pub key: CallKey,
    /// Job id.
    pub job: u8,
    /// Who asked.
    pub caller: Address,
    /// Who must answer.
    pub operator: Address,
    /// keccak256 of the inputs.
    pub inputs_hash: B256,
}

/// Why an answer proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum Unproven {
    /// The receipt is not signed for this response by the operator it names.
    #[error(transparent)]
    Receipt(#[from] VerifyError),
    /// What stands beside the receipt says something else than the receipt.
    #[error("the answer says {field} {said}, its receipt says {attested}")]
    Contradiction {
        /// What is contradicted.
        field: &'static str,
        /// By the answer.
        said: String,
        /// By the receipt.
        attested: String,
    },
    /// The readable response is not what the attested bytes say.
    #[error("the readable response is not what the attested bytes say")]
    Readable,
    /// The receipt is of something else.
    #[error("the receipt is of {field} {attested}, not of {expected}")]
    OtherCall {
        /// What differs.
        field: &'static str,
        /// What it should be.
        expected: String,
        /// What the receipt says.
        attested: String,
    },
    /// The chain has no such call.
    #[error("the chain has no call {0} of this blueprint")]
    NoCall(CallKey),
    /// The chain has no inputs of the call to compare with.
    #[error("the inputs of call {0} are not found on the chain")]
    NoInputs(CallKey),
    /// The chain has no receipt of the call yet.
    #[error("call {0} has no receipt on the chain yet")]
    NotSettled(CallKey),
    /// The chain recorded something else.
    #[error("the chain recorded {field} {recorded}, the receipt says {attested}")]
    OtherRecord {
        /// What differs.
        field: &'static str,
        /// By the chain.
        recorded: String,
        /// By the receipt.
        attested: String,
    },
    /// The chain could not be asked.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Expectation {
    /// What the answer to a job of one's own must name. The operator is the one assigned on chain.
    ///
    /// # Errors
    /// [`Unproven::NoCall`], [`Unproven::Read`].
    pub async fn of_submitted(chain: &Chain, submitted: &SubmittedJob) -> Result<Self, Unproven> {
        let inputs_hash = submitted.inputs_hash();
        Self::with_inputs(chain, submitted.key, inputs_hash).await
    }

    /// What the answer to any call must name, all of it from the chain.
    ///
    /// # Errors
    /// [`Unproven::NoCall`], [`Unproven::NoInputs`], [`Unproven::Read`].
    pub async fn of_call(chain: &Chain, key: CallKey) -> Result<Self, Unproven> {
        let submission = chain.submission(key).await?.ok_or(Unproven::NoInputs(key))?;
        Self::with_inputs(chain, key, keccak256(&submission.inputs)).await
    }

    async fn with_inputs(chain: &Chain, key: CallKey, inputs_hash: B256) -> Result<Self, Unproven> {
        let assignment = chain.assignment(key).await?.ok_or(Unproven::NoCall(key))?;
        let deployment = chain.deployment();
        Ok(Self {
            chain_id: deployment.chain_id,
            core: deployment.core,
            key,
            job: assignment.job,
            caller: assignment.caller,
            operator: assignment.operator,
            inputs_hash,
        })
    }
}

/// Checks that the operator named in the receipt signed this very answer.
///
/// # Errors
/// [`Unproven::Receipt`], [`Unproven::Contradiction`], [`Unproven::Readable`].
pub fn offline(answer: &AnswerBody) -> Result<(), Unproven> {
    answer.receipt.verify(&answer.response)?;
    let receipt = &answer.receipt.receipt;
    consistent("outcome", answer.outcome.id(), receipt.outcome)?;
    let failure = answer.failure.map(|code| code.to_string()).unwrap_or_default();
    consistent("failure", failure.as_str(), receipt.failure.as_str())?;
    if let Some(code) = answer.failure {
        consistent("outcome", answer.outcome.id(), code.outcome().id())?;
    }
    let job = Job::from_id(receipt.job).ok_or(Unproven::Readable)?;
    let readable = response_json(job, answer.failure, &answer.response).map_err(|_| Unproven::Readable)?;
    if readable == answer.response_json { Ok(()) } else { Err(Unproven::Readable) }
}

/// Checks that the receipt is of the call that is expected.
///
/// # Errors
/// [`Unproven::OtherCall`] with the first thing that differs.
pub fn matches(answer: &AnswerBody, expected: &Expectation) -> Result<(), Unproven> {
    let (signed, receipt) = (&answer.receipt, &answer.receipt.receipt);
    same("chain", expected.chain_id, signed.chain_id)?;
    same("core", expected.core, signed.core)?;
    same("call", expected.key, receipt.key())?;
    same("job", expected.job, receipt.job)?;
    same("caller", expected.caller, receipt.caller)?;
    same("operator", expected.operator, receipt.operator)?;
    same("inputs", expected.inputs_hash, receipt.inputs_hash)
}

/// Checks that the chain has recorded what the receipt says. Of a batch every operator has a record of its own.
///
/// # Errors
/// [`Unproven::NoCall`], [`Unproven::NotSettled`], [`Unproven::OtherRecord`], [`Unproven::Read`].
pub async fn settled(chain: &Chain, answer: &AnswerBody) -> Result<(), Unproven> {
    let receipt = &answer.receipt.receipt;
    let key = receipt.key();
    let record = chain.assignment(key).await?.ok_or(Unproven::NoCall(key))?;
    if record.parts != 0 {
        return part_settled(chain, answer).await;
    }
    if !record.answered {
        return Err(Unproven::NotSettled(key));
    }
    recorded("operator", record.operator, receipt.operator)?;
    recorded("outcome", record.outcome, receipt.outcome)?;
    recorded("response", record.responseHash, receipt.response_hash)?;
    recorded("detail", record.detail, receipt.detail)
}

async fn part_settled(chain: &Chain, answer: &AnswerBody) -> Result<(), Unproven> {
    let receipt = &answer.receipt.receipt;
    let key = receipt.key();
    let answered = chain.parts(key).await?.iter().filter(|part| part.answered).count();
    let since = chain.submission(key).await?.ok_or(Unproven::NoInputs(key))?.block;
    let records = chain.recorded(key, since, answered).await?;
    let own = records.iter().find(|record| record.operator == receipt.operator);
    agrees(answer, own.ok_or(Unproven::NotSettled(key))?)
}

/// Checks that a record of the chain is of this answer.
///
/// # Errors
/// [`Unproven::OtherRecord`] with the first thing that differs.
pub fn agrees(answer: &AnswerBody, record: &Recorded) -> Result<(), Unproven> {
    let receipt = &answer.receipt.receipt;
    recorded("operator", record.operator, receipt.operator)?;
    recorded("outcome", record.outcome, receipt.outcome)?;
    recorded("response", record.response_hash, receipt.response_hash)?;
    recorded("detail", record.detail, receipt.detail)
}

/// As [`settled`], waiting at most `bound` for the chain's record. A sandbox is of use only once its receipt is there.
///
/// # Errors
/// As [`settled`].
pub async fn wait_until_settled(chain: &Chain, answer: &AnswerBody, bound: Duration) -> Result<(), Unproven> {
    let until = Instant::now() + bound;
    let mut pause = Pause::new();
    loop {
        match settled(chain, answer).await {
            Err(Unproven::NotSettled(_)) if Instant::now() < until => pause.take().await,
            result => return result,
        }
    }
}

/// All three steps, everything but the answer itself from the chain.
///
/// # Errors
/// [`Unproven`] with the first thing that does not hold.
pub async fn on_chain(chain: &Chain, answer: &AnswerBody) -> Result<(), Unproven> {
    offline(answer)?;
    let receipt = &answer.receipt.receipt;
    let mut expected = Expectation::of_call(chain, receipt.key()).await?;
    if expected.operator.is_zero() {
        // A batch: it is for each of its operators to answer its part.
        let parts = chain.parts(receipt.key()).await?;
        let own = parts.iter().find(|part| part.operator == receipt.operator).or(parts.first());
        expected.operator = own.map_or(expected.operator, |part| part.operator);
    }
    matches(answer, &expected)?;
    settled(chain, answer).await
}

fn consistent<T: PartialEq + Display>(field: &'static str, said: T, attested: T) -> Result<(), Unproven> {
    if said == attested {
        return Ok(());
    }
    Err(Unproven::Contradiction { field, said: said.to_string(), attested: attested.to_string() })
}

fn same<T: PartialEq + Display>(field: &'static str, expected: T, attested: T) -> Result<(), Unproven> {
    if expected == attested {
        return Ok(());
    }
    Err(Unproven::OtherCall { field, expected: expected.to_string(), attested: attested.to_string() })
}

fn recorded<T: PartialEq + Display>(field: &'static str, recorded: T, attested: T) -> Result<(), Unproven> {
    if recorded == attested {
        return Ok(());
    }
    Err(Unproven::OtherRecord { field, recorded: recorded.to_string(), attested: attested.to_string() })
}

#[cfg(test)]
mod tests {
    use alloy::primitives::U256;
    use alloy::signers::SignerSync as _;
    use alloy::signers::local::PrivateKeySigner;
    use alloy::sol_types::{SolStruct as _, SolValue as _};
    use sandbox_protocol::abi::ExecResponse;
    use sandbox_protocol::receipt::{SandboxReceipt, SignedReceipt, domain};
    use sandbox_protocol::{FailureCode, Outcome};

    use super::*;

    /// What is changed, and how.
    type Change<T> = (&'static str, fn(&mut T));

    const CHAIN_ID: u64 = 31_337;
    const CORE: Address = Address::repeat_byte(0xc0);

    fn answer() -> AnswerBody {
        let key = PrivateKeySigner::random();
        let response = ExecResponse { exit_code: 3, stdout: b"out".into(), ..Default::default() }.abi_encode();
        let receipt = SandboxReceipt {
            service: 1,
            call: 2,
            job: Job::Exec.id(),
            operator: key.address(),
            caller: Address::repeat_byte(0xca),
            inputs_hash: B256::repeat_byte(1),
            response_hash: keccak256(&response),
            outcome: Outcome::Done.id(),
            detail: U256::ZERO,
            failure: String::new(),
            runtime: "runc".into(),
            image_digest: "sha256:aa".into(),
            started_block: 10,
            ended_block: 11,
            duration_ms: 12,
        };
        let signature = key.sign_hash_sync(&receipt.eip712_signing_hash(&domain(CHAIN_ID, CORE))).unwrap();
        AnswerBody {
            outcome: Outcome::Done,
            failure: None,
            response_json: response_json(Job::Exec, None, &response).unwrap(),
            response: response.into(),
            receipt: SignedReceipt { chain_id: CHAIN_ID, core: CORE, receipt, signature },
            transaction: None,
        }
    }

    fn expectation(answer: &AnswerBody) -> Expectation {
        let receipt = &answer.receipt.receipt;
        Expectation {
            chain_id: CHAIN_ID,
            core: CORE,
            key: receipt.key(),
            job: receipt.job,
            caller: receipt.caller,
            operator: receipt.operator,
            inputs_hash: receipt.inputs_hash,
        }
    }

    #[test]
    fn an_honest_answer_is_proven() {
        let answer = answer();
        offline(&answer).unwrap();
        matches(&answer, &expectation(&answer)).unwrap();
    }

    #[test]
    fn every_changed_field_of_an_answer_is_detected() {
        let tamperings: [Change<AnswerBody>; 23] = [
            ("chain_id", |a| a.receipt.chain_id += 1),
            ("core", |a| a.receipt.core = Address::ZERO),
            ("service", |a| a.receipt.receipt.service += 1),
            ("call", |a| a.receipt.receipt.call += 1),
            ("job", |a| a.receipt.receipt.job = Job::SandboxDelete.id()),
            ("operator", |a| a.receipt.receipt.operator = Address::ZERO),
            ("caller", |a| a.receipt.receipt.caller = Address::ZERO),
            ("inputs_hash", |a| a.receipt.receipt.inputs_hash = B256::ZERO),
            ("response_hash", |a| a.receipt.receipt.response_hash = B256::ZERO),
            ("receipt's outcome", |a| a.receipt.receipt.outcome = 1),
            ("detail", |a| a.receipt.receipt.detail = U256::from(1)),
            ("receipt's failure", |a| a.receipt.receipt.failure = "timeout".into()),
            ("runtime", |a| a.receipt.receipt.runtime = "runsc".into()),
            ("image_digest", |a| a.receipt.receipt.image_digest.clear()),
            ("started_block", |a| a.receipt.receipt.started_block -= 1),
            ("ended_block", |a| a.receipt.receipt.ended_block += 1),
            ("duration_ms", |a| a.receipt.receipt.duration_ms += 1),
            ("signature", |a| a.receipt.signature = a.receipt.signature.with_parity(!a.receipt.signature.v())),
            ("response", |a| a.response = ExecResponse::default().abi_encode().into()),
            ("response_json", |a| a.response_json["exit_code"] = 0.into()),
            ("outcome", |a| a.outcome = Outcome::Caller),
            ("failure", |a| a.failure = Some(FailureCode::Timeout)),
            ("signer", |a| a.receipt.signature = answer().receipt.signature),
        ];
        for (field, tamper) in tamperings {
            let mut tampered = answer();
            tamper(&mut tampered);
            assert!(offline(&tampered).is_err(), "{field} can be changed unnoticed");
        }
    }

    #[test]
    fn the_answer_to_another_call_is_not_the_answer_to_this_one() {
        let others: [Change<Expectation>; 7] = [
            ("chain", |e| e.chain_id += 1),
            ("core", |e| e.core = Address::ZERO),
            ("call", |e| e.key.call += 1),
            ("job", |e| e.job += 1),
            ("caller", |e| e.caller = Address::ZERO),
            ("operator", |e| e.operator = Address::ZERO),
            ("inputs", |e| e.inputs_hash = B256::ZERO),
        ];
        let answer = answer();
        for (name, change) in others {
            let mut expected = expectation(&answer);
            change(&mut expected);
            let error = matches(&answer, &expected).unwrap_err();
            assert!(matches!(error, Unproven::OtherCall { field, .. } if field == name), "{name}: {error}");
        }
    }
}
