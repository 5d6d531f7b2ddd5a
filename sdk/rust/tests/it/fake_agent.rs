//! A sandbox's agent without a model, and the operator before it: it tells a script, keeps a journal of it, and may lose
//! connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sandbox_protocol::agent::event::{RunEvent, Told};
use sandbox_protocol::agent::{
    ApprovalBody, Decision, RunFailure, RunKind, RunReply, RunState, RunSummary, RunsBody, SessionSummary,
    SessionsBody, TaskBody,
};
use sandbox_protocol::session::TokensBody;
use sandbox_sdk::Account;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::fake_operator::{self, Manner};

/// One thing that its agent does.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Say(Told),
    /// Nothing until this call was decided on; then the decision.
    Ask(&'static str),
    /// Nothing until somebody cancels it; then it ends as cancelled.
    Wait,
}

/// What goes wrong on its connections.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Requests that break before they are answered.
    pub(crate) unanswered: usize,
    /// Events that one connection carries.
    pub(crate) carried: Option<usize>,
    /// Events that are told once more by whoever comes back.
    pub(crate) repeated: u64,
    /// It ignores who cancels.
    pub(crate) deaf: bool,
    /// The event of this number is never told.
    pub(crate) lost: Option<u64>,
}

/// A running one; it ends when this is dropped.
pub(crate) struct FakeAgent {
    pub(crate) url: String,
    state: Arc<State>,
    _server: JoinSet<()>,
}

struct State {
    script: Vec<Step>,
    faults: Mutex<Faults>,
    seen: watch::Sender<Seen>,
    /// Who answers calls of the chain.
    account: Option<Account>,
}

/// What it was asked, and what it has told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// Method, path without query, and the last event's id where one was shown.
    pub(crate) requests: Vec<String>,
    pub(crate) bodies: Vec<TaskBody>,
    pub(crate) decisions: BTreeMap<String, Decision>,
    pub(crate) cancelled: bool,
    journal: Vec<RunEvent>,
    /// Streams of calls that were told to their end.
    calls_told: usize,
}

impl FakeAgent {
    pub(crate) async fn start(script: Vec<Step>, faults: Faults, account: Option<Account>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, faults) = (watch::Sender::default(), Mutex::new(faults));
        let state = Arc::new(State { script, faults, seen, account });
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

    /// What it was asked below its sandbox.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen().requests
    }
}

impl State {
    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let Some((head, body)) = read(&mut stream).await else { return };
        let mut words = head.split_whitespace();
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let path = target.split('?').next().unwrap();
        if path.starts_with("/v1/services/") {
            return self.call(&head, stream).await;
        }
        if path == "/v1/auth/tokens" {
            return answer(&mut stream, 200, &TokensBody { tokens: Vec::new() }).await;
        }
        let below = path.splitn(4, '/').nth(3).unwrap_or_default();
        let last = header(&head, "last-event-id");
        let note = last.map(|id| format!(" after {id}")).unwrap_or_default();
        self.seen.send_modify(|seen| seen.requests.push(format!("{method} {below}{note}")));
        let segments: Vec<_> = below.split('/').collect();
        match (method, segments.as_slice()) {
            ("POST", ["prompt" | "task"]) => self.start(&body, stream).await,
            ("GET", ["runs", "unknown", "events"]) => refuse(&mut stream).await,
            ("GET", ["runs", _, "events"]) => self.tell(last.unwrap().parse().unwrap(), stream).await,
            ("GET", ["runs"]) => answer(&mut stream, 200, &RunsBody { runs: vec![self.summary("r1")] }).await,
            ("GET", ["runs", id]) => answer(&mut stream, 200, &self.summary(id)).await,
            ("POST", ["runs", id, "cancel"]) => {
                self.seen.send_modify(|seen| seen.cancelled = true);
                answer(&mut stream, 200, &self.summary(id)).await;
            }
            ("POST", ["runs", _, "approvals", call]) => {
                let said: ApprovalBody = serde_json::from_slice(&body).unwrap();
                self.seen.send_modify(|seen| seen.decisions.extend([((*call).to_owned(), said.decision)]));
                answer(&mut stream, 200, &()).await;
            }
            ("GET", ["sessions"]) => {
                let session = SessionSummary { id: "s1".into(), backend: "native".into(), messages: 4 };
                answer(&mut stream, 200, &SessionsBody { sessions: vec![session] }).await;
            }
            ("DELETE", ["sessions", _]) => answer(&mut stream, 200, &()).await,
            _ => refuse(&mut stream).await,
        }
    }

    /// Starts its one run, or attaches to it.
    async fn start(self: Arc<Self>, body: &[u8], stream: TcpStream) {
        let body: TaskBody = serde_json::from_slice(body).unwrap();
        let is_first = self.seen.borrow().bodies.is_empty();
        self.seen.send_modify(|seen| seen.bodies.push(body));
        let unanswered = {
            let mut faults = self.faults.lock().unwrap();
            let unanswered = faults.unanswered > 0;
            faults.unanswered = faults.unanswered.saturating_sub(1);
            unanswered
        };
        if is_first {
            let state = self.clone();
            tokio::spawn(async move { state.work().await });
        }
        if !unanswered {
            self.tell(0, stream).await;
        }
    }

    /// Does what its script says.
    async fn work(&self) {
        for step in &self.script {
            match step {
                Step::Say(told) => self.note(told.clone()),
                Step::Ask(call) => {
                    let mut seen = self.seen.subscribe();
                    let seen = seen.wait_for(|seen| seen.decisions.contains_key(*call)).await.unwrap();
                    let decision = seen.decisions[*call];
                    drop(seen);
                    self.note(Told::ApprovalDecided { id: (*call).to_owned(), decision, answered: true });
                }
                Step::Wait => {
                    let deaf = self.faults.lock().unwrap().deaf;
                    let mut seen = self.seen.subscribe();
                    drop(seen.wait_for(|seen| seen.cancelled && !deaf).await.unwrap());
                    self.note(Told::Done { reply: failed(RunFailure::Cancelled, "it was cancelled") });
                }
            }
        }
    }

    fn note(&self, told: Told) {
        self.seen.send_modify(|seen| {
            let seq = seen.journal.len() as u64 + 1;
            seen.journal.push(RunEvent { seq, time_ms: 1, told });
        });
    }

    /// Its events behind this one, as long as the connection carries them.
    async fn tell(&self, after: u64, mut stream: TcpStream) {
        let Faults { carried, repeated, lost, .. } = *self.faults.lock().unwrap();
        stream
            .write_all(b"HTTP/1.1 200 x\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n:\n\n")
            .await
            .unwrap();
        let mut told = usize::try_from(after.saturating_sub(repeated)).unwrap();
        let until = carried.map_or(usize::MAX, |carried| told + carried + usize::try_from(after).unwrap() - told);
        let mut seen = self.seen.subscribe();
        while told < until {
            let event = seen.wait_for(|seen| seen.journal.len() > told).await.unwrap().journal[told].clone();
            told += 1;
            let last = event.told.is_last();
            if lost != Some(event.seq) && stream.write_all(frame(&event).as_bytes()).await.is_err() {
                return;
            }
            if last {
                return;
            }
        }
    }

    /// A call of the chain: what is told of it, and then its answer.
    async fn call(&self, head: &str, mut stream: TcpStream) {
        if header(head, "accept") == Some("text/event-stream") {
            stream
                .write_all(b"HTTP/1.1 200 x\r\nconnection: close\r\n\r\nevent: running\nid: 2\ndata: {}\n\n")
                .await
                .unwrap();
            for (index, step) in self.script.iter().enumerate() {
                if let Step::Say(told) = step {
                    let event = RunEvent { seq: index as u64 + 1, time_ms: 1, told: told.clone() };
                    stream.write_all(frame(&event).as_bytes()).await.unwrap();
                }
            }
            self.seen.send_modify(|seen| seen.calls_told += 1);
            // Its reader leaves with the answer.
            stream.read_u8().await.unwrap_or_default();
            return;
        }
        let account = self.account.as_ref().unwrap();
        if fake_operator::is_agents(head, account).await && !self.script.is_empty() {
            drop(self.seen.subscribe().wait_for(|seen| seen.calls_told > 0).await.unwrap());
        }
        let (status, body) = fake_operator::reply(head, account, (Manner::Honest, 0)).await;
        write(&mut stream, status, &body).await;
    }

    fn summary(&self, id: &str) -> RunSummary {
        let ended = self.seen.borrow().cancelled;
        RunSummary {
            id: id.to_owned(),
            kind: RunKind::Task,
            state: if ended { RunState::Ended } else { RunState::Running },
            session_id: "s1".into(),
            reply: ended.then(|| failed(RunFailure::Cancelled, "it was cancelled")),
            report: None,
            last_seq: 1,
        }
    }
}

/// A reply of a run that ended so.
pub(crate) fn failed(failure: RunFailure, error: &str) -> RunReply {
    RunReply { error: error.into(), failure: Some(failure), session_id: "s1".into(), ..RunReply::default() }
}

/// A good reply.
pub(crate) fn done(result: &str) -> RunReply {
    RunReply { success: true, result: result.into(), session_id: "s1".into(), turns_used: 1, ..RunReply::default() }
}

pub(crate) fn frame(event: &RunEvent) -> String {
    format!("event: {}\nid: {}\ndata: {}\n\n", event.told.name(), event.seq, serde_json::json!(event))
}

/// Head and body of a request; `None` where the connection closes before.
pub(crate) async fn read(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.find_map(|(field, value)| field.eq_ignore_ascii_case(name).then_some(value))
}

pub(crate) async fn answer(stream: &mut TcpStream, status: u16, body: &impl Serialize) {
    write(stream, status, &serde_json::to_string(body).unwrap()).await;
}

async fn refuse(stream: &mut TcpStream) {
    write(stream, 404, r#"{"code":"unknown_run","message":"no such run","retryable":false}"#).await;
}

pub(crate) async fn write(stream: &mut TcpStream, status: u16, body: &str) {
    let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // Who asked may have left.
    stream.write_all((head + body).as_bytes()).await.unwrap_or_default();
}
