//! A real sidecar, which starts the real process beside it, and a provider with a script.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use sandbox_process::link::link;
use sandbox_protocol::agent::negotiation::{ConversationEntry, MoveReport, NegotiateBody};
use sandbox_protocol::agent::{RunFailure, RunReply, SessionsBody, TaskBody};
use scripted_provider::{Provider, Reply, Script};
use serde::Serialize;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::harness::{PATIENCE, answered, task, until};

const TOKEN: &str = "s3cret-token";
/// Nobody's id on the machine.
const AGENT: u32 = 54_322;

struct Inside {
    provider: Provider,
    sidecar: Child,
    directory: TempDir,
}

impl Inside {
    async fn start(script: Script) -> Self {
        let provider = Provider::start(script).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        for (name, is_agents) in [("workspace", true), ("home", true), ("storage", false)] {
            let path = directory.path().join(name);
            fs::create_dir(&path).unwrap();
            if geteuid().is_root() && is_agents {
                chown(&path, Some(AGENT), Some(AGENT)).unwrap();
            }
        }
        // Who agents work as must come through here.
        fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let sidecar = start(directory.path(), &provider);
        let inside = Self { provider, sidecar, directory };
        inside.listening().await;
        inside
    }

    /// The sidecar is killed, as by a crash, and started anew.
    async fn crash(&mut self) {
        self.sidecar.kill().unwrap();
        self.sidecar.wait().unwrap();
        fs::remove_file(self.socket()).unwrap();
        self.sidecar = start(self.directory.path(), &self.provider);
        self.listening().await;
    }

    async fn listening(&self) {
        until(async || UnixStream::connect(self.socket()).await.is_ok()).await;
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("sidecar.sock")
    }

    fn workspace(&self, name: &str) -> PathBuf {
        self.directory.path().join("workspace").join(name)
    }

    async fn ask(&self, method: Method, path: &str, body: &impl Serialize) -> (StatusCode, Bytes) {
        let stream = UnixStream::connect(self.socket()).await.unwrap();
        let (mut sender, _driver) = link(stream).await.unwrap();
        let request = Request::builder().method(method).uri(path).header("host", "sidecar");
        let request = request.header("authorization", format!("Bearer {TOKEN}"));
        let body = Full::new(Bytes::from(serde_json::to_vec(body).unwrap()));
        let answer = timeout(PATIENCE, sender.send_request(request.body(body).unwrap())).await.unwrap().unwrap();
        let (parts, body) = answer.into_parts();
        (parts.status, timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes())
    }

    async fn task(&self, body: &TaskBody) -> RunReply {
        answered(self.ask(Method::POST, "/task", body).await).unwrap()
    }

    /// The process beside the sidecar.
    fn agentd(&self) -> Option<Pid> {
        let sidecar = self.sidecar.id();
        let children = fs::read_to_string(format!("/proc/{sidecar}/task/{sidecar}/children")).unwrap();
        let is_agentd = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sandbox-agentd")
        };
        children.split_whitespace().find(is_agentd).map(|pid| Pid::from_raw(pid.parse().unwrap()))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _gone = self.sidecar.kill();
        let _reaped = self.sidecar.wait();
    }
}

fn start(directory: &Path, provider: &Provider) -> Child {
    let agentd = Path::new(env!("CARGO_BIN_EXE_sandbox-agentd"));
    let program = agentd.with_file_name("sandbox-sidecar");
    assert!(program.exists(), "build it first: cargo build -p sandbox-sidecar");
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("SIDECAR_SOCKET", directory.join("sidecar.sock"))
        .env("SIDECAR_AUTH_TOKEN", TOKEN)
        .env("AGENT_WORKSPACE_ROOT", directory.join("workspace"))
        .env("AGENT_HOME", directory.join("home"))
        .env("AGENT_UID", AGENT.to_string())
        .env("AGENT_GID", AGENT.to_string())
        .env("STORAGE_PATH", directory.join("storage"))
        .env("MODEL_BASE_URL", provider.v1())
        .env("MODEL", "scripted")
        .stdout(Stdio::null());
    command.spawn().unwrap()
}

/// Calls a tool, then says what came of it.
fn tool_then_words(name: &str, arguments: serde_json::Value) -> Script {
    let call = Reply::call("call-1", name, arguments.to_string()).usage(100, 10);
    Script::queue([call, Reply::text("done").usage(200, 5)])
}

#[tokio::test]
async fn an_agents_command_runs_in_the_workspace_as_the_agent() {
    let script = tool_then_words("shell", json!({"command": "id -u > who; pwd >> who; env | sort >> who"}));
    let inside = Inside::start(script).await;
    let reply = inside.task(&task("r1", "who are you?")).await;
    assert!(reply.success && reply.result == "done", "{reply:?}");
    assert_eq!((reply.turns_used, reply.input_tokens, reply.output_tokens), (2, 300, 15));
    let who = fs::read_to_string(inside.workspace("who")).unwrap();
    let lines: Vec<&str> = who.lines().collect();
    if geteuid().is_root() {
        assert_eq!(lines[0], AGENT.to_string());
    }
    assert!(lines[1].ends_with("/workspace"), "{who}");
    assert!(!who.contains(TOKEN) && !who.contains("STORAGE_PATH") && !who.contains("MODEL"), "{who}");
}

#[tokio::test]
async fn what_an_agent_writes_it_reads_again_and_the_next_task_of_the_session_knows_of_it() {
    let write = json!({"path": "notes/a.txt", "content": "blue"}).to_string();
    let inside = Inside::start(Script::queue([
        Reply::call("c1", "write_file", write),
        Reply::call("c2", "read_file", json!({"path": "notes/a.txt"}).to_string()),
        Reply::text("written"),
        Reply::text("you said that it is blue"),
    ]))
    .await;
    let session = |id: &str, prompt: &str| TaskBody { session_id: "s1".into(), ..task(id, prompt) };
    assert!(inside.task(&session("r1", "write that it is blue")).await.success);
    assert_eq!(fs::read_to_string(inside.workspace("notes/a.txt")).unwrap(), "blue");
    assert!(inside.task(&session("r2", "what colour?")).await.success);
    let requests = inside.provider.requests();
    let said = serde_json::to_string(&requests.last().unwrap().body).unwrap();
    assert!(said.contains("write that it is blue") && said.contains("what colour?"), "{said}");
    let sessions: SessionsBody = answered(inside.ask(Method::GET, "/sessions", &()).await).unwrap();
    assert!(sessions.sessions.len() == 1 && sessions.sessions[0].messages >= 7, "{sessions:?}");
}

#[tokio::test]
async fn a_task_whose_process_is_killed_goes_on_and_repeats_nothing() {
    let slow = json!({"command": "echo x >> ran; until [ -e go ]; do sleep 0.05; done; echo told"}).to_string();
    let inside = Inside::start(Script::queue([Reply::call("c1", "shell", slow), Reply::text("over")])).await;
    let body = task("r1", "run it");
    let killed = async {
        until(async || inside.workspace("ran").exists()).await;
        kill(inside.agentd().unwrap(), Signal::SIGKILL).unwrap();
    };
    let ((status, _), ()) = tokio::join!(inside.ask(Method::POST, "/task", &body), killed);
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let attached = TaskBody { attach_only: true, ..body };
    let go = async {
        until(async || inside.agentd().is_some()).await;
        fs::write(inside.workspace("go"), "").unwrap();
    };
    let (reply, ()) = tokio::join!(inside.task(&attached), go);
    assert!(reply.success && reply.result == "over", "{reply:?}");
    assert_eq!(fs::read_to_string(inside.workspace("ran")).unwrap(), "x\n");
    assert_eq!(inside.provider.calls(), 2);
}

#[tokio::test]
async fn a_provider_that_refuses_the_operators_key_is_the_operators_matter() {
    let inside = Inside::start(Script::always(Reply::status(401, "no"))).await;
    let reply = inside.task(&task("r1", "hello")).await;
    assert_eq!(reply.failure, Some(RunFailure::OperatorKeyRefused));
}

#[tokio::test]
async fn a_move_is_argued_about_and_its_logs_are_the_agents_files() {
    let inside = Inside::start(Script::negotiation()).await;
    let report = inside.negotiate(10).await;
    assert_eq!((report.rounds, report.error.clone(), report.ledger.logical_calls), (10, None, 61));
    assert_eq!(inside.provider.calls(), 61);
    let log = fs::read(inside.workspace("logs/i1.json")).unwrap();
    let entries: Vec<ConversationEntry> = serde_json::from_slice(&log).unwrap();
    assert_eq!((entries.len(), &entries), (20, &report.logs.i1));
}

#[tokio::test]
async fn a_sidecar_that_is_killed_in_the_middle_of_a_move_repeats_no_call_that_was_answered() {
    let mut inside = Inside::start(Script::negotiation()).await;
    {
        let unfinished = inside.negotiate(10);
        tokio::select! {
            report = unfinished => panic!("{report:?}"),
            () = until(async || inside.provider.calls() >= 20) => {}
        }
    }
    inside.crash().await;
    let report = inside.negotiate(10).await;
    assert_eq!((report.rounds, report.error, report.ledger.logical_calls), (10, None, 61));
    // Those of the stage that was under way had not been answered, or not been kept.
    assert!((61..=64).contains(&inside.provider.calls()), "{}", inside.provider.calls());
}

impl Inside {
    async fn negotiate(&self, max_rounds: u32) -> MoveReport {
        let body: NegotiateBody = serde_json::from_value(json!({
            "id": "m1", "ticker": "ACME", "move": {"move_id": "m1", "content": "buy the competitor"},
            "max_rounds": max_rounds
        }))
        .unwrap();
        answered(self.ask(Method::POST, "/negotiate", &body).await).unwrap()
    }
}
