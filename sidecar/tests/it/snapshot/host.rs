//! A sidecar in a process of its own with a workspace and a home, and a client that exports and restores.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use nix::unistd::geteuid;
use sandbox_protocol::snapshot::{ExportReport, REPORT_TRAILER, RestoreReply, Sha256, SnapshotErrorBody};
use sha2::Digest as _;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::harness::{PATIENCE, TOKEN, body, post, send, until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sandbox-sidecar");
const AGENT: u32 = 54_321;

pub(super) struct Host {
    pub(super) directory: TempDir,
    _child: Child,
}

/// A connection and the answer whose body it carries.
pub(super) struct Streaming {
    pub(super) response: Response<Incoming>,
    connection: tokio::task::JoinHandle<Result<(), hyper::Error>>,
}

impl Drop for Streaming {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Whether the change of user can be tested; says so where it cannot.
pub(super) fn is_root(test: &str) -> bool {
    let root = geteuid().is_root();
    if !root {
        eprintln!("{test}: left out, needs root");
    }
    root
}

impl Host {
    pub(super) async fn start() -> Self {
        Self::prepared(|_| {}).await
    }

    /// A host whose directory was prepared before the sidecar starts.
    pub(super) async fn prepared(prepare: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for folder in ["workspace", "home"] {
            fs::create_dir(directory.path().join(folder)).unwrap();
        }
        prepare(directory.path());
        for path in [directory.path().to_owned(), directory.path().join("workspace"), directory.path().join("home")] {
            give(&path);
        }
        let path = directory.path();
        let settings = [
            ("SIDECAR_SOCKET", path.join("sidecar.sock")),
            ("AGENT_WORKSPACE_ROOT", path.join("workspace")),
            ("AGENT_HOME", path.join("home")),
            ("AGENT_UID", AGENT.to_string().into()),
            ("AGENT_GID", AGENT.to_string().into()),
            ("SIDECAR_AUTH_TOKEN", TOKEN.into()),
        ];
        let mut command = Command::new(PROGRAM);
        command.env_clear().envs(settings).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let host = Self { _child: command.spawn().unwrap(), directory };
        until(|| host.socket().exists()).await;
        host
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    pub(super) fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("sidecar.sock")
    }

    /// Writes a file as the agent.
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        give(&path);
    }

    pub(super) async fn sh(&self, command: &str) {
        let (status, reply) = post(&self.socket(), TOKEN, serde_json::to_vec(&body(command)).unwrap()).await;
        assert_eq!(status, StatusCode::OK);
        let reply: sandbox_protocol::exec::ExecReply = serde_json::from_slice(&reply).unwrap();
        assert_eq!(reply.exit_code, 0, "{command}: {}", String::from_utf8_lossy(&reply.stderr.0));
    }

    /// The answer to an export whose body is not read yet.
    pub(super) async fn open(&self, query: &str) -> Streaming {
        let stream = TokioIo::new(UnixStream::connect(self.socket()).await.unwrap());
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::builder()
            .method(Method::GET)
            .uri(format!("/snapshot?{query}"))
            .header("host", "sidecar")
            .header("te", "trailers")
            .header("authorization", format!("Bearer {TOKEN}"));
        let answered = sender.send_request(request.body(Full::new(Bytes::new())).unwrap());
        let response = timeout(PATIENCE, answered).await.expect("no answer").unwrap();
        Streaming { response, connection }
    }

    /// A whole export and its report.
    pub(super) async fn export(&self, query: &str) -> (Bytes, ExportReport) {
        let mut streaming = self.open(query).await;
        assert_eq!(streaming.response.status(), StatusCode::OK);
        let collected = timeout(PATIENCE, streaming.response.body_mut().collect()).await.unwrap().unwrap();
        let report = collected.trailers().unwrap()[REPORT_TRAILER].to_str().unwrap().to_owned();
        (collected.to_bytes(), serde_json::from_str(&report).unwrap())
    }

    /// Restores `archive`, named by its own hash.
    pub(super) async fn restore(&self, archive: &[u8]) -> Result<RestoreReply, (u16, SnapshotErrorBody)> {
        self.restore_as(&sum(archive), archive).await
    }

    /// Restores `archive` as soon as what was under way has been cleared away.
    pub(super) async fn restore_in_turn(&self, archive: &[u8]) -> Result<RestoreReply, (u16, SnapshotErrorBody)> {
        let in_turn = async {
            loop {
                match self.restore(archive).await {
                    Err((429, _)) => tokio::task::yield_now().await,
                    done => return done,
                }
            }
        };
        timeout(PATIENCE, in_turn).await.expect("busy for ever")
    }

    pub(super) async fn restore_as(
        &self,
        sha256: &str,
        archive: &[u8],
    ) -> Result<RestoreReply, (u16, SnapshotErrorBody)> {
        let path = format!("/snapshot?sha256={sha256}");
        let (status, bytes) = send(&self.socket(), Method::PUT, &path, &[bearer()], archive.to_vec()).await;
        if status == StatusCode::OK {
            return Ok(serde_json::from_slice(&bytes).unwrap());
        }
        Err((status.as_u16(), serde_json::from_slice(&bytes).unwrap()))
    }

    /// Everything in workspace and home, a line each: type, mode, time, names that share a file, content.
    pub(super) fn listing(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for root in [self.workspace(), self.home()] {
            list(&root, &root, &mut lines);
        }
        lines.sort();
        lines
    }

    /// Ids of the processes that archive for this host.
    pub(super) fn archivers(&self) -> Vec<i32> {
        let needle = self.workspace().into_os_string();
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid: &i32| {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            arguments.split(|&byte| byte == 0).any(|argument| argument == needle.as_bytes())
        })
        .collect()
    }
}

pub(super) fn bearer() -> (&'static str, &'static str) {
    ("authorization", "Bearer secret")
}

pub(super) fn sum(bytes: &[u8]) -> String {
    Sha256(sha2::Sha256::digest(bytes).into()).to_string()
}

/// Makes `path` the agent's, where there is an agent.
pub(super) fn give(path: &Path) {
    if geteuid().is_root() {
        chown(path, Some(AGENT), Some(AGENT)).unwrap();
    }
}

/// What goes while it is looked at is listed as gone: whoever waits for a state looks again.
fn list(root: &Path, path: &Path, lines: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(path) else { return lines.push(format!("{path:?} gone")) };
    for entry in entries {
        let path = entry.unwrap().path();
        let Ok(found) = fs::symlink_metadata(&path) else {
            lines.push(format!("{path:?} gone"));
            continue;
        };
        let content = match found.file_type() {
            kind if kind.is_dir() => "directory".to_owned(),
            kind if kind.is_symlink() => format!("-> {:?}", fs::read_link(&path).unwrap()),
            kind if kind.is_file() => fs::read(&path).map_or_else(|_| "gone".to_owned(), |bytes| sum(&bytes)),
            _ => "special".to_owned(),
        };
        let name = path.strip_prefix(root.parent().unwrap()).unwrap();
        let names = if found.is_dir() { 1 } else { found.nlink() };
        lines.push(format!("{name:?} {:o} {} {names} {content}", found.mode(), found.mtime()));
        if found.is_dir() {
            list(root, &path, lines);
        }
    }
}

pub(super) fn odd_name() -> &'static OsStr {
    OsStr::from_bytes(b"odd \xff\xfe\nname")
}
