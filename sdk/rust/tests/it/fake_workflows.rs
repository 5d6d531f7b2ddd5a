//! An operator that tells of workflows by rote: it has one run, which goes on as the test says, and takes signed webhooks.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use alloy::primitives::Address;
use sandbox_protocol::session::TokensBody;
use sandbox_protocol::workflow::{
    Cause, HOOK_DELIVERY, HOOK_SIGNATURE, HOOK_TIMESTAMP, HookBody, HookHeaders, RunBody, RunEntry, RunQuery,
    RunStatus, RunsPage, SecretBody, StepBody, StepStatus, WorkflowEntry, WorkflowsBody, verify_hook,
};
use sandbox_sdk::Account;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::fake_agent::{answer, header, read, write};
use crate::fake_operator::{self, Manner};

/// A running one; it ends when this is dropped.
pub(crate) struct FakeWorkflows {
    pub(crate) url: String,
    state: Arc<State>,
    _server: JoinSet<()>,
}

struct State {
    url: String,
    seen: watch::Sender<Seen>,
    /// Who answers calls of the chain.
    account: Option<Account>,
}

/// What it tells, and what it was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Method and target.
    pub(crate) requests: Vec<String>,
    pub(crate) entries: Vec<WorkflowEntry>,
    pub(crate) run: Option<RunBody>,
    /// How often a secret was made anew.
    secrets: u32,
    /// Webhooks that it took, by delivery.
    pub(crate) hooks: Vec<(String, Vec<u8>)>,
    /// Requests for the run that break before they are answered.
    pub(crate) unanswered: usize,
    /// Requests for the secret that come before it has read of the workflow.
    pub(crate) unknown: usize,
}

impl FakeWorkflows {
    pub(crate) async fn start(account: Option<Account>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State { url: url.clone(), seen: watch::Sender::default(), account });
        let (mut server, serves) = (JoinSet::new(), state.clone());
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = serves.clone();
                connections.spawn(async move { state.serve(stream).await });
            }
        });
        Self { url, state, _server: server }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.state.seen.borrow().clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Seen)) {
        self.state.seen.send_modify(change);
    }

    /// The run is like this now.
    pub(crate) fn run(&self, status: RunStatus, steps: Vec<StepBody>) {
        self.change(|seen| {
            let version = seen.run.as_ref().map_or(0, |run| run.version) + 1;
            seen.run = Some(body(version, status, steps));
        });
    }

    /// Waits until it was asked for the run while this version was the newest.
    pub(crate) async fn asked_after(&self, version: u64) {
        let asked = format!("after={version}");
        let mut seen = self.state.seen.subscribe();
        drop(seen.wait_for(|seen| seen.requests.iter().any(|target| target.ends_with(&asked))).await.unwrap());
    }
}

impl State {
    async fn serve(&self, mut stream: TcpStream) {
        let Some((head, content)) = read(&mut stream).await else { return };
        let mut words = head.split_whitespace();
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let segments: Vec<_> = path.split('/').skip(1).collect();
        if let ["v1", "services", _, "calls", ..] = segments.as_slice() {
            let account = self.account.as_ref().unwrap();
            let (status, body) = fake_operator::reply(&head, account, (Manner::Honest, 0)).await;
            return write(&mut stream, status, &body).await;
        }
        self.seen.send_modify(|seen| seen.requests.push(format!("{method} {target}")));
        match (method, segments.as_slice()) {
            ("GET", ["v1", "auth", "tokens"]) => answer(&mut stream, 200, &TokensBody { tokens: Vec::new() }).await,
            ("GET", ["v1", "workflows"]) => {
                // One on each page, which is named by its place.
                let place = query.split('&').find_map(|part| part.strip_prefix("cursor=")).unwrap_or("0");
                let place: usize = place.parse().unwrap();
                let entries = self.seen.borrow().entries.clone();
                let next = (place + 1 < entries.len()).then(|| (place + 1).to_string());
                let workflows = entries.into_iter().skip(place).take(1).collect();
                answer(&mut stream, 200, &WorkflowsBody { workflows, next }).await;
            }
            ("GET", ["v1", "workflows", "schema"]) => write(&mut stream, 200, r#"{"type":"object"}"#).await,
            ("POST", ["hooks"]) => self.hook(&head, content, stream).await,
            (_, ["v1", "services", _, "workflows", workflow, below @ ..]) => {
                self.of_one(method, (workflow, below), query, stream).await;
            }
            _ => refuse(&mut stream).await,
        }
    }

    async fn of_one(&self, method: &str, (workflow, below): (&str, &[&str]), query: &str, mut stream: TcpStream) {
        let seen = self.seen.borrow().clone();
        match (method, below) {
            ("GET", []) => match seen.entries.iter().find(|entry| entry.workflow.to_string() == workflow) {
                Some(entry) => answer(&mut stream, 200, entry).await,
                None => refuse(&mut stream).await,
            },
            ("GET", ["runs"]) => {
                let runs = seen.run.into_iter().map(|body| body.run).collect();
                answer(&mut stream, 200, &RunsPage { runs, next: Some(1) }).await;
            }
            ("GET", ["runs", "1"]) => self.run(query, stream).await,
            ("POST", ["runs", "1", "cancel"]) => {
                let steps = seen.run.unwrap().steps;
                self.seen.send_modify(|seen| seen.run = Some(body(99, RunStatus::Cancelled, steps)));
                let run = self.seen.borrow().run.clone();
                answer(&mut stream, 200, &run).await;
            }
            ("GET", ["secret"]) if seen.unknown > 0 => {
                self.seen.send_modify(|seen| seen.unknown -= 1);
                refuse(&mut stream).await;
            }
            (_, ["secret"]) => {
                self.seen.send_modify(|seen| seen.secrets += u32::from(method == "POST"));
                answer(&mut stream, 200, &self.secret()).await;
            }
            _ => refuse(&mut stream).await,
        }
    }

    /// Its run, once that is newer than the reader's.
    async fn run(&self, query: &str, mut stream: TcpStream) {
        if self.seen.borrow().unanswered > 0 {
            return self.seen.send_modify(|seen| seen.unanswered -= 1);
        }
        let number = |name| query.split('&').find_map(|word| word.strip_prefix(name)?.parse().ok()).unwrap_or(0);
        let query = RunQuery { wait: number("wait="), after: number("after=") };
        let is_news = |seen: &Seen| seen.run.as_ref().is_some_and(|run| query.wait == 0 || run.version > query.after);
        let mut seen = self.seen.subscribe();
        let run = seen.wait_for(is_news).await.unwrap().run.clone();
        answer(&mut stream, 200, &run).await;
    }

    fn secret(&self) -> SecretBody {
        let secret = format!("it's secret {}", self.seen.borrow().secrets);
        SecretBody { url: format!("{}/hooks", self.url), secret }
    }

    async fn hook(&self, head: &str, content: Vec<u8>, mut stream: TcpStream) {
        let (timestamp, signature) = (header(head, HOOK_TIMESTAMP), header(head, HOOK_SIGNATURE));
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let headers = HookHeaders { timestamp, signature };
        if let Err(fault) = verify_hook(&self.secret().secret, headers, &content, now_s) {
            let body = format!(r#"{{"code":"unauthorized","message":"{fault}","retryable":false}}"#);
            return write(&mut stream, 401, &body).await;
        }
        let delivery = header(head, HOOK_DELIVERY).unwrap_or_default().to_owned();
        let is_repeat = self.seen.borrow().hooks.iter().any(|(known, _)| *known == delivery);
        self.seen.send_modify(|seen| seen.hooks.push((delivery, content)));
        answer(&mut stream, 200, &HookBody { run: 1, is_repeat }).await;
    }
}

async fn refuse(stream: &mut TcpStream) {
    write(stream, 404, r#"{"code":"unknown","message":"no \u001b[2Jsuch thing","retryable":false}"#).await;
}

/// Its run.
fn body(version: u64, status: RunStatus, steps: Vec<StepBody>) -> RunBody {
    let run = RunEntry {
        number: 1,
        cause: Cause::Manual { call: 9 },
        status,
        fired_ms: 1_000,
        started_ms: Some(1_000),
        ended_ms: status.is_final().then_some(3_500),
        reason: (status == RunStatus::Failed).then(|| "step test failed".into()),
    };
    RunBody { run, version, sandbox: None, steps }
}

/// A step of a command.
pub(crate) fn step(id: &str, status: StepStatus, outputs: &[(&str, &str)]) -> StepBody {
    let outputs = outputs.iter().map(|(name, text)| ((*name).to_owned(), (*text).into())).collect();
    StepBody {
        id: id.into(),
        kind: "exec".into(),
        status,
        attempts: u32::from(status != StepStatus::Waiting),
        started_ms: Some(1_000),
        ended_ms: status.is_final().then_some(2_500),
        failure: None,
        outputs,
        artifacts: Vec::new(),
    }
}

/// What it tells of a workflow.
pub(crate) fn entry((service, workflow): (u64, u64), owner: Address, next_slot_s: Option<i64>) -> WorkflowEntry {
    WorkflowEntry {
        service,
        workflow,
        name: "nightly".into(),
        owner,
        epoch: 0,
        trigger: "cron".into(),
        trigger_config: "@daily".into(),
        is_paused: false,
        next_slot_s,
        last_run: None,
        problem: None,
    }
}
