//! An operator of batches without containers: it answers its parts by rote, signs and settles for real, quotes, and may be told
//! to misbehave.

use std::collections::BTreeMap;
use std::sync::Arc;

use alloy::primitives::{Address, Bytes, U256, keccak256};
use alloy::signers::SignerSync as _;
use alloy::sol_types::{SolStruct as _, SolValue as _};
use sandbox_protocol::abi::{self, ExecResponse, TaskResponse};
use sandbox_protocol::agent::event::{RunEvent, Told};
use sandbox_protocol::batch::{BatchId, BatchReport, BatchStatus, ItemReport, ItemState, PartReport};
use sandbox_protocol::http::{AnswerBody, CallBody, CallStatus, QuoteRequest, response_json};
use sandbox_protocol::receipt::{SandboxReceipt, SignedReceipt, domain};
use sandbox_protocol::sealed::Binding;
use sandbox_protocol::session::TokensBody;
use sandbox_protocol::{CallKey, Failure, FailureCode, Job, Outcome, SandboxId};
use sandbox_sdk::chain::Submission;
use sandbox_sdk::quotes::{self, Draft, Ledger};
use sandbox_sdk::{Account, calls, devchain, operators};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Mutex};
use tokio::task::JoinSet;

use crate::fake_agent::{frame, header, read, write};
use crate::fake_operator::{is_proven, key_in, opened, submitted};
use crate::world::profile;

/// How it treats its customers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conduct {
    Honest,
    /// Breaks off twice before it answers anything.
    Slow,
    /// Never answers, and never settles.
    Silent,
    /// Settles, and keeps what it answered.
    Withholding,
    /// Hands over another response than its receipt on chain is of, well signed.
    Changing,
    /// Has its answers signed by somebody else.
    Stranger,
    /// Says what came of the items of others.
    Claiming,
    /// Says that it has made a sandbox more than its receipt holds.
    Boasting,
    /// Does not quote.
    Mute,
    /// Makes the first of its slots alone.
    Short,
    /// Says of all creates, in its answers too, that they are of the batch `night`.
    Luring,
    /// Answers no question that may wait, and others only while another operator of this conduct is asked too.
    Paired,
}

/// A running one; it ends when this is dropped.
pub(super) struct FakeBatches {
    _server: JoinSet<()>,
}

struct State {
    account: Account,
    conduct: Conduct,
    answers: Mutex<BTreeMap<CallKey, AnswerBody>>,
    pair: Arc<Barrier>,
    ledger: Mutex<Ledger>,
    broken: Mutex<u32>,
}

impl FakeBatches {
    /// Serves for `account`, whose profile is pointed to it; where two are asked in pairs, `pair` is theirs.
    pub(super) async fn start(account: Account, conduct: Conduct, pair: Arc<Barrier>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        operators::register(&account, &profile(&url)).await.unwrap();
        let (answers, ledger) = (Mutex::default(), Mutex::new(Ledger::new(600)));
        let state = Arc::new(State { account, conduct, answers, pair, ledger, broken: Mutex::new(0) });
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = state.clone();
                connections.spawn(async move { state.serve(stream).await });
            }
        });
        Self { _server: server }
    }
}

impl State {
    async fn serve(&self, mut stream: TcpStream) {
        let Some((head, body)) = read(&mut stream).await else { return };
        let path = head.split_whitespace().nth(1).unwrap().split('?').next().unwrap().to_owned();
        let segments: Vec<_> = path.split('/').skip(1).collect();
        let (status, text) = match segments.as_slice() {
            ["v1", "services", _, "calls", _] if header(&head, "accept") == Some("text/event-stream") => {
                return self.tell(key_in(&head), stream).await;
            }
            ["v1", "services", _, "calls", _] => self.call(&head).await,
            ["v1", "services", service, "batches", id] => {
                let report = self.report(service.parse().unwrap(), &id.parse().unwrap()).await;
                let known = report.status != BatchStatus::Unknown;
                if known { (200, serde_json::to_string(&report).unwrap()) } else { refusal() }
            }
            ["v1", "quotes"] if self.conduct == Conduct::Mute => refusal(),
            ["v1", "quotes"] => (200, self.quote(&serde_json::from_slice(&body).unwrap()).await),
            ["v1", "auth", "tokens"] => (200, serde_json::to_string(&TokensBody { tokens: Vec::new() }).unwrap()),
            _ => refusal(),
        };
        write(&mut stream, status, &text).await;
    }

    /// One item's end, and then nothing until its reader leaves.
    async fn tell(&self, key: CallKey, mut stream: TcpStream) {
        let part = self.part(key).await;
        let told = Told::BatchItem { index: part.firstSlot.into(), state: ItemState::Succeeded, message: None };
        let head = "HTTP/1.1 200 x\r\nconnection: close\r\n\r\nevent: running\nid: 1\ndata: {}\n\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(frame(&RunEvent { seq: 1, time_ms: 1, told }).as_bytes()).await.unwrap();
        stream.read_u8().await.unwrap_or_default();
    }

    async fn call(&self, head: &str) -> (u16, String) {
        let key = key_in(head);
        assert!(is_proven(head, &self.account, key));
        if self.conduct == Conduct::Slow && *self.broken.lock().await < 2 {
            *self.broken.lock().await += 1;
            return (503, r#"{"code":"busy","message":"by rote","retryable":true}"#.into());
        }
        if self.conduct == Conduct::Silent {
            return (200, body(key, CallStatus::Pending, None));
        }
        if self.conduct == Conduct::Paired {
            let may_wait = !head.contains("wait=0&");
            if may_wait {
                std::future::pending::<()>().await;
            }
            self.pair.wait().await;
        }
        let answer = self.answered(key).await;
        if self.conduct == Conduct::Withholding {
            return refusal();
        }
        (200, body(key, CallStatus::Settled, Some(answer)))
    }

    /// Its answer, which is made and settled once.
    async fn answered(&self, key: CallKey) -> AnswerBody {
        let mut answers = self.answers.lock().await;
        if let Some(answer) = answers.get(&key) {
            return answer.clone();
        }
        let submission = submitted(&self.account, key).await;
        let (response, detail) = self.by_rote(&submission).await;
        let answer = self.signed(&submission, response, detail);
        let receipt = answer.receipt.receipt.on_chain();
        self.account.send(&calls::submit_receipt(self.account.deployment(), key, &receipt)).await.unwrap();
        let answer = if self.conduct == Conduct::Changing {
            let other = abi::BatchCreateResponse { batch_id: "other".into(), ..Default::default() };
            self.signed(&submission, other.abi_encode().into(), detail)
        } else {
            answer
        };
        answers.insert(key, answer.clone());
        answer
    }

    fn signed(&self, submission: &Submission, response: Bytes, detail: U256) -> AnswerBody {
        let Submission { key, job, caller, inputs, block, .. } = submission;
        let (chain_id, core) = (self.account.deployment().chain_id, self.account.deployment().core);
        let receipt = SandboxReceipt {
            service: key.service,
            call: key.call,
            job: *job,
            operator: self.account.address(),
            caller: *caller,
            inputs_hash: keccak256(inputs),
            response_hash: keccak256(&response),
            outcome: Outcome::Done.id(),
            detail,
            failure: String::new(),
            runtime: "runc".into(),
            image_digest: "sha256:00".into(),
            started_block: *block,
            ended_block: *block,
            duration_ms: 1,
        };
        let signer = if self.conduct == Conduct::Stranger { devchain::key(9) } else { self.account.key().clone() };
        let signature = signer.sign_hash_sync(&receipt.eip712_signing_hash(&domain(chain_id, core))).unwrap();
        let response_json = response_json(Job::from_id(*job).unwrap(), None, &response).unwrap();
        let receipt = SignedReceipt { chain_id, core, receipt, signature };
        AnswerBody { outcome: Outcome::Done, failure: None, response, response_json, receipt, transaction: None }
    }

    async fn part(&self, key: CallKey) -> sandbox_sdk::contracts::IAgentSandboxBlueprint::Part {
        let parts = self.account.chain().parts(key).await.unwrap();
        parts.into_iter().find(|part| part.operator == self.account.address()).unwrap()
    }

    async fn by_rote(&self, submission: &Submission) -> (Bytes, U256) {
        match Job::from_id(submission.job).unwrap() {
            Job::BatchCreate => self.create(submission).await,
            Job::BatchExec => {
                let request: abi::BatchExecRequest = opened(&submission.inputs, &self.binding(submission));
                let own = self.own(&request.sidecar_endpoints).await;
                let results = own.into_iter().map(|id| id.map_or_else(elsewhere, |id| run(id, &request.command)));
                let batch_id = BatchId::asked(&request.batch_id, submission.key).unwrap().to_string();
                let response = abi::BatchExecResponse { batch_id, results: results.collect(), ..Default::default() };
                (response.abi_encode().into(), U256::ZERO)
            }
            Job::BatchTask => {
                let request: abi::BatchTaskRequest = opened(&submission.inputs, &self.binding(submission));
                let own = self.own(&request.sidecar_endpoints).await;
                let told = |id: Option<SandboxId>| match id {
                    Some(_) => TaskResponse { success: true, result: request.prompt.clone(), ..Default::default() },
                    None => TaskResponse { error: "elsewhere".into(), ..Default::default() },
                };
                let results = own.into_iter().map(told).collect();
                let batch_id = BatchId::asked(&request.batch_id, submission.key).unwrap().to_string();
                (abi::BatchTaskResponse { batch_id, results, ..Default::default() }.abi_encode().into(), U256::ZERO)
            }
            _ => {
                let request: abi::BatchCollectRequest = abi::decode(&submission.inputs).unwrap();
                let report = self.report(submission.key.service, &request.batch_id.parse().unwrap()).await;
                let results_json = serde_json::to_string(&report).unwrap();
                let status = report.status.name().to_owned();
                let response = abi::BatchCollectResponse { batch_id: request.batch_id, status, results_json };
                (response.abi_encode().into(), U256::ZERO)
            }
        }
    }

    async fn create(&self, submission: &Submission) -> (Bytes, U256) {
        let key = submission.key;
        let part = self.part(key).await;
        let made = if self.conduct == Conduct::Short { 1 } else { part.slots };
        let name = |slot| SandboxId { origin: key, slot }.to_string();
        let mut sandbox_ids: Vec<_> = (part.firstSlot..part.firstSlot + made).map(name).collect();
        if self.conduct == Conduct::Boasting {
            sandbox_ids.push(name(part.firstSlot + made));
        }
        let detail = ((U256::from(1) << usize::from(made)) - U256::from(1)) << usize::from(part.firstSlot);
        let batch_id = self.named(submission).to_string();
        (abi::BatchCreateResponse { batch_id, sandbox_ids, ..Default::default() }.abi_encode().into(), detail)
    }

    /// The endpoints that are its own, by the chain or because it says so.
    async fn own(&self, endpoints: &[String]) -> Vec<Option<SandboxId>> {
        let mut own = Vec::new();
        for endpoint in endpoints {
            let id: SandboxId = endpoint.parse().unwrap();
            let holder = self.account.chain().sandbox(id).await.unwrap().operator;
            own.push((holder == self.account.address() || self.conduct == Conduct::Claiming).then_some(id));
        }
        own
    }

    /// Its parts of all calls of this name; what it did not make, the engine is to blame for.
    async fn report(&self, service: u64, id: &BatchId) -> BatchReport {
        let (mut parts, chain, me) = (Vec::new(), self.account.chain(), self.account.address());
        for call in 0.. {
            let key = CallKey { service, call };
            let Some(submission) = chain.submission(key).await.unwrap() else { break };
            let has_part = chain.parts(key).await.unwrap().iter().any(|part| part.operator == me);
            if submission.job == Job::BatchCreate.id() && has_part && self.named(&submission) == *id {
                parts.push(self.part_report(key).await);
            }
        }
        let status = if parts.is_empty() { BatchStatus::Unknown } else { BatchStatus::Done };
        BatchReport { batch_id: id.clone(), service, status, parts, others: Vec::new() }
    }

    /// What it says that a create is called.
    fn named(&self, submission: &Submission) -> BatchId {
        if self.conduct == Conduct::Luring {
            return "night".parse().unwrap();
        }
        let request: abi::BatchCreateRequest = opened(&submission.inputs, &self.binding(submission));
        let env: BTreeMap<String, String> = serde_json::from_str(&request.template.env_json).unwrap_or_default();
        BatchId::asked(env.get("SANDBOX_BATCH_ID").map_or("", String::as_str), submission.key).unwrap()
    }

    async fn part_report(&self, key: CallKey) -> PartReport {
        let part = self.part(key).await;
        let made = if self.conduct == Conduct::Short { 1 } else { part.slots };
        let item = |slot: u8| {
            let is_made = slot < part.firstSlot + made;
            ItemReport {
                index: slot.into(),
                sandbox: Some(SandboxId { origin: key, slot }),
                state: if is_made { ItemState::Succeeded } else { ItemState::Failed },
                failure: (!is_made).then(|| Failure::new(FailureCode::Engine, "\x1b[2Jdown")),
                exec: None,
                task: None,
            }
        };
        PartReport {
            call: key.call,
            job: Job::BatchCreate.id(),
            operator: self.account.address(),
            aggregation: None,
            is_over: true,
            items: (part.firstSlot..part.firstSlot + part.slots).map(item).collect(),
            left_out: 0,
            majority: None,
            kept_until_ms: None,
        }
    }

    fn binding(&self, submission: &Submission) -> Binding {
        let deployment = self.account.deployment();
        let (chain_id, core) = (deployment.chain_id, deployment.core);
        let Submission { key, caller, job, .. } = submission;
        Binding { chain_id, core, service: key.service, caller: *caller, job: *job }
    }

    async fn quote(&self, request: &QuoteRequest) -> String {
        let chain = self.account.chain();
        let operators = chain.operators(request.service).await.unwrap();
        let place = operators.iter().position(|operator| *operator == self.account.address()).unwrap();
        let draft = Draft {
            requester: request.requester,
            service: request.service,
            job: request.job,
            price: U256::from(1_000_000),
            confidentiality: chain.service(request.service).await.unwrap().unwrap().confidentiality,
            inputs_hash: keccak256(&request.inputs),
            place: u32::try_from(place).unwrap(),
        };
        let now = chain.time().await.unwrap();
        let details = self.ledger.lock().await.enter(&draft, now).unwrap();
        let place = (self.account.deployment().chain_id, self.account.deployment().core);
        let quote = quotes::signed(details, self.account.key(), place).unwrap();
        serde_json::to_string(&quotes::body(&quote, place, Address::ZERO)).unwrap()
    }
}

fn elsewhere() -> ExecResponse {
    ExecResponse { exit_code: -1, stderr: b"elsewhere".into(), ..Default::default() }
}

/// `odd` fails in odd slots, everything else is echoed.
fn run(id: SandboxId, command: &str) -> ExecResponse {
    let exit_code = if command == "odd" { i32::from(id.slot % 2) } else { 0 };
    ExecResponse { exit_code, stdout: format!(" {command}\x1b[2J\n").into_bytes().into(), ..Default::default() }
}

fn refusal() -> (u16, String) {
    (404, r#"{"code":"not_found","message":"by rote","retryable":false}"#.into())
}

fn body(key: CallKey, status: CallStatus, answer: Option<AnswerBody>) -> String {
    let job = answer.as_ref().map_or(0, |answer| answer.receipt.receipt.job);
    serde_json::to_string(&CallBody { service: key.service, call: key.call, job, status, run: None, answer }).unwrap()
}
