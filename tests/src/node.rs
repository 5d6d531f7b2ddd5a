//! An operator process, started, watched, killed.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sandbox_sdk::Deployment;
use tempfile::TempDir;

use crate::engine;
use crate::programs::program;
use crate::wait::{pass, until};

/// Time for a node to be ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Time for one answer to the question whether it is.
const READY_ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Pause between two looks whether it is.
const READY_PAUSE: Duration = Duration::from_millis(20);
/// Time for a node to read what it missed of the chain.
const READ_WITHIN: Duration = Duration::from_secs(60);
/// Below those that the kernel gives to connections by itself.
const PORTS: Range<u16> = 12_000..32_000;
/// How many are tried.
const PORT_TRIES: u32 = 100;
/// Time for a node to end when told to.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// An operator: its directories and settings outlive its process.
pub struct Node {
    settings: Vec<(String, String)>,
    dir: TempDir,
    api: SocketAddr,
    child: Option<Child>,
}

impl Node {
    /// An operator with `key` on this deployment, not started.
    ///
    /// # Errors
    /// Its directories or key cannot be made.
    pub fn new(deployment: &Deployment, key: &str) -> Result<Self> {
        // Short, since sockets are bound beneath it.
        let dir = tempfile::Builder::new().prefix("sbx").tempdir().context("no directory for an operator")?;
        let api = free_port()?;
        let mut ws_url = deployment.rpc_url.clone();
        if ws_url.set_scheme("ws").is_err() {
            bail!("{ws_url} has no web socket twin");
        }
        let path = |name: &str| dir.path().join(name).display().to_string();
        let settings = [
            ("HTTP_RPC_URL", deployment.rpc_url.to_string()),
            ("WS_RPC_URL", ws_url.to_string()),
            ("TANGLE_CONTRACT", deployment.core.to_string()),
            ("BLUEPRINT_ID", deployment.blueprint_id.to_string()),
            ("KEYSTORE_URI", path("keystore")),
            ("DATA_DIR", path("data")),
            ("RUN_DIR", path("run")),
            ("API_LISTEN", api.to_string()),
            ("SANDBOX_IMAGE", engine::IMAGE.to_owned()),
            // Containers that are nobody's yet only where a test is about them.
            ("POOL_SIZE", "0".to_owned()),
            ("RUST_LOG", "info,blueprint=warn".to_owned()),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let node = Self { settings, dir, api, child: None };
        let key_file = node.dir.path().join("key");
        std::fs::write(&key_file, key).context("cannot write a key")?;
        node.command(&["key", "import", &key_file.display().to_string()])?.output().context("cannot import a key")?;
        Ok(node)
    }

    /// Changes a setting for the next start.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.settings.retain(|(found, _)| found != name);
        self.settings.push((name.to_owned(), value.into()));
    }

    /// Leaves a setting to its default from the next start on.
    pub fn unset(&mut self, name: &str) {
        self.settings.retain(|(found, _)| found != name);
    }

    /// Starts the process and waits until it is ready.
    ///
    /// # Errors
    /// It ended, or is not ready in time; the message holds the end of its log.
    pub async fn start(&mut self) -> Result<()> {
        self.spawn()?;
        self.ready().await
    }

    /// Starts the process.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_path()).context("no log file")?;
        let errors = log.try_clone().context("no log file")?;
        let child = self.command(&["run"])?.stdout(log).stderr(errors).spawn().context("cannot start the operator")?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the process is ready.
    ///
    /// # Errors
    /// It ended, or is not ready in time.
    pub async fn ready(&mut self) -> Result<()> {
        let url = format!("{}/ready", self.api_url());
        // A node that is not up yet accepts and says nothing.
        let client = reqwest::Client::builder().timeout(READY_ANSWER_WITHIN).build().context("client")?;
        let ready = async || client.get(&url).send().await.is_ok_and(|answer| answer.status().is_success());
        let started = std::time::Instant::now();
        while !ready().await {
            if let Some(status) = self.exited()? {
                bail!("the operator ended with {status}:\n{}", self.log_end());
            }
            if started.elapsed() > READY_WITHIN {
                bail!("the operator is not ready after {} s:\n{}", READY_WITHIN.as_secs(), self.log_end());
            }
            pass(READY_PAUSE).await;
        }
        Ok(())
    }

    /// Waits until a started process ends by itself, and returns its exit code and log.
    ///
    /// # Errors
    /// It does not.
    pub async fn refused(&mut self) -> Result<(Option<i32>, String)> {
        let status = self.ended().await?;
        Ok((status.code(), self.log()))
    }

    /// Kills the process at once, as a power cut would.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("the operator does not run")?;
        child.kill().context("cannot kill the operator")?;
        child.wait().context("cannot wait for the operator")?;
        Ok(())
    }

    /// Tells the process to end and waits until it has.
    ///
    /// # Errors
    /// It does not in time, or not well.
    pub async fn stop(&mut self) -> Result<()> {
        self.signal("TERM")?;
        let status = self.ended().await?;
        if !status.success() {
            bail!("the operator ended with {status}:\n{}", self.log_end());
        }
        Ok(())
    }

    /// Waits until the node has read the chain up to this block.
    ///
    /// # Errors
    /// It has not in time.
    pub async fn has_read(&self, block: u64) -> Result<()> {
        until("the chain to be read", READ_WITHIN, || async {
            let seen = self.metric("sandbox_chain_head_block").await.ok()?;
            let behind = self.metric("sandbox_chain_behind_blocks").await.ok()?;
            (seen >= block as f64 && behind == 0.0).then_some(())
        })
        .await
    }

    /// A gauge or counter without labels.
    ///
    /// # Errors
    /// The node does not answer, or has none of this name.
    pub async fn metric(&self, name: &str) -> Result<f64> {
        let text = reqwest::get(format!("{}/metrics", self.api_url())).await.context("metrics")?.text().await?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.with_context(|| format!("no metric {name}"))?.parse().context("not a number")
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// It does not run.
    pub fn signal(&self, name: &str) -> Result<()> {
        let pid = self.pid()?.to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().context("cannot signal the operator")?;
        if !sent.success() {
            bail!("cannot signal the operator: {sent}");
        }
        Ok(())
    }

    /// Process id of the running process.
    ///
    /// # Errors
    /// It does not run.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.child.as_ref().context("the operator does not run")?.id())
    }

    /// Where its API is.
    pub fn api_url(&self) -> String {
        format!("http://{}", self.api)
    }

    /// Where its sandboxes' sockets are.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// Where its sandboxes' disks are.
    pub fn disks_dir(&self) -> PathBuf {
        self.dir.path().join("data").join("disks")
    }

    /// Its own directory, gone with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Everything it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// A command of the operator program with this node's settings.
    ///
    /// # Errors
    /// The program is not built.
    pub fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(program("operator")?);
        command.args(args).env_clear().envs(self.settings.iter().cloned()).stdin(Stdio::null());
        Ok(command)
    }

    /// Where it logs to.
    pub fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// How a started process ended, if it has.
    ///
    /// # Errors
    /// It was not started.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        let child = self.child.as_mut().context("the operator does not run")?;
        child.try_wait().context("cannot wait for the operator")
    }

    async fn ended(&mut self) -> Result<ExitStatus> {
        let mut child = self.child.take().context("the operator does not run")?;
        let ended = until("the operator to end", ENDED_WITHIN, || {
            let status = child.try_wait().ok().flatten();
            async move { status }
        });
        let ended = ended.await;
        if ended.is_err() {
            self.child = Some(child);
        }
        ended
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.child.is_some() {
            report(self.kill());
        }
        report(engine::clear(&self.run_dir()));
        report(engine::unmount_below(self.dir.path()));
    }
}

fn report(ended: Result<()>) {
    if let Err(error) = ended {
        eprintln!("clean-up: {error:#}");
    }
}

/// A port that was free a moment ago, which no connection that goes out is given while the node is down, and which nobody else in this
/// process was given.
///
/// # Errors
/// There is none.
pub fn free_port() -> Result<SocketAddr> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let bind = || {
        let port = rand::random_range(PORTS);
        let is_new = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port);
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().filter(|_| is_new)
    };
    (0..PORT_TRIES).find_map(|_| bind()).context("no free port")?.local_addr().context("no free port")
}
