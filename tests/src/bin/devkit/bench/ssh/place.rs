//! The two servers that one client goes to: a sandbox behind the operator's gateway, and an OpenSSH server beside it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sandbox_process::source::{Environment, Source as _};
use sandbox_tests::client::Client;
use sandbox_tests::engine::{containers, inspect};
use sandbox_tests::ground::{CUSTOMER, Ground, OPERATOR};
use sandbox_tests::node::Node;
use sandbox_tests::wait::until;
use tempfile::TempDir;

use super::super::footprint::child_of;

const READY_WITHIN: Duration = Duration::from_secs(20);
/// Where Debian has it.
const SSHD: &str = "/usr/sbin/sshd";
/// Memory, so that disks are not what is measured.
const MEMORY: &str = "/dev/shm";

/// Both servers, and the client's key.
pub(super) struct Place {
    pub(super) directory: TempDir,
    pub(super) ours: Target,
    pub(super) baseline: Target,
    sshd: Child,
    pub(super) node: Node,
    pub(super) sidecar: u64,
    _customer: Client,
    _ground: Ground,
}

/// Where a client goes.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Options of OpenSSH's programs, with the port.
    options: Vec<String>,
    /// User and host.
    pub(super) login: String,
    /// A directory in memory that the server has.
    pub(super) directory: String,
}

impl Target {
    fn new(directory: &Path, key: &Path, port: u16, user: &str, remote: &str) -> Self {
        let known = directory.join(format!("known-{port}"));
        let mut options: Vec<String> = ["-F", "/dev/null", "-i"].map(str::to_owned).into();
        options.push(key.display().to_string());
        for option in [
            "StrictHostKeyChecking=accept-new",
            "IdentitiesOnly=yes",
            "BatchMode=yes",
            // The same exchange on both sides: OpenSSH's own choice costs it more.
            "KexAlgorithms=curve25519-sha256",
            &format!("Port={port}"),
            &format!("UserKnownHostsFile={}", known.display()),
        ] {
            options.extend(["-o".to_owned(), option.to_owned()]);
        }
        Self { options, login: format!("{user}@127.0.0.1"), directory: remote.to_owned() }
    }

    /// One of OpenSSH's programs, with options of its own.
    pub(super) fn program(&self, name: &str, more: &[&str]) -> Command {
        let mut command = Command::new(name);
        command.args(&self.options).args(more).arg(&self.login);
        command
    }
}

impl Place {
    pub(super) async fn start() -> Result<Self> {
        let directory = tempfile::tempdir_in(MEMORY).context("no directory in memory")?;
        let key = directory.path().join("key");
        keygen(&key)?;
        let ground = Ground::new().await?;
        let mut node = ground.node(OPERATOR)?;
        let port = free_port()?;
        node.set("SSH_BIND", format!("127.0.0.1:{port}"));
        node.start().await?;
        let customer = ground.client(CUSTOMER)?;
        let service = customer.service(&[Ground::address(OPERATOR)]).await?;
        let sandbox = customer.create(service, &["--cpu", "2", "--ssh"]).await?;
        let public = key.with_extension("pub").display().to_string();
        customer.text(&["ssh-key", "add", &sandbox, &public]).await?;
        let container = containers(&node.run_dir())?.pop().context("no container")?;
        let init = inspect(&container)?["State"]["Pid"].as_u64().context("the container does not run")?;
        let sshd_port = free_port()?;
        let sshd = sshd(directory.path(), &key, sshd_port)?;
        let there = directory.path().join("there");
        fs::create_dir(&there).context("no directory for the baseline")?;
        let ours = Target::new(directory.path(), &key, port, &sandbox, "/tmp");
        let user = Environment.get("USER").unwrap_or_else(|| "root".to_owned());
        let baseline = Target::new(directory.path(), &key, sshd_port, &user, &there.display().to_string());
        for target in [&ours, &baseline] {
            let connected =
                || async { target.program("ssh", &[]).arg("true").output().ok()?.status.success().then_some(()) };
            until("an SSH server", READY_WITHIN, connected).await?;
        }
        let sidecar = child_of(init)?;
        Ok(Self { directory, ours, baseline, sshd, node, sidecar, _customer: customer, _ground: ground })
    }

    /// Processor seconds that ours has taken by now: operator, sidecar, and what they started.
    pub(super) fn cpu_ours_s(&self) -> Result<f64> {
        Ok(cpu_s(self.node.pid()?.into())? + cpu_s(self.sidecar)?)
    }

    /// The same of the baseline, for sessions that have ended.
    pub(super) fn cpu_baseline_s(&self) -> Result<f64> {
        cpu_s(self.sshd.id().into())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.sshd.kill().and_then(|()| self.sshd.wait()).is_err() {
            eprintln!("an OpenSSH server is left");
        }
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").context("no port")?.local_addr()?.port())
}

fn keygen(file: &Path) -> Result<()> {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file).status();
    ensure!(made.context("ssh-keygen")?.success(), "ssh-keygen failed");
    Ok(())
}

fn sshd(directory: &Path, key: &Path, port: u16) -> Result<Child> {
    // Where it changes to before it trusts anybody.
    fs::create_dir_all("/run/sshd").context("no directory for sshd")?;
    let host_key = directory.join("host");
    keygen(&host_key)?;
    let authorized: PathBuf = directory.join("authorized");
    fs::copy(key.with_extension("pub"), &authorized).context("authorized keys")?;
    fs::set_permissions(&authorized, fs::Permissions::from_mode(0o600))?;
    let config = directory.join("sshd_config");
    let lines = [
        format!("Port {port}"),
        "ListenAddress 127.0.0.1".to_owned(),
        format!("HostKey {}", host_key.display()),
        format!("AuthorizedKeysFile {}", authorized.display()),
        "StrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\nPidFile none\nMaxStartups 200\nMaxSessions 200"
            .to_owned(),
        "Subsystem sftp /usr/lib/openssh/sftp-server".to_owned(),
    ];
    fs::write(&config, lines.join("\n") + "\n").context("sshd's configuration")?;
    // With an empty home: what a shell reads there is not what is measured.
    let home = Environment.get("HOME").context("no home")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", "mount -t tmpfs tmpfs \"$1\" && exec \"$2\" -D -f \"$3\"", "sh"]);
    command.args([home.as_ref(), SSHD.as_ref(), config.as_os_str()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().context("sshd, of Debian's package openssh-server")
}

/// Processor seconds of a process and of those of its children that have ended.
fn cpu_s(pid: u64) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("figures of a process")?;
    let rest = stat.rsplit(')').next().unwrap_or_default();
    // utime, stime, cutime, cstime: the 14th field and those after it, of which two stand before the parenthesis.
    let ticks: u64 = rest.split_whitespace().skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    #[allow(clippy::cast_precision_loss)]
    Ok(ticks as f64 / 100.0)
}
