//! An operator without containers: it answers by rote, signs and settles for real, and may be told to misbehave.

use std::time::Duration;

use alloy::primitives::{Bytes, U256, keccak256};
use alloy::signers::SignerSync as _;
use alloy::sol_types::{SolStruct as _, SolType, SolValue};
use sandbox_protocol::abi::{self, ExecRequest, ExecResponse, JobError, SandboxCreateResponse, SandboxStatusResponse};
use sandbox_protocol::agent::TaskContext;
use sandbox_protocol::agent::negotiation::{DECISION_MAKERS, NegotiationResult, PolicyScore, Scores};
use sandbox_protocol::http::{AnswerBody, CallBody, CallStatus, CallerProof, ErrorBody, response_json};
use sandbox_protocol::receipt::{ReadCall, SandboxReceipt, SignedReceipt, domain, recover};
use sandbox_protocol::sealed::{Binding, Sealable, is_sealed, open};
use sandbox_protocol::{CallKey, Failure, FailureCode, Job, Outcome, SandboxId};
use sandbox_sdk::chain::Submission;
use sandbox_sdk::{Account, calls, operators};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::fake_agent::{read, write};
use crate::world::{BOUND, profile, seal_key};

/// Pause between two questions about a call that is awaited.
const ASK_PAUSE: Duration = Duration::from_millis(20);

/// How it treats its customers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Honest,
    /// Does not know the call at first, then has no answer at first.
    Slow,
    /// Answers first and settles afterwards.
    Eager,
    /// Hands over another response than it attested to.
    Forging,
    /// Settles on chain and keeps the response.
    Withholding,
    /// Never has an answer.
    Idle,
}

/// A running one; it ends when this is dropped.
pub(crate) struct FakeOperator(JoinHandle<()>);

impl Drop for FakeOperator {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl FakeOperator {
    /// Serves for `account`, whose profile is pointed to it.
    pub(crate) async fn start(account: Account, manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        operators::register(&account, &profile(&url)).await.unwrap();
        Self(tokio::spawn(async move {
            for round in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                serve(stream, &account, (manner, round)).await;
            }
        }))
    }
}

async fn serve(mut stream: TcpStream, account: &Account, (manner, round): (Manner, u32)) {
    let Some((request, _)) = read(&mut stream).await else { return };
    let (status, body) = reply(&request, account, (manner, round)).await;
    write(&mut stream, status, &body).await;
}

/// Status and body of its answer to a request for a call.
pub(crate) async fn reply(request: &str, account: &Account, (manner, round): (Manner, u32)) -> (u16, String) {
    let key = key_in(request);
    if !is_proven(request, account, key) {
        return (401, error("unauthorized"));
    }
    match (manner, round) {
        (Manner::Slow, 0) => (404, error("unknown_call")),
        (Manner::Slow, 1) | (Manner::Idle, _) => (200, pending(key)),
        (Manner::Withholding, _) => {
            settle(account, &answer(account, key).await.receipt.receipt).await;
            (503, error("busy"))
        }
        (Manner::Eager, _) => {
            let answer = answer(account, key).await;
            let (account, receipt) = (account.clone(), answer.receipt.receipt.clone());
            tokio::spawn(async move { settle(&account, &receipt).await });
            (200, body(key, CallStatus::Answered, Some(answer)))
        }
        (Manner::Honest | Manner::Slow | Manner::Forging, _) => {
            let mut answer = answer(account, key).await;
            settle(account, &answer.receipt.receipt).await;
            if manner == Manner::Forging {
                answer.response = JobError::default().abi_encode().into();
            }
            (200, body(key, CallStatus::Settled, Some(answer)))
        }
    }
}

/// A call as it was submitted. A node may tell of a call before it tells of its block, so that it is asked until it does.
pub(crate) async fn submitted(account: &Account, key: CallKey) -> Submission {
    let asking = async {
        let mut turns = tokio::time::interval(ASK_PAUSE);
        loop {
            turns.tick().await;
            if let Some(found) = account.chain().submission(key).await.unwrap() {
                break found;
            }
        }
    };
    tokio::time::timeout(BOUND, asking).await.expect("the call is in a block")
}

/// Whether the call that a request is for is one for a sandbox's agent.
pub(crate) async fn is_agents(request: &str, account: &Account) -> bool {
    let submission = submitted(account, key_in(request)).await;
    [Job::Prompt.id(), Job::Task.id()].contains(&submission.job)
}

pub(crate) fn key_in(request: &str) -> CallKey {
    let path = request.split_whitespace().nth(1).unwrap();
    let words: Vec<_> = path.split(['/', '?']).collect();
    assert!(matches!(words[..], ["", "v1", "services", _, "calls", _, _]), "{path}");
    CallKey { service: words[3].parse().unwrap(), call: words[5].parse().unwrap() }
}

pub(crate) fn is_proven(request: &str, account: &Account, key: CallKey) -> bool {
    let line = request.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap();
    let proof: CallerProof = line.parse().unwrap();
    let CallKey { service, call } = key;
    let asked = ReadCall { operator: account.address(), service, call, expires: proof.expires };
    let deployment = account.deployment();
    recover(&asked, deployment.chain_id, deployment.core, &proof.signature) == Some(proof.address)
}

/// The call's answer.
async fn answer(account: &Account, key: CallKey) -> AnswerBody {
    let submission = submitted(account, key).await;
    let job = Job::from_id(submission.job).unwrap();
    let (chain_id, core) = (account.deployment().chain_id, account.deployment().core);
    let caller = submission.caller;
    let binding = Binding { chain_id, core, service: key.service, caller, job: job.id() };
    let (failure, response) = by_rote(key, job, &submission.inputs, &binding);
    let outcome = failure.map_or(Outcome::Done, FailureCode::outcome);
    let receipt = SandboxReceipt {
        service: key.service,
        call: key.call,
        job: job.id(),
        operator: account.address(),
        caller,
        inputs_hash: keccak256(&submission.inputs),
        response_hash: keccak256(&response),
        outcome: outcome.id(),
        detail: U256::from(u8::from(job == Job::SandboxCreate && outcome == Outcome::Done)),
        failure: failure.map(|code| code.to_string()).unwrap_or_default(),
        runtime: "runc".into(),
        image_digest: "sha256:00".into(),
        started_block: submission.block,
        ended_block: submission.block,
        duration_ms: 1,
    };
    let signature = account.key().sign_hash_sync(&receipt.eip712_signing_hash(&domain(chain_id, core))).unwrap();
    let response_json = response_json(job, failure, &response).unwrap();
    let receipt = SignedReceipt { chain_id, core, receipt, signature };
    AnswerBody { outcome, failure, response, response_json, receipt, transaction: None }
}

/// Puts the receipt on chain, once.
async fn settle(account: &Account, receipt: &SandboxReceipt) {
    let known = account.chain().assignment(receipt.key()).await.unwrap().unwrap();
    if !known.answered {
        let call = calls::submit_receipt(account.deployment(), receipt.key(), &receipt.on_chain());
        account.send(&call).await.unwrap();
    }
}

/// The response that a job gets whatever is asked. A command's first words choose what becomes of it.
fn by_rote(key: CallKey, job: Job, inputs: &[u8], binding: &Binding) -> (Option<FailureCode>, Bytes) {
    match job {
        Job::SandboxCreate => {
            let sandbox_id = SandboxId { origin: key, slot: 0 }.to_string();
            (None, SandboxCreateResponse { sandbox_id, ..Default::default() }.abi_encode().into())
        }
        Job::SandboxDelete => {
            let request: abi::SandboxIdRequest = abi::decode(inputs).unwrap();
            let response =
                SandboxStatusResponse { sandbox_id: request.sandbox_id, state: "gone".into(), expires_at_block: 0 };
            (None, response.abi_encode().into())
        }
        Job::Prompt => {
            let request: abi::PromptRequest = opened(inputs, binding);
            let result = format!("{}|{}|{}", request.prompt, request.context_json, request.model);
            (None, abi::PromptResponse { success: true, result, ..Default::default() }.abi_encode().into())
        }
        Job::Task => {
            let response = negotiated(&opened(inputs, binding));
            (None, response.abi_encode().into())
        }
        Job::WorkflowCreate | Job::WorkflowTrigger | Job::WorkflowCancel => controlled(key, job, inputs),
        _ => run(&opened(inputs, binding)),
    }
}

/// A workflow begins as active; every firing is its first run.
fn controlled(key: CallKey, job: Job, inputs: &[u8]) -> (Option<FailureCode>, Bytes) {
    let named = || abi::decode::<abi::WorkflowControlRequest>(inputs).unwrap().workflow_id;
    let (workflow_id, status) = match job {
        Job::WorkflowCreate => (key.call, "active"),
        Job::WorkflowTrigger => (named(), "run 1 running"),
        _ => (named(), "cancelled"),
    };
    (None, abi::WorkflowCreateResponse { workflow_id, status: status.into() }.abi_encode().into())
}

/// The request, with what was sealed in it opened.
pub(crate) fn opened<T>(inputs: &[u8], binding: &Binding) -> T
where
    T: Sealable + SolValue + From<<T::SolType as SolType>::RustType>,
{
    let mut request: T = abi::decode(inputs).unwrap();
    for (field, text) in request.sealable().into_iter().filter(|(_, text)| is_sealed(text)) {
        *text = open(text, &[seal_key()], (binding, field)).unwrap();
    }
    request
}

/// Every move of a negotiation gets ten times its place; a task without one does not succeed.
fn negotiated(request: &abi::TaskRequest) -> abi::TaskResponse {
    let Some(negotiation) = TaskContext::parse(&request.context_json).unwrap().negotiation else {
        return abi::TaskResponse { result: "half".into(), error: "it gave up".into(), ..Default::default() };
    };
    let scores = |each: u32| Scores {
        impact: each,
        feasibility: each,
        risk_adjusted_return: each,
        strategic_alignment: each,
        reasoning: Some("by rote".into()),
    };
    let scored = negotiation.moves.iter().zip(1..).map(|(one, each)| PolicyScore {
        move_id: one.move_id.clone(),
        total_score: 12 * each,
        scores_by_agent: DECISION_MAKERS.map(|name| (name.to_owned(), scores(each))).into(),
    });
    let result = NegotiationResult {
        policy_scores: scored.collect(),
        conversation_logs: Vec::new(),
        errors: Default::default(),
        transcript_hash: "ab12".into(),
        ledger: Default::default(),
        isolation: Default::default(),
        warnings: Vec::new(),
    };
    let result = serde_json::to_string(&result).unwrap();
    abi::TaskResponse { success: true, result, ..Default::default() }
}

/// Echoes what it was asked, to stdout with the byte 0xff behind it, and ends with 3.
fn run(request: &ExecRequest) -> (Option<FailureCode>, Bytes) {
    let said = format!("{}|{}|{}|{}", request.command, request.cwd, request.env_json, request.stdin);
    let mut response = ExecResponse { exit_code: 3, stderr: b"warned\n".into(), ..Default::default() };
    response.stdout = [said.as_bytes(), &[0xff]].concat().into();
    match request.command.as_str() {
        "never-ends" => (Some(FailureCode::Timeout), response.abi_encode().into()),
        "no-engine" => {
            let failure = Failure::new(FailureCode::Engine, "the container engine failed");
            (Some(failure.code), JobError::from(&failure).abi_encode().into())
        }
        _ => (None, response.abi_encode().into()),
    }
}

fn pending(key: CallKey) -> String {
    body(key, CallStatus::Pending, None)
}

fn body(key: CallKey, status: CallStatus, answer: Option<AnswerBody>) -> String {
    let job = answer.as_ref().map_or(0, |answer| answer.receipt.receipt.job);
    serde_json::to_string(&CallBody { service: key.service, call: key.call, job, status, run: None, answer }).unwrap()
}

fn error(code: &str) -> String {
    serde_json::to_string(&ErrorBody { code: code.into(), message: "by rote".into(), retryable: false }).unwrap()
}
