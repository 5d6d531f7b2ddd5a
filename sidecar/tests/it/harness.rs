//! A sidecar on a Unix socket in a directory of its own, and a client that speaks to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use nix::unistd::{Gid, Uid, geteuid};
use sandbox_protocol::exec::{ByteText, ExecBody, ExecReply, HealthReply};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::limits::PTY_KEEP_S;
use sandbox_sidecar::channel::{self, Channels};
use sandbox_sidecar::events::Events;
use sandbox_sidecar::exec::{Engine, Identity};
use sandbox_sidecar::files::{self, Files};
use sandbox_sidecar::fsp::Sessions;
use sandbox_sidecar::http::{Doorway, Served, SocketFile, Streams, Token, Upgraded, doorway, open_socket, router};
use sandbox_sidecar::pty::{self, Terminals};
use sandbox_sidecar::snapshot::{Settings, Snapshots};
use sandbox_sidecar::tunnel::Tunnels;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) const TOKEN: &str = "secret";

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// To which no tunnel leads.
pub(crate) const RESERVED_PORT: u16 = 3128;

/// Who commands run as in tests: nobody's id on the machine, so that nothing else has it.
const AGENT: u32 = 54_321;

pub(crate) struct Sidecar {
    pub(crate) engine: Engine,
    pub(crate) stop: CancellationToken,
    pub(crate) doorway: Doorway,
    pub(crate) files: Files,
    pub(crate) streams: Streams,
    pub(crate) socket: PathBuf,
    directory: TempDir,
    _file: SocketFile,
}

impl Sidecar {
    pub(crate) fn start() -> Self {
        Self::with((PATIENCE, PATIENCE), Duration::from_secs(PTY_KEEP_S), channel::Bounds::default())
    }

    /// One with so many channels and the like.
    pub(crate) fn bounded(bounds: channel::Bounds) -> Self {
        Self::with((PATIENCE, PATIENCE), Duration::from_secs(PTY_KEEP_S), bounds)
    }

    /// One whose worker for files ends after `idle_max` without a request, and is ended where it does not answer for
    /// `answer_max`.
    pub(crate) fn with_patience(idle_max: Duration, answer_max: Duration) -> Self {
        Self::with((idle_max, answer_max), Duration::from_secs(PTY_KEEP_S), channel::Bounds::default())
    }

    /// One whose terminals go on for so long without a viewer.
    pub(crate) fn keeping(keep: Duration) -> Self {
        Self::with((PATIENCE, PATIENCE), keep, channel::Bounds::default())
    }

    fn with((idle_max, answer_max): (Duration, Duration), keep: Duration, bounds: channel::Bounds) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let identity = geteuid().is_root().then_some(Identity { uid: Uid::from_raw(AGENT), gid: Gid::from_raw(AGENT) });
        if identity.is_some() {
            std::os::unix::fs::chown(directory.path(), Some(AGENT), Some(AGENT)).unwrap();
            std::os::unix::fs::chown(&workspace, Some(AGENT), Some(AGENT)).unwrap();
        }
        let events = Events::new(SystemTime::now());
        let engine = Engine::with_environment(&workspace, identity, BTreeMap::new(), events.clone());
        let stop = CancellationToken::new();
        let terminals = pty::Settings { workspace: workspace.clone(), identity, environment: BTreeMap::new(), keep };
        // The built program may lie where the agent may not look.
        let (built, program) = (env!("CARGO_BIN_EXE_sandbox-sidecar"), directory.path().join("sandbox-sidecar"));
        std::fs::hard_link(built, &program).or_else(|_| std::fs::copy(built, &program).map(drop)).unwrap();
        let channels = channel::Settings {
            program: program.clone(),
            workspace: workspace.clone(),
            identity,
            environment: BTreeMap::from([("HOME".to_owned(), directory.path().to_string_lossy().into_owned())]),
            shell: channel::login_shell(Uid::from_raw(AGENT)),
            reserved: [RESERVED_PORT].into(),
            bounds,
        };
        let streams = Streams {
            terminals: Terminals::new(terminals, events.clone()),
            tunnels: Tunnels::new([RESERVED_PORT]),
            channels: Channels::new(channels),
            events,
            upgraded: Upgraded::new(stop.clone()),
        };
        let files = Files::new(files::Settings {
            program: program.clone(),
            served: files::Served { workspace: workspace.clone(), home: directory.path().join("home") },
            identity,
            idle_max,
            answer_max,
            stop: stop.clone(),
        });
        let snapshots = Snapshots::new(Settings {
            program,
            workspace,
            home: directory.path().join("home"),
            identity,
            stop: stop.clone(),
        });
        let sessions = Sessions::new(engine.clone());
        let served = Served {
            engine: engine.clone(),
            sessions,
            files: files.clone(),
            snapshots,
            streams: streams.clone(),
            agents: None,
        };
        let doorway = doorway(router(served, Token::new(TOKEN).unwrap()), stop.clone());
        let socket = directory.path().join("sidecar.sock");
        let (listener, file) = open_socket(&socket).unwrap();
        doorway.serve(listener);
        Self { engine, stop, doorway, files, streams, socket, directory, _file: file }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    /// The reply to `body`, or the refusal.
    pub(crate) async fn exec(&self, body: &ExecBody) -> Result<ExecReply, (u16, ErrorBody)> {
        let (status, bytes) = post(&self.socket, TOKEN, serde_json::to_vec(body).unwrap()).await;
        if status == StatusCode::OK {
            return Ok(serde_json::from_slice(&bytes).unwrap());
        }
        Err((status.as_u16(), serde_json::from_slice(&bytes).unwrap()))
    }

    /// The reply to a command that asks for nothing else.
    pub(crate) async fn sh(&self, command: &str) -> ExecReply {
        self.exec(&body(command)).await.unwrap()
    }

    /// Status and code word of the refusal of `body`.
    pub(crate) async fn refusal(&self, body: &ExecBody) -> (u16, String) {
        let (status, error) = self.exec(body).await.unwrap_err();
        (status, error.code)
    }

    pub(crate) async fn health(&self) -> HealthReply {
        let (status, bytes) = send(&self.socket, Method::GET, "/health", &[], Vec::new()).await;
        assert_eq!(status, StatusCode::OK);
        serde_json::from_slice(&bytes).unwrap()
    }

    pub(crate) async fn until_running(&self, count: usize) {
        until(|| self.engine.running() == count).await;
    }

    /// Waits for a file of the workspace and gives its text, less the line's end.
    pub(crate) async fn file(&self, name: &str) -> String {
        let path = self.workspace().join(name);
        let text = || std::fs::read_to_string(&path).unwrap_or_default();
        until(|| text().ends_with('\n')).await;
        text().trim_end().to_owned()
    }
}

pub(crate) fn body(command: &str) -> ExecBody {
    ExecBody {
        id: None,
        command: command.to_owned(),
        cwd: String::new(),
        env: BTreeMap::new(),
        stdin: ByteText::default(),
        timeout_ms: 0,
        attach_only: false,
        detach: false,
    }
}

pub(crate) fn named(id: &str, command: &str) -> ExecBody {
    ExecBody { id: Some(id.to_owned()), ..body(command) }
}

pub(crate) fn text(bytes: &ByteText) -> &str {
    std::str::from_utf8(&bytes.0).unwrap()
}

/// Waits until `state` holds.
pub(crate) async fn until(state: impl Fn() -> bool) {
    let mut look = interval(Duration::from_millis(2));
    let reached = async {
        while !state() {
            look.tick().await;
        }
    };
    timeout(PATIENCE, reached).await.expect("the state was not reached");
}

/// Whether a process of this id is there and not dead.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

pub(crate) async fn post(socket: &Path, token: &str, body: Vec<u8>) -> (StatusCode, Bytes) {
    send(socket, Method::POST, "/exec", &[("authorization", &format!("Bearer {token}"))], body).await
}

pub(crate) async fn send(
    socket: &Path,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> (StatusCode, Bytes) {
    let stream = TokioIo::new(UnixStream::connect(socket).await.unwrap());
    let (mut sender, connection) = http1::handshake(stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path).header("host", "sidecar");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answered = sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap());
    let response = timeout(PATIENCE, answered).await.expect("no answer").unwrap();
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    connection.abort();
    (parts.status, bytes)
}
