//! A proxy with one sandbox, names that lead where a test says, and what a client inside would do.

pub(crate) mod origin;
pub(crate) mod programs;

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use sandbox_outbound::address::{Exceptions, Guard, Resolve};
use sandbox_outbound::egress::{Egress, EgressBounds, EgressConfig, HostService, HostServices};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Longer than anything here takes: what waits so long waits forever.
const PATIENCE: Duration = Duration::from_secs(20);

/// Names and their answers: each lookup gets the next one, the last one stays.
#[derive(Clone, Default)]
pub(crate) struct Names(Arc<Mutex<HashMap<String, Vec<Vec<IpAddr>>>>>);

impl Names {
    pub(crate) fn lead(self, name: &str, answers: &[&[&str]]) -> Self {
        let answers = answers.iter().map(|answer| answer.iter().map(|address| address.parse().unwrap()).collect());
        self.0.lock().unwrap().insert(name.to_owned(), answers.collect());
        self
    }
}

#[async_trait]
impl Resolve for Names {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let mut names = self.0.lock().unwrap();
        let answers = names.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() })
    }
}

/// What a test wants of its proxy.
pub(crate) struct Setup {
    pub names: Names,
    pub exceptions: String,
    pub rules: &'static str,
    pub policy: &'static str,
    pub services: Vec<HostService>,
    pub roots: Vec<reqwest::Certificate>,
    pub bounds: EgressBounds,
}

/// Everything allowed that is local, by the name `origin.test`.
impl Default for Setup {
    fn default() -> Self {
        Self {
            names: Names::default().lead("origin.test", &[&["127.0.0.1"]]),
            exceptions: "127.0.0.1/32".to_owned(),
            rules: "*:*",
            policy: "*:*,0.0.0.0/0:*,[::/0]:*",
            services: Vec::new(),
            roots: Vec::new(),
            bounds: EgressBounds::default(),
        }
    }
}

/// A proxy and the door of its one sandbox.
pub(crate) struct Node {
    pub egress: Egress,
    pub socket: PathBuf,
    _dir: TempDir,
}

pub(crate) const KEY: &str = "sbx-1-2-0";

pub(crate) fn node(setup: Setup) -> Node {
    let guard = Guard::with_resolver(Exceptions::parse(&setup.exceptions).unwrap(), Arc::new(setup.names));
    let services = HostServices::new(setup.services, setup.roots).unwrap();
    let policy = setup.policy.parse().unwrap();
    let egress = Egress::new(EgressConfig { guard, policy, services, bounds: setup.bounds });
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("egress.sock");
    egress.open(KEY.to_owned(), socket.clone(), setup.rules.parse().unwrap()).unwrap();
    Node { egress, socket, _dir: dir }
}

impl Node {
    pub(crate) async fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).await.unwrap()
    }

    /// Everything that comes back for `request`, which should ask for the connection to be closed.
    pub(crate) async fn ask(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }

    /// `GET` of a URL.
    pub(crate) async fn get(&self, url: &str) -> String {
        self.ask(&format!("GET {url} HTTP/1.1\r\nhost: ignored\r\nconnection: close\r\n\r\n")).await
    }

    /// A tunnel and the head of the answer to asking for it.
    pub(crate) async fn tunnel(&self, authority: &str) -> (UnixStream, String) {
        let mut stream = self.connect().await;
        stream.write_all(format!("CONNECT {authority} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
        let head = origin::head(&mut stream).await;
        (stream, head)
    }
}

/// Everything up to the end, which may be a reset where something that was sent has not been read.
pub(crate) async fn rest(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    match timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an end") {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => {}
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for a state.
pub(crate) async fn until(mut state: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !state().await {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("the state comes");
}

/// The status line's code and the error's code, `-` where it has none.
pub(crate) fn told(answer: &str) -> String {
    let status = answer.split(' ').nth(1).unwrap_or("none");
    let code = answer.split_once("{\"code\":\"").and_then(|(_, rest)| rest.split('"').next()).unwrap_or("-");
    format!("{status} {code}")
}
