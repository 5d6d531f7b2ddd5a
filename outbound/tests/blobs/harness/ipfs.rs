//! A real IPFS node, installed by its lock file beside what the tests build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use url::Url;

const FILES: [&str; 3] = ["package.json", "package-lock.json", "node.mjs"];

/// A node of this test alone.
pub(crate) struct Node {
    pub(crate) rpc_url: Url,
    _child: Child,
    _repository: tempfile::TempDir,
}

impl Node {
    pub(crate) async fn start() -> Self {
        let installed = tokio::task::spawn_blocking(install).await.unwrap();
        let repository = tempfile::tempdir().unwrap();
        let mut child = tokio::process::Command::new("node")
            .arg(installed.join("node.mjs"))
            .arg(repository.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("this test needs Node.js: {error}"));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next_line().await.unwrap().expect("the node ended before it listened");
        Self { rpc_url: format!("http://127.0.0.1:{port}").parse().unwrap(), _child: child, _repository: repository }
    }
}

/// Where the node's packages are, after installing them if they are not there as the lock file has them.
fn install() -> PathBuf {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/blobs/ipfs");
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ipfs-node");
        let lock = fs::read(source.join("package-lock.json")).unwrap();
        let ready = fs::read(place.join("installed-lock.json")).is_ok_and(|installed| installed == lock);
        fs::create_dir_all(&place).unwrap();
        for file in FILES {
            fs::copy(source.join(file), place.join(file)).unwrap();
        }
        if !ready {
            let mut npm = Command::new("npm");
            npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&place);
            let ended = npm.output().unwrap_or_else(|error| panic!("this test needs npm: {error}"));
            assert!(ended.status.success(), "npm ci: {}", String::from_utf8_lossy(&ended.stderr));
            fs::write(place.join("installed-lock.json"), lock).unwrap();
        }
        place
    });
    INSTALLED.get().unwrap().clone()
}
