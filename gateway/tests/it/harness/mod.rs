//! A sandbox without a container: the sidecar's program in a directory of its own, a gateway before it, and clients.

mod doors;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sandbox_gateway::hostkeys::HostKeys;
use sandbox_gateway::{Bounds, Gateway};
use sandbox_protocol::ssh::PublicKey;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

pub(crate) use doors::House;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The sandbox of a stage.
pub(crate) const SANDBOX: &str = "sbx-1-2-0";
/// Who programs inside run as, where the sidecar may choose.
const AGENT: u32 = 1000;

pub(crate) struct Stage {
    pub(crate) house: Arc<House>,
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) key: Key,
    /// What the gateway proves itself by.
    pub(crate) host_key: PublicKey,
    served: Option<JoinHandle<()>>,
    _sidecar: Child,
    directory: TempDir,
}

/// A customer's key, in files.
pub(crate) struct Key {
    pub(crate) file: PathBuf,
    pub(crate) public: PublicKey,
}

impl Key {
    pub(crate) fn new(directory: &Path, name: &str) -> Self {
        Self::of_kind(directory, name, &["-t", "ed25519"])
    }

    pub(crate) fn of_kind(directory: &Path, name: &str, kind: &[&str]) -> Self {
        let file = directory.join(name);
        let mut command = std::process::Command::new("ssh-keygen");
        let made = command.args(["-q", "-N", "", "-C", "", "-f"]).arg(&file).args(kind).status().unwrap();
        assert!(made.success());
        let line = std::fs::read_to_string(file.with_extension("pub")).unwrap();
        Self { file, public: line.parse().unwrap() }
    }
}

impl Stage {
    pub(crate) async fn start() -> Self {
        Self::with(Bounds::default()).await
    }

    pub(crate) async fn with(bounds: Bounds) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (workspace, home) = (directory.path().join("workspace"), directory.path().join("home"));
        for place in [&workspace, &home] {
            std::fs::create_dir(place).unwrap();
            std::os::unix::fs::chown(place, Some(AGENT), Some(AGENT)).unwrap();
        }
        let socket = directory.path().join("sidecar.sock");
        // Where the agent may look.
        std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let program = directory.path().join("sandbox-sidecar");
        let built = sidecar_program();
        std::fs::hard_link(&built, &program).or_else(|_| std::fs::copy(&built, &program).map(drop)).unwrap();
        let mut sidecar = Command::new(&program);
        sidecar.env_clear().env("SIDECAR_SOCKET", &socket).env("AGENT_WORKSPACE_ROOT", &workspace);
        sidecar.env("AGENT_HOME", &home).env("SIDECAR_AUTH_TOKEN", doors::TOKEN);
        let sidecar = sidecar.stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        until(|| socket.exists()).await;
        let key = Key::new(directory.path(), "id");
        let house = House::new(socket, &key.public);
        let keys = HostKeys::open(directory.path()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let host_key = keys.announced(SystemTime::now()).unwrap().remove(0);
        let known = format!("[127.0.0.1]:{} {host_key}\n", address.port());
        std::fs::write(directory.path().join("known"), known).unwrap();
        let gateway = Gateway::new(Arc::clone(&house) as _, keys, bounds);
        let stopped = stop.clone();
        let served = tokio::spawn(async move { gateway.serve(listener, stopped).await });
        Self { house, address, stop, key, host_key, served: Some(served), _sidecar: sidecar, directory }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.directory.path().join("workspace")
    }

    /// A directory that is not the sandbox's.
    pub(crate) fn outside(&self) -> PathBuf {
        let outside = self.directory.path().join("outside");
        std::fs::create_dir_all(&outside).unwrap();
        outside
    }

    /// Options of OpenSSH's programs, but the port's.
    pub(crate) fn options(&self, key: &Key) -> Vec<String> {
        let known = self.directory.path().join("known");
        let mut options =
            vec!["-F".to_owned(), "/dev/null".to_owned(), "-i".to_owned(), key.file.display().to_string()];
        for option in [
            "StrictHostKeyChecking=yes",
            "IdentitiesOnly=yes",
            "BatchMode=yes",
            "ConnectTimeout=20",
            &format!("UserKnownHostsFile={}", known.display()),
        ] {
            options.extend(["-o".to_owned(), option.to_owned()]);
        }
        options
    }

    /// OpenSSH's client at this sandbox, with options of its own before the rest.
    pub(crate) fn ssh(&self, options: &[&str], rest: &[&str]) -> Command {
        self.ssh_as(SANDBOX, &self.key, options, rest)
    }

    pub(crate) fn ssh_as(&self, user: &str, key: &Key, options: &[&str], rest: &[&str]) -> Command {
        let mut command = Command::new("ssh");
        command.args(self.options(key)).args(options).arg("-p").arg(self.address.port().to_string());
        command.arg(format!("{user}@127.0.0.1")).args(rest).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What a command tells that succeeds.
    pub(crate) async fn sh(&self, command: &str) -> String {
        let output = run(self.ssh(&[], &[command]), b"").await;
        assert!(output.status.success(), "{command}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(served) = self.served.take() {
            served.abort();
        }
    }
}

/// Runs a program with these bytes as its stdin.
pub(crate) async fn run(command: Command, stdin: &[u8]) -> Output {
    run_within(command, stdin, PATIENCE).await
}

/// The same for what may take longer.
pub(crate) async fn run_within(mut command: Command, stdin: &[u8], patience: Duration) -> Output {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    // A program may end before it has read everything.
    let feeding = tokio::spawn(async move { pipe.write_all(&stdin).await.is_ok() });
    let output = timeout(patience, child.wait_with_output()).await.expect("it does not end").unwrap();
    feeding.await.unwrap();
    output
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until `state` holds.
pub(crate) async fn until(state: impl Fn() -> bool) {
    let mut look = interval(Duration::from_millis(5));
    let reached = async {
        while !state() {
            look.tick().await;
        }
    };
    timeout(PATIENCE, reached).await.expect("the state was not reached");
}

/// The sidecar as built beside this test.
fn sidecar_program() -> PathBuf {
    let built = std::env::current_exe().unwrap();
    let program = built.parent().and_then(Path::parent).unwrap().join("sandbox-sidecar");
    assert!(program.exists(), "build it first: cargo build -p sandbox-sidecar");
    program
}
