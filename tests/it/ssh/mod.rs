//! Into a sandbox over SSH: the real chain, operator, engine and containers, and OpenSSH's own programs.

mod container;
mod ends;
mod idle;
mod keys;
mod programs;
mod ways;

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use alloy::sol_types::SolValue as _;
use anyhow::{Context, Result, ensure};
use sandbox_protocol::abi::{self, SshProvisionRequest, SshProvisionResponse};
use sandbox_protocol::http::AnswerBody;
use sandbox_protocol::session::Scope;
use sandbox_protocol::ssh::PublicKey;
use sandbox_protocol::{FailureCode, Job, Outcome, SandboxId};
use sandbox_sdk::answers::Answers;
use sandbox_sdk::api::{Session, sign_in};
use sandbox_sdk::requests::{self, CreateBuilder, JobRequest};
use sandbox_sdk::{Account, verify};
use sandbox_tests::ground::CUSTOMER;
use sandbox_tests::node::{Node, free_port};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::world::{World, shown};

const BOUND: Duration = Duration::from_secs(60);

/// A world whose operator lets customers in, with a sandbox.
struct Guests {
    world: World,
    sandbox: SandboxId,
    account: Account,
}

/// A key of a customer, in a file.
struct Key {
    file: PathBuf,
    public: PublicKey,
}

/// How OpenSSH's programs are told to come to a sandbox with a key.
struct Way {
    config: PathBuf,
    host: String,
}

/// A program that a customer runs in a sandbox.
struct Stay {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Guests {
    async fn new() -> Result<Self> {
        Self::with(|_| {}).await
    }

    /// As [`Guests::new`], where customers are told this port and nobody comes.
    async fn told(port: u16) -> Result<Self> {
        Self::with(|node| node.set("SSH_PORT", port.to_string())).await
    }

    async fn with(set: impl FnOnce(&mut Node)) -> Result<Self> {
        // The same in each of the operator's lives.
        let bind = free_port()?.to_string();
        let world = World::with(|node| {
            node.set("SSH_BIND", bind);
            set(node);
        });
        let world = world.await?;
        let sandbox = world.create().await?.parse().context("no id")?;
        let account = world.ground.account(CUSTOMER).await?;
        Ok(Self { world, sandbox, account })
    }

    /// One more sandbox.
    async fn create(&self, wish: CreateBuilder) -> Result<SandboxId> {
        let submitted = self.account.submit_job(self.world.service, wish.build()?).await?;
        let body = Answers::new(self.account.clone())?.wait_for(&submitted, BOUND).await?;
        let answer = body.answer.context("no answer")?;
        ensure!(answer.outcome == Outcome::Done, "{:?}", answer.response_json);
        Ok(SandboxId { origin: submitted.key, slot: 0 })
    }

    /// The proven answer to a job.
    async fn answer(&self, request: JobRequest) -> Result<AnswerBody> {
        let submitted = self.account.submit_job(self.world.service, request).await?;
        let body = Answers::new(self.account.clone())?.wait_for(&submitted, BOUND).await?;
        let answer = body.answer.context("no answer")?;
        verify::offline(&answer)?;
        Ok(answer)
    }

    async fn provision(&self, key: &PublicKey, ttl_blocks: u64) -> Result<(SshProvisionResponse, AnswerBody)> {
        let answer = self.answer(requests::ssh_provision(self.sandbox, key, ttl_blocks)?).await?;
        ensure!(answer.outcome == Outcome::Done, "{:?}", answer.response_json);
        Ok((abi::decode(&answer.response)?, answer))
    }

    /// Failure and sentence of a job that asks for a key in these words.
    async fn refused(&self, sandbox: &str, line: &str) -> Result<(Option<FailureCode>, String)> {
        let (sandbox_id, ssh_public_key) = (sandbox.to_owned(), line.to_owned());
        let inputs = SshProvisionRequest { sandbox_id, ssh_public_key, ttl_blocks: 0 }.abi_encode().into();
        let answer = self.answer(JobRequest { job: Job::SshProvision, inputs }).await?;
        ensure!(answer.outcome == Outcome::Caller, "{:?}", answer.outcome);
        Ok((answer.failure, answer.response_json["message"].as_str().unwrap_or_default().to_owned()))
    }

    async fn session(&self) -> Result<Session> {
        let operator = self.account.chain().sandbox(self.sandbox).await?.operator;
        let url = self.account.chain().operator(operator).await?.apiUrl;
        Ok(sign_in(&self.account, (operator, &url), &[Scope::SandboxesSsh, Scope::SandboxesWrite]).await?)
    }

    /// What the operator's own command prints.
    fn host_keys(&self, command: &str) -> Result<Value> {
        let output = self.world.node.command(&["--json", "ssh-keys", command])?.output()?;
        let (code, stdout, stderr) = shown(&output);
        ensure!(code == Some(0), "{code:?}: {stderr}");
        Ok(serde_json::from_str(&stdout)?)
    }

    /// A file of this test's.
    fn file(&self, name: &str) -> PathBuf {
        self.world.node.dir().join(name)
    }

    /// A new key, which opens nothing.
    fn key(&self, name: &str) -> Result<Key> {
        let file = self.file(name);
        let mut keygen = std::process::Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(&file);
        ensure!(keygen.status().context("no ssh-keygen")?.success(), "no key");
        let line = std::fs::read_to_string(file.with_extension("pub"))?;
        Ok(Key { public: line.parse()?, file })
    }

    /// The way into `sandbox` with `key`, which is let in.
    async fn way(&self, sandbox: SandboxId, key: &Key) -> Result<Way> {
        let (host, identity) = (sandbox.to_string(), key.file.display().to_string());
        let block = self.world.customer.text(&["ssh-config", &host, "--identity", &identity]).await?;
        self.way_of(&host, key, &block)
    }

    /// The same way with another key, which is not let in by that.
    fn way_with(&self, way: &Way, former: &Key, key: &Key) -> Result<Way> {
        let block = std::fs::read_to_string(&way.config)?;
        let (former, now) = (former.file.display().to_string(), key.file.display().to_string());
        self.way_of(&way.host, key, &block.replace(&former, &now))
    }

    fn way_of(&self, host: &str, key: &Key, block: &str) -> Result<Way> {
        let name = key.file.file_name().context("no name")?.display().to_string();
        let config = self.file(&format!("{host}-{name}.config"));
        std::fs::write(&config, block)?;
        Ok(Way { config, host: host.to_owned() })
    }
}

impl Way {
    /// One of OpenSSH's programs, told of this way.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.arg("-F").arg(&self.config).args(["-o", "BatchMode=yes"]).env_remove("SSH_AUTH_SOCK");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    fn ssh(&self, options: &[&str], command: &str) -> Command {
        let mut ssh = self.program("ssh");
        ssh.args(options).arg("--").arg(&self.host).args((!command.is_empty()).then_some(command));
        ssh
    }

    /// Exit code, output and complaints of a command.
    async fn runs(&self, options: &[&str], command: &str) -> Result<(Option<i32>, String, String)> {
        Ok(shown(&finished(&mut self.ssh(options, command)).await?))
    }

    /// What a command prints that succeeds.
    async fn says(&self, command: &str) -> Result<String> {
        let (code, stdout, stderr) = self.runs(&[], command).await?;
        ensure!(code == Some(0), "{command}: {code:?} {stderr}");
        Ok(stdout)
    }

    /// A program that has begun, and does not end by itself.
    async fn stays(&self, options: &[&str], marker: &str) -> Result<Stay> {
        let script = format!("echo begun; exec sleep {marker}");
        let mut stay = Stay::begin(self.ssh(options, &script))?;
        ensure!(stay.line().await? == "begun", "another program speaks");
        Ok(stay)
    }
}

impl Stay {
    fn begin(mut command: Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).spawn().context("cannot run a program")?;
        let stdout = BufReader::new(child.stdout.take().context("no stdout")?);
        Ok(Self { child, stdout })
    }

    /// The next line that it prints.
    async fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        timeout(BOUND, self.stdout.read_line(&mut line)).await.context("no line")??;
        if line.is_empty() {
            let mut complaints = String::new();
            if let Some(stderr) = &mut self.child.stderr {
                timeout(BOUND, stderr.read_to_string(&mut complaints)).await??;
            }
            anyhow::bail!("it ended: {complaints}");
        }
        Ok(line.trim_end().to_owned())
    }

    /// Gives it something to read.
    async fn tell(&mut self, text: &str) -> Result<()> {
        self.child.stdin.as_mut().context("no stdin")?.write_all(text.as_bytes()).await.context("it reads nothing")
    }

    /// Exit code and complaints, once it has ended.
    async fn ended(mut self) -> Result<(Option<i32>, String)> {
        let mut complaints = String::new();
        let mut stderr = self.child.stderr.take().context("no stderr")?;
        timeout(BOUND, stderr.read_to_string(&mut complaints)).await.context("it goes on")??;
        let status = timeout(BOUND, self.child.wait()).await.context("it goes on")??;
        Ok((status.code(), complaints))
    }

    fn goes_on(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }
}

/// Runs a program to its end, within bounds.
async fn finished(command: &mut Command) -> Result<Output> {
    timeout(BOUND, command.output()).await.context("it does not end")?.context("cannot run a program")
}

/// Runs a program to its end, which reads `input`.
async fn fed(mut command: Command, input: &[u8]) -> Result<Output> {
    let mut child = command.stdin(Stdio::piped()).spawn().context("cannot run a program")?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let feeding = async {
        stdin.write_all(input).await?;
        drop(stdin);
        anyhow::Ok(())
    };
    let (fed, output) = tokio::join!(feeding, timeout(BOUND, child.wait_with_output()));
    fed?;
    Ok(output.context("it does not end")??)
}
