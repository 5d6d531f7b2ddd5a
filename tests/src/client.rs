//! A customer: the `sandbox` command line as it is shipped.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use alloy::primitives::Address;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Child;

use crate::programs::program;

/// A customer with a key and an addresses file.
#[derive(Debug, Clone)]
pub struct Client {
    program: PathBuf,
    addresses: PathBuf,
    key_file: PathBuf,
}

impl Client {
    /// A customer whose key is kept in `key_file`.
    ///
    /// # Errors
    /// The program is not built, or the key cannot be written.
    pub fn new(addresses: &Path, key_file: &Path, key: &str) -> Result<Self> {
        std::fs::write(key_file, key).context("cannot write a key")?;
        Ok(Self { program: program("sandbox")?, addresses: addresses.into(), key_file: key_file.into() })
    }

    /// Where the program keeps its tokens.
    pub fn config_dir(&self) -> PathBuf {
        self.key_file.with_extension("config")
    }

    /// Runs `sandbox` with these arguments; whatever comes of it.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn run(&self, args: &[&str]) -> Result<Output> {
        let mut command = tokio::process::Command::from(self.command(&self.program));
        command.args(args).kill_on_drop(true).output().await.context("cannot run sandbox")
    }

    /// Starts `sandbox` with these arguments, and pipes to it and from it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, args: &[&str]) -> Result<Child> {
        let mut command = tokio::process::Command::from(self.command(&self.program));
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true).spawn().context("cannot run sandbox")
    }

    /// Runs `sandbox` with these arguments in a terminal of its own, whose output is its stdout.
    ///
    /// # Errors
    /// It cannot be started.
    pub async fn in_terminal(&self, args: &str) -> Result<Output> {
        let line = format!("{} {args}", self.program.display());
        let mut command = tokio::process::Command::from(self.command(Path::new("/usr/bin/script")));
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("TERM", "xterm");
        command.kill_on_drop(true).output().await.context("cannot run script")
    }

    /// `sandbox`, to be told more before it runs.
    pub fn program(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::from(self.command(&self.program));
        command.kill_on_drop(true);
        command
    }

    /// A program with the customer's settings, and nothing to read.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::null());
        command.env("SANDBOX_DEPLOYMENT", &self.addresses).env("SANDBOX_KEY_FILE", &self.key_file);
        command.env("SANDBOX_CONFIG_DIR", self.config_dir());
        command
    }

    /// Runs `sandbox`, which must succeed, and returns what it printed.
    ///
    /// # Errors
    /// It did not succeed.
    pub async fn text(&self, args: &[&str]) -> Result<String> {
        let output = self.run(args).await?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "sandbox {}: {}: {stderr}", args.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Runs `sandbox --json`, which must succeed, and returns what it printed.
    ///
    /// # Errors
    /// It did not succeed, or printed no JSON.
    pub async fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.text(&[&["--json"], args].concat()).await?;
        serde_json::from_str(&text).with_context(|| format!("sandbox --json printed {text:?}"))
    }

    /// Requests a service of these operators and returns its id.
    ///
    /// # Errors
    /// It was not approved.
    pub async fn service(&self, operators: &[Address]) -> Result<u64> {
        let operators: Vec<String> = operators.iter().map(ToString::to_string).collect();
        let service = self.json(&["service", "request", "--within", "60", "--operators", &operators.join(",")]).await?;
        service["service"].as_u64().with_context(|| format!("no service id in {service}"))
    }

    /// Creates a sandbox in `service` and returns its id.
    ///
    /// # Errors
    /// It was not created.
    pub async fn create(&self, service: u64, more: &[&str]) -> Result<String> {
        let service = service.to_string();
        let args = [&["create", "--service", &service, "--within", "60"], more].concat();
        self.text(&args).await
    }

    /// Runs a script in a sandbox as a job and returns everything that came of it.
    ///
    /// # Errors
    /// `sandbox` cannot be started.
    pub async fn exec(&self, sandbox: &str, script: &str) -> Result<Output> {
        self.run(&["run", "--within", "120", sandbox, "--", script]).await
    }
}
