//! The door out: connections to a port of the sandbox's own end at the operator's proxy, behind a Unix socket.
//!
//! Bytes are passed on unread. Not here: what may be reached through the proxy.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use sandbox_protocol::egress::{EGRESS_PORT, EGRESS_UNAVAILABLE};
use sandbox_protocol::http::ErrorBody;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional_with_sizes, sink};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::{
    EGRESS_ACCEPT_PAUSE, EGRESS_BUFFER_BYTES, EGRESS_CONNECT_MAX, EGRESS_CONNECTIONS_MAX, EGRESS_REFUSAL_MAX,
    EGRESS_REFUSED_BYTES_MAX,
};

/// What commands find in their environment, so that npm, pip, git and curl take this way: each of them knows another
/// spelling. `ALL_PROXY` is not among them: it would send what is not HTTP here too.
pub fn environment() -> BTreeMap<String, String> {
    let proxy = address();
    let direct = "localhost,127.0.0.1,::1".to_owned();
    let proxies = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"].map(|name| (name, proxy.clone()));
    let direct = ["no_proxy", "NO_PROXY"].map(|name| (name, direct.clone()));
    proxies.into_iter().chain(direct).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The door, as clients of a proxy are told of it.
pub fn address() -> String {
    format!("http://{}:{EGRESS_PORT}", Ipv4Addr::LOCALHOST)
}

/// Listens on the door's port of the loopback address.
///
/// # Errors
/// The port is taken.
pub async fn open() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, EGRESS_PORT)).await
}

/// Passes connections on to the socket at `proxy` until `stop`, as many at a time as may be; the next waits.
pub async fn serve(listener: TcpListener, proxy: PathBuf, stop: CancellationToken) {
    let tasks = TaskTracker::new();
    let (room, proxy) = (Arc::new(Semaphore::new(EGRESS_CONNECTIONS_MAX)), Arc::new(proxy));
    let accepting = async {
        loop {
            let Ok(pass) = Arc::clone(&room).acquire_owned().await else { return };
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection to the proxy");
                    sleep(EGRESS_ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (proxy, stop) = (Arc::clone(&proxy), stop.clone());
            tasks.spawn(async move {
                if let Some(Err(error)) = stop.run_until_cancelled(connect(stream, &proxy)).await {
                    tracing::debug!(%error, "a connection to the proxy broke off");
                }
                drop(pass);
            });
        }
    };
    stop.run_until_cancelled(accepting).await;
    tasks.close();
    tasks.wait().await;
}

async fn connect(mut client: TcpStream, proxy: &PathBuf) -> io::Result<()> {
    // Answers come in pieces, and none of them is to wait until the one before it was acknowledged.
    client.set_nodelay(true)?;
    match timeout(EGRESS_CONNECT_MAX, UnixStream::connect(proxy)).await {
        Ok(Ok(mut proxy)) => {
            copy_bidirectional_with_sizes(&mut client, &mut proxy, EGRESS_BUFFER_BYTES, EGRESS_BUFFER_BYTES)
                .await
                .map(drop)
        }
        Ok(Err(_)) | Err(_) => timeout(EGRESS_REFUSAL_MAX, refuse(client)).await?,
    }
}

/// Answers whatever is asked. The rest of the question is read, because what is closed unread takes its answer along.
async fn refuse(mut client: TcpStream) -> io::Result<()> {
    let body = ErrorBody {
        code: EGRESS_UNAVAILABLE.to_owned(),
        message: "the operator's proxy cannot be reached".to_owned(),
        retryable: true,
    };
    let body = serde_json::to_string(&body)?;
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nconnection: close\r\n";
    client.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    client.shutdown().await?;
    tokio::io::copy(&mut client.take(EGRESS_REFUSED_BYTES_MAX), &mut sink()).await.map(drop)
}
