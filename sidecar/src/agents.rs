//! Language-model work as the sidecar sees it: a process beside it, started when it is first needed.
//!
//! What it does, it does as this sidecar's client, through a socket of its own in the storage, which nobody else may enter.
//! Whatever ends it costs the requests in hand: the next one starts another, which takes up what was left.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use sandbox_process::source::Source;
use sandbox_protocol::agent::SETTINGS;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::http::Token;
use crate::limits::{AGENTD_END_MAX, AGENTD_START_MAX};

/// Its socket in the storage.
const SOCKET: &str = "agentd.sock";
/// The sidecar's own there, for it.
const OWN_SOCKET: &str = "sidecar.sock";

/// What the process is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `sandbox-agentd`.
    pub program: PathBuf,
    /// `STORAGE_PATH`: a directory that only the sidecar's own user may enter.
    pub storage: PathBuf,
    /// The sidecar's token, with which it comes back.
    pub token: Token,
    /// Where agents work.
    pub workspace: PathBuf,
    /// `HOME` of what agents run.
    pub home: PathBuf,
    /// The way out of the sandbox, where there is one.
    pub proxy: Option<String>,
    /// Settings of models and agents.
    pub passed: BTreeMap<String, String>,
    /// Ends it.
    pub stop: CancellationToken,
}

/// Why the process cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum AgentsError {
    /// The sidecar is ending.
    #[error("the sidecar is ending")]
    Ending,
    /// There is no such program, or it cannot be run.
    #[error("sandbox-agentd cannot be started")]
    Start(#[source] io::Error),
    /// It ended before it listened.
    #[error("sandbox-agentd ended as it started")]
    Ended,
    /// It does not listen in time.
    #[error("sandbox-agentd did not start in time")]
    TimedOut,
    /// It listens, and cannot be connected to.
    #[error("sandbox-agentd cannot be reached")]
    Connect(#[source] io::Error),
}

/// Hands out connections to the process. Clones share it.
#[derive(Debug, Clone)]
pub struct Agents {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    /// Starting one takes the lock.
    running: tokio::sync::Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    /// It ends when this is closed: also when the sidecar is killed.
    tie: Option<ChildStdin>,
}

/// The settings of models and agents, which are passed on as they are; nothing here reads them.
pub fn passed(source: &impl Source) -> BTreeMap<String, String> {
    SETTINGS.into_iter().filter_map(|name| Some((name.to_owned(), source.get(name)?))).collect()
}

/// Where the sidecar serves the process.
pub fn own_socket(storage: &Path) -> PathBuf {
    storage.join(OWN_SOCKET)
}

/// The program, which lies beside the sidecar's.
///
/// # Errors
/// The kernel does not say where that is.
pub fn program() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("sandbox-agentd"))
}

impl Agents {
    /// Nothing runs yet.
    pub fn new(settings: Settings) -> Self {
        Self { shared: Arc::new(Shared { settings, running: tokio::sync::Mutex::default() }) }
    }

    /// A connection to the process, which is started where there is none. HTTP/1 is spoken there.
    ///
    /// # Errors
    /// [`AgentsError`]; nothing was asked.
    pub async fn connect(&self) -> Result<UnixStream, AgentsError> {
        let settings = &self.shared.settings;
        if settings.stop.is_cancelled() {
            return Err(AgentsError::Ending);
        }
        let mut running = self.shared.running.lock().await;
        let lives = running.as_mut().is_some_and(|running| matches!(running.child.try_wait(), Ok(None)));
        if !lives {
            *running = None;
            *running = Some(timeout(AGENTD_START_MAX, self.start()).await.map_err(|_| AgentsError::TimedOut)??);
        }
        UnixStream::connect(settings.storage.join(SOCKET)).await.map_err(AgentsError::Connect)
    }

    /// Ends the process, which keeps what it was about for the next one.
    pub async fn stop(&self) {
        let Some(mut running) = self.shared.running.lock().await.take() else { return };
        drop(running.tie.take());
        if timeout(AGENTD_END_MAX, running.child.wait()).await.is_err() {
            tracing::warn!("sandbox-agentd does not end and is killed");
            let _killed = running.child.kill().await;
        }
    }

    /// Starts it; it says a word on its stdout when it listens, and nothing else.
    async fn start(&self) -> Result<Running, AgentsError> {
        let settings = &self.shared.settings;
        let mut command = Command::new(&settings.program);
        command
            .env_clear()
            .envs(&settings.passed)
            .env("STORAGE_PATH", &settings.storage)
            .env("AGENTD_SOCKET", settings.storage.join(SOCKET))
            .env("AGENTD_SIDECAR_SOCKET", own_socket(&settings.storage))
            .env("AGENTD_SIDECAR_TOKEN", settings.token.reveal())
            .env("AGENT_WORKSPACE_ROOT", &settings.workspace)
            .env("AGENT_HOME", &settings.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        if let Some(proxy) = &settings.proxy {
            command.env("AGENTD_PROXY", proxy);
        }
        let mut child = command.spawn().map_err(AgentsError::Start)?;
        let (tie, stdout) = (child.stdin.take(), child.stdout.take());
        let mut word = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut word).await.map_err(AgentsError::Start)?;
        }
        if word.is_empty() {
            let status = child.wait().await.map_err(AgentsError::Start)?;
            tracing::error!(%status, "sandbox-agentd ended as it started");
            return Err(AgentsError::Ended);
        }
        Ok(Running { child, tie })
    }
}
