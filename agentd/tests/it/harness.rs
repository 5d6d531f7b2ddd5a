//! The process's runs behind its door, a backend that does what a prompt says, and a client.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use sandbox_agent::model::{ToolCall, Usage};
use sandbox_agent::profile::{Approvals, Policy, Profile};
use sandbox_agentd::backend::{Backend, Desk, Order, Outcome};
use sandbox_agentd::http::{Doorway, doorway};
use sandbox_agentd::negotiator::{Negotiator, Until};
use sandbox_agentd::runs::{Runs, Settings};
use sandbox_process::link::link;
use sandbox_protocol::agent::event::{RunEvent, Told};
use sandbox_protocol::agent::negotiation::{ConversationLogs, Ledger, MoveReport, NegotiateBody, PolicyScore};
use sandbox_protocol::agent::{Decision, RunReply, TaskBody};
use sandbox_protocol::http::ErrorBody;
use serde::Serialize;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Does what its prompts say.
#[derive(Default)]
pub(crate) struct Puppet {
    /// Prompts that it was given.
    pub(crate) begun: AtomicUsize,
    /// Those among them that it had in a former life.
    pub(crate) resumed: AtomicUsize,
    /// Those at a time.
    running: AtomicUsize,
    pub(crate) running_max: AtomicUsize,
    pub(crate) release: CancellationToken,
}

#[async_trait]
impl Backend for Puppet {
    fn name(&self) -> &'static str {
        "native"
    }

    async fn run(&self, order: &Order, desk: &dyn Desk) -> Outcome {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.resumed.fetch_add(usize::from(order.resumed), Ordering::SeqCst);
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.running_max.fetch_max(running, Ordering::SeqCst);
        let result = self.obey(order, desk).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        let usage = Usage { input_tokens: 7, output_tokens: 3 };
        Outcome { result, turns: 2, usage, cost_micro_usd: Some(5), failure: None }
    }
}

impl Puppet {
    async fn obey(&self, order: &Order, desk: &dyn Desk) -> String {
        match order.prompt.as_str() {
            "panic" => panic!("a defect"),
            "stay" => order.cancel.cancelled().await,
            "wait" => self.release.cancelled().await,
            "deaf" => std::future::pending().await,
            "ask" => {
                let call = ToolCall { id: "call-1".into(), name: "shell".into(), arguments: json!({"command": "ls"}) };
                return format!("{:?}", desk.ask(&call).await);
            }
            words => words.split(' ').for_each(|word| desk.tell(Told::Message { text: word.into() })),
        }
        order.prompt.clone()
    }
}

#[async_trait]
impl Negotiator for Puppet {
    async fn negotiate(&self, body: &NegotiateBody, _: &Path, until: &Until, _: &dyn Desk) -> MoveReport {
        self.begun.fetch_add(1, Ordering::SeqCst);
        if body.one.content == "stay" {
            until.cancel.cancelled().await;
        }
        let move_id = body.one.move_id.clone();
        MoveReport {
            score: PolicyScore { move_id: move_id.clone(), total_score: 60, scores_by_agent: BTreeMap::new() },
            logs: ConversationLogs { move_id, ..ConversationLogs::default() },
            rounds: body.max_rounds,
            error: None,
            transcript_hash: "hash".into(),
            ledger: Ledger::default(),
            warnings: Vec::new(),
        }
    }
}

/// The process.
pub(crate) struct Process {
    pub(crate) puppet: Arc<Puppet>,
    pub(crate) socket: PathBuf,
    stop: CancellationToken,
    runs: Runs,
    doorway: Doorway,
    directory: Arc<TempDir>,
}

impl Process {
    pub(crate) fn start() -> Self {
        Self::at(Arc::new(tempfile::tempdir().unwrap()))
    }

    fn at(directory: Arc<TempDir>) -> Self {
        let (puppet, stop) = (Arc::new(Puppet::default()), CancellationToken::new());
        let asking = |timeout_ms| Approvals { default: Policy::Ask, timeout_ms, ..Approvals::default() };
        let patient = Profile { approvals: asking(60_000), ..Profile::named("patient") };
        let hasty = Profile { approvals: asking(1), ..Profile::named("hasty") };
        let profiles = [Profile::named("default"), patient, hasty].map(|profile| (profile.name.clone(), profile));
        let runs = Runs::open(Settings {
            storage: directory.path().to_owned(),
            backends: vec![puppet.clone()],
            negotiator: puppet.clone(),
            profiles: profiles.into(),
            backend_default: String::new(),
            profile_default: String::new(),
            stop: stop.clone(),
        });
        let runs = runs.unwrap();
        let socket = directory.path().join("agentd.sock");
        let _old = std::fs::remove_file(&socket);
        let doorway = doorway(runs.clone(), stop.clone());
        doorway.serve(UnixListener::bind(&socket).unwrap());
        Self { puppet, socket, stop, runs, doorway, directory }
    }

    /// Ends, and begins anew on the same storage.
    pub(crate) async fn again(self) -> Self {
        self.stop.cancel();
        timeout(PATIENCE, self.runs.stopped()).await.unwrap();
        timeout(PATIENCE, self.doorway.closed()).await.unwrap();
        Self::at(self.directory)
    }

    pub(crate) fn storage(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) async fn send(&self, method: Method, path: &str, accept: &str, body: Vec<u8>) -> Response<Incoming> {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        let (mut sender, driver) = link(stream).await.unwrap();
        let request = Request::builder().method(method).uri(path).header("host", "agentd").header("accept", accept);
        let answer = timeout(PATIENCE, sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap())).await;
        driver.detach();
        answer.unwrap().unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Bytes) {
        read(self.send(Method::GET, path, "*/*", Vec::new()).await).await
    }

    pub(crate) async fn post(&self, path: &str, body: &impl Serialize) -> (StatusCode, Bytes) {
        read(self.send(Method::POST, path, "*/*", serde_json::to_vec(body).unwrap()).await).await
    }

    /// The reply to a task, or the refusal.
    pub(crate) async fn task(&self, body: &TaskBody) -> Result<RunReply, (u16, ErrorBody)> {
        answered(self.post("/task", body).await)
    }

    /// All events of a run behind `after`.
    pub(crate) async fn events(&self, id: &str, after: u64) -> Vec<RunEvent> {
        let (status, body) = self.get(&format!("/runs/{id}/events?after={after}")).await;
        assert_eq!(status, StatusCode::OK);
        let text = String::from_utf8(body.to_vec()).unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// Waits until somebody has begun a run and told so many events of it, and gives the last of them.
    pub(crate) async fn told(&self, id: &str, count: usize) -> RunEvent {
        let path = format!("/runs/{id}/events");
        until(async || self.get(&format!("/runs/{id}")).await.0 == StatusCode::OK).await;
        let answer = self.send(Method::GET, &path, "*/*", Vec::new()).await;
        let (mut body, mut text) = (answer.into_body(), String::new());
        loop {
            let frame = timeout(PATIENCE, body.frame()).await.unwrap().unwrap().unwrap();
            text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
            let events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
            if events.len() >= count && text.ends_with("\n\n") {
                return serde_json::from_str(events[count - 1]).unwrap();
            }
        }
    }
}

async fn read(answer: Response<Incoming>) -> (StatusCode, Bytes) {
    let (parts, body) = answer.into_parts();
    (parts.status, timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes())
}

pub(crate) fn answered<T: serde::de::DeserializeOwned>(
    (status, body): (StatusCode, Bytes),
) -> Result<T, (u16, ErrorBody)> {
    if status == StatusCode::OK {
        return Ok(serde_json::from_slice(&body).unwrap());
    }
    Err((status.as_u16(), serde_json::from_slice(&body).unwrap()))
}

/// A task of this id.
pub(crate) fn task(id: &str, prompt: &str) -> TaskBody {
    TaskBody { id: Some(id.into()), prompt: prompt.into(), ..TaskBody::default() }
}

/// What is said about a call.
pub(crate) fn word(decision: Decision) -> serde_json::Value {
    json!({ "decision": decision })
}

/// Waits until that holds.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let mut looks = interval(Duration::from_millis(2));
    let waiting = async {
        while !holds().await {
            looks.tick().await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap();
}
