//! Servers of the outside, on the loopback.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A server that hands every connection to `serve`.
pub(crate) async fn origin<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Answers each connection's first request with `answer`; the requests' bytes come out of the channel.
pub(crate) async fn answering(answer: &'static str) -> (SocketAddr, mpsc::Receiver<String>) {
    let (requests, received) = mpsc::channel(16);
    let address = origin(move |mut stream| {
        let requests = requests.clone();
        async move {
            let request = request(&mut stream).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            requests.send(request).await.unwrap();
        }
    })
    .await;
    (address, received)
}

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-from: origin\r\n\r\nhello";

/// Up to and with the empty line.
pub(crate) async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => bytes.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// A head, and the body that it announces.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let head = head(stream).await;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.unwrap();
    let mut text = head + &String::from_utf8(body).unwrap();
    while text.contains("transfer-encoding: chunked") && !text.ends_with("0\r\n\r\n") {
        text.push(char::from(stream.read_u8().await.unwrap()));
    }
    text
}

/// One request for one of some files, by path without query; 404 for others.
pub(crate) async fn serve_file(mut stream: impl AsyncRead + AsyncWrite + Unpin, files: Arc<HashMap<String, Vec<u8>>>) {
    let asked = head(&mut stream).await;
    let path = asked.split([' ', '?']).nth(1).unwrap_or_default();
    let (status, body) = files.get(path).map_or(("404 Not Found", &b""[..]), |body| ("200 OK", body.as_slice()));
    let kind = if path.ends_with('/') { "text/html" } else { "text/plain" };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    // A client that has seen enough may be gone.
    if stream.write_all(head.as_bytes()).await.is_ok() && stream.write_all(body).await.is_ok() {
        drop(stream.shutdown().await);
    }
}
