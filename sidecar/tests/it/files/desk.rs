//! A sidecar with files, and what is asked of it.

use std::ops::Deref;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::{HeaderMap, Method, Request, Response};
use nix::unistd::geteuid;
use sandbox_process::link::{Driver, link};
use sandbox_protocol::files::{
    FileEntry, FilePath, FilesQuery, ListQuery, ListReply, ReadQuery, RemoveQuery, StatQuery, WriteQuery, WriteReply,
};
use sandbox_protocol::http::ErrorBody;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::harness::{PATIENCE, Sidecar, TOKEN, until};

/// A sidecar whose agent has a home.
pub(super) struct Desk(Sidecar);

impl Deref for Desk {
    type Target = Sidecar;

    fn deref(&self) -> &Sidecar {
        &self.0
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Status and code word of a refusal.
    pub(super) fn refusal(&self) -> (u16, String) {
        (self.status, self.json::<ErrorBody>().code)
    }
}

impl Desk {
    pub(super) fn open() -> Self {
        Self::with_patience(PATIENCE, PATIENCE)
    }

    pub(super) fn with_patience(idle_max: Duration, answer_max: Duration) -> Self {
        let desk = Self(Sidecar::with_patience(idle_max, answer_max));
        std::fs::create_dir(desk.home()).unwrap();
        if geteuid().is_root() {
            let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(desk.workspace()).unwrap());
            chown(desk.home(), Some(owner), Some(owner)).unwrap();
        }
        desk
    }

    /// A path beside the workspace, which nobody may reach through it.
    pub(super) fn outside(&self, name: &str) -> PathBuf {
        self.workspace().with_file_name(name)
    }

    pub(super) async fn ask(&self, method: Method, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let body = Full::new(Bytes::copy_from_slice(body));
        let (response, _driver) = self.stream(method, target, headers, body).await;
        let (parts, body) = response.into_parts();
        let body = timeout(PATIENCE, body.collect()).await.expect("no end").unwrap().to_bytes();
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// The answer's head; its body comes as it is read.
    pub(super) async fn stream<B>(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
        body: B,
    ) -> (Response<Incoming>, Driver)
    where
        B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
    {
        let mut request = Request::builder().method(method).uri(target).header("host", "sidecar");
        request = request.header("authorization", format!("Bearer {TOKEN}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        exchange(&self.socket, request.body(body).unwrap()).await
    }

    pub(super) async fn get(&self, path: &[u8], headers: &[(&str, &str)]) -> Answer {
        let target = ReadQuery { path: FilePath(path.to_vec()) }.target();
        self.ask(Method::GET, &target, headers, b"").await
    }

    pub(super) async fn put(&self, query: &WriteQuery, body: &[u8]) -> Answer {
        self.ask(Method::PUT, &query.target(), &[], body).await
    }

    /// Writes a file that nothing is in the way of.
    pub(super) async fn wrote(&self, path: &str, body: &[u8]) -> WriteReply {
        let answer = self.put(&at(path), body).await;
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        answer.json()
    }

    pub(super) async fn stat(&self, path: &[u8]) -> Answer {
        self.ask(Method::GET, &StatQuery { path: FilePath(path.to_vec()) }.target(), &[], b"").await
    }

    pub(super) async fn entry(&self, path: &str) -> FileEntry {
        self.stat(path.as_bytes()).await.json()
    }

    pub(super) async fn list(&self, query: &ListQuery) -> ListReply {
        self.ask(Method::GET, &query.target(), &[], b"").await.json()
    }

    pub(super) async fn remove(&self, path: &[u8], recursive: bool) -> Answer {
        let target = RemoveQuery { path: FilePath(path.to_vec()), recursive }.target();
        self.ask(Method::DELETE, &target, &[], b"").await
    }

    pub(super) async fn post(&self, route: &str, body: &impl Serialize) -> Answer {
        self.ask(Method::POST, route, &[], &serde_json::to_vec(body).unwrap()).await
    }

    /// The worker's process, once there is one.
    pub(super) async fn worker(&self) -> u32 {
        until(|| self.workers().len() == 1).await;
        self.workers()[0]
    }

    /// Processes that serve this sidecar's files.
    pub(super) fn workers(&self) -> Vec<u32> {
        workers(&self.workspace())
    }
}

/// Processes that serve the files of `workspace`.
pub(super) fn workers(workspace: &Path) -> Vec<u32> {
    let workspace = workspace.as_os_str().as_bytes();
    let ids = std::fs::read_dir("/proc").unwrap().flatten();
    ids.filter_map(|entry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let has = |wanted: &[u8]| line.split(|byte| *byte == 0).any(|word| word == wanted);
        (has(b"serve-files") && has(workspace)).then(|| entry.file_name().to_str()?.parse().ok()).flatten()
    })
    .collect()
}

/// The head of the answer to `request`; its body comes as it is read.
pub(super) async fn exchange<B>(socket: &Path, request: Request<B>) -> (Response<Incoming>, Driver)
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let (mut sender, driver) = link(UnixStream::connect(socket).await.unwrap()).await.unwrap();
    (timeout(PATIENCE * 10, sender.send_request(request)).await.expect("no answer").unwrap(), driver)
}

pub(super) fn at(path: &str) -> WriteQuery {
    WriteQuery { path: path.into(), ..WriteQuery::default() }
}
