//! A forward proxy in miniature: tunnels, requests in absolute form, and refusals in the words of the operator's.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A proxy that serves until it is dropped.
pub(crate) struct ForwardProxy {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    server: JoinHandle<()>,
}

/// What it does with those who ask.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Manners {
    Serves,
    /// As the operator's: status and word for `Proxy-Status`.
    Refuses(u16, &'static str),
}

impl ForwardProxy {
    pub(crate) async fn start(manners: Manners) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let lines = Arc::clone(&asked);
        let server = tokio::spawn(async move {
            let mut served = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                served.spawn(serve(stream, manners, Arc::clone(&lines)));
            }
        });
        Ok(Self { url, asked, server })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Request lines, in their order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ForwardProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(mut client: TcpStream, manners: Manners, asked: Arc<Mutex<Vec<String>>>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if client.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let line = text.lines().next().unwrap_or_default();
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    if let Manners::Refuses(status, word) = manners {
        return client.write_all(&refusal(status, word, line.starts_with("HEAD"))).await;
    }
    let target = line.split(' ').nth(1).unwrap_or_default();
    let authority = target.trim_start_matches("http://").split('/').next().unwrap_or_default();
    let mut origin = TcpStream::connect(authority).await?;
    if line.starts_with("CONNECT") {
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    } else {
        origin.write_all(&head).await?;
    }
    copy_bidirectional(&mut client, &mut origin).await?;
    Ok(())
}

/// Byte for byte as the operator's proxy says it.
fn refusal(status: u16, word: &str, is_head: bool) -> Vec<u8> {
    let message = "llm.test port 443 is not allowed by the sandbox's rules (SANDBOX_EGRESS_ALLOW)";
    let json = format!(r#"{{"code":"egress_denied","message":"{message}","retryable":false}}"#);
    let length = json.len();
    let body = if is_head { "" } else { json.as_str() };
    format!(
        "HTTP/1.1 {status} {message}\r\ncontent-type: application/json\r\n\
         proxy-status: agent-sandbox; error={word}; details=\"egress_denied\"\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}
