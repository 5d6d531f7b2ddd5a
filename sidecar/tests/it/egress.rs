//! The door out: from a port of the sandbox to the operator's socket.

use std::path::PathBuf;

use sandbox_protocol::http::ErrorBody;
use sandbox_sidecar::egress;
use sandbox_sidecar::limits::EGRESS_CONNECTIONS_MAX;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::harness::PATIENCE;

struct Door {
    directory: TempDir,
    address: std::net::SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Door {
    async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let serving = tokio::spawn(egress::serve(listener, directory.path().join("egress.sock"), stop.clone()));
        Self { directory, address, stop, serving }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("egress.sock")
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut text)).await.expect("no end").unwrap();
    text
}

#[tokio::test]
async fn both_directions_are_passed_on_and_each_ends_by_itself() {
    let door = Door::open().await;
    let proxy = UnixListener::bind(door.socket()).unwrap();
    let mut client = door.connect().await;
    let (mut upstream, _) = proxy.accept().await.unwrap();
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let mut question = String::new();
    timeout(PATIENCE, upstream.read_to_string(&mut question)).await.unwrap().unwrap();
    assert_eq!(question, "question");
    // The client's end is closed; the answer still comes.
    upstream.write_all(b"answer").await.unwrap();
    drop(upstream);
    assert_eq!(rest(&mut client).await, "answer");
}

#[tokio::test]
async fn without_a_proxy_the_client_is_told_and_not_reset() {
    let door = Door::open().await;
    for request in [&b"CONNECT api.example:443 HTTP/1.1\r\nhost: api.example:443\r\n\r\n"[..], &[b'x'; 300_000]] {
        let mut client = door.connect().await;
        client.write_all(request).await.unwrap();
        client.shutdown().await.unwrap();
        let answer = rest(&mut client).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("application/json"), "{head}");
        let error: ErrorBody = serde_json::from_str(body).unwrap();
        assert_eq!((error.code.as_str(), error.retryable), ("egress_unavailable", true));
    }
    // One that comes later is found.
    let proxy = UnixListener::bind(door.socket()).unwrap();
    let _client = door.connect().await;
    timeout(PATIENCE, proxy.accept()).await.unwrap().unwrap();
}

#[tokio::test]
async fn as_many_connections_as_may_and_the_next_waits() {
    let door = Door::open().await;
    let proxy = UnixListener::bind(door.socket()).unwrap();
    let mut open = Vec::new();
    for _ in 0..EGRESS_CONNECTIONS_MAX {
        let client = door.connect().await;
        open.push((client, timeout(PATIENCE, proxy.accept()).await.expect("within the bound").unwrap()));
    }
    let _waiting = door.connect().await;
    let next = proxy.accept();
    tokio::pin!(next);
    // Others are served first where one could be: what passes through them takes longer than an accept.
    for (client, (upstream, _)) in &mut open {
        client.write_all(b"x").await.unwrap();
        tokio::select! {
            biased;
            _ = &mut next => panic!("past the bound"),
            read = upstream.read_u8() => assert_eq!(read.unwrap(), b'x'),
        }
    }
    open.pop();
    timeout(PATIENCE, next).await.expect("room again").unwrap();
}

#[tokio::test]
async fn stopping_ends_connections() {
    let door = Door::open().await;
    let proxy = UnixListener::bind(door.socket()).unwrap();
    let mut client = door.connect().await;
    let _upstream = proxy.accept().await.unwrap();
    door.stop.cancel();
    timeout(PATIENCE, door.serving).await.unwrap().unwrap();
    assert_eq!(rest(&mut client).await, "");
}
