//! The proxy for a client in this process: a port of the loopback address, for who knows the word, by the rules of a sandbox.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::limits::{LENT_HEAD_BYTES_MAX, LENT_HEAD_TIMEOUT};

/// A port that leads to the proxy until this is dropped.
#[derive(Debug)]
pub(crate) struct Lent {
    url: String,
    _serving: AbortOnDropHandle<()>,
}

impl Lent {
    /// A port that leads to the socket; `back` is called when nobody uses it any more.
    pub(super) async fn open(socket: PathBuf, back: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let word = format!("{:032x}", rand::random::<u128>());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://lent:{word}@{}", listener.local_addr()?);
        let shown = STANDARD.encode(format!("lent:{word}"));
        let serving = serve(listener, socket, shown, Back(Some(back)));
        Ok(Self { url, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) })
    }

    /// As clients of a proxy are told of it.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }
}

/// Calls back when it is dropped, with the task that holds it.
struct Back<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Back<F> {
    fn drop(&mut self) {
        if let Some(back) = self.0.take() {
            back();
        }
    }
}

async fn serve<F: FnOnce() + Send>(listener: TcpListener, socket: PathBuf, shown: String, _back: Back<F>) {
    let (tasks, socket, shown) = (TaskTracker::new(), Arc::<Path>::from(socket), Arc::<str>::from(shown));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (socket, shown) = (socket.clone(), shown.clone());
        tasks.spawn(async move {
            if let Err(error) = pass(stream, &socket, &shown).await {
                tracing::debug!(%error, "a connection to the proxy broke");
            }
        });
    }
}

/// Passes a connection on whose first request shows the word; the host's other users know none.
async fn pass(mut stream: TcpStream, socket: &Path, shown: &str) -> io::Result<()> {
    let head = timeout(LENT_HEAD_TIMEOUT, head(&mut stream)).await??;
    if !String::from_utf8_lossy(&head).lines().any(|line| is_word(line, shown)) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut proxy = UnixStream::connect(socket).await?;
    proxy.write_all(&head).await?;
    copy_bidirectional(&mut stream, &mut proxy).await.map(drop)
}

fn is_word(line: &str, shown: &str) -> bool {
    let Some((name, value)) = line.split_once(':') else { return false };
    name.eq_ignore_ascii_case("proxy-authorization") && value.trim().strip_prefix("Basic ") == Some(shown)
}

/// What came up to the end of the first request's headers, and perhaps more.
async fn head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= LENT_HEAD_BYTES_MAX || stream.read_buf(&mut head).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a request, since what is closed unread takes its answer along.
    async fn head_of(stream: &mut UnixStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut head).await.unwrap() > 0);
        }
    }

    /// What comes back through a lent port where a server says hello to everybody.
    async fn said(request: impl Fn(&str) -> String) -> String {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("proxy.sock");
        let server = tokio::net::UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            head_of(&mut stream).await;
            stream.write_all(b"hello").await.unwrap();
        });
        let lent = Lent::open(socket, || ()).await.unwrap();
        let (word, address) = lent.url.strip_prefix("http://").unwrap().split_once('@').unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request(&STANDARD.encode(word)).as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _read = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn who_knows_the_word_is_let_through_and_nobody_else() {
        let with = |word: &str| format!("GET http://a/ HTTP/1.1\r\nproxy-authorization: Basic {word}\r\n\r\n");
        assert_eq!(said(with).await, "hello");
        assert_eq!(said(|word| with(&word.to_lowercase())).await, "");
        assert_eq!(said(|_| "GET http://a/ HTTP/1.1\r\n\r\n".to_owned()).await, "");
        assert_eq!(said(|word| format!("GET http://a/ HTTP/1.1\r\nx: {}\r\n\r\n{word}", "y".repeat(20_000))).await, "");
    }
}
