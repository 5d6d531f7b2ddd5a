//! Tunnels to programs inside.

use std::path::Path;

use futures::{SinkExt as _, StreamExt as _};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use sandbox_process::link::link;
use sandbox_process::upgrade::{Stream, UpgradeError, upgrade};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::limits::{TUNNEL_MESSAGE_BYTES_MAX, TUNNELS_MAX};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::harness::{PATIENCE, RESERVED_PORT, Sidecar, TOKEN, send};
use crate::pty::connect;

/// A bare tunnel, or status and code of its refusal.
async fn tunnel(socket: &Path, port: &str) -> Result<Stream, (u16, String)> {
    let (mut sender, _driver) = link(UnixStream::connect(socket).await.unwrap()).await.unwrap();
    let request = Request::get(format!("/tcp/{port}"))
        .header("host", "sidecar")
        .header("authorization", format!("Bearer {TOKEN}"))
        .body(Empty::<Bytes>::new());
    match timeout(PATIENCE, upgrade(&mut sender, request.unwrap(), "tcp")).await.expect("no answer") {
        Ok(stream) => Ok(stream),
        Err(UpgradeError::Refused(response)) => {
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            Err((status, serde_json::from_slice::<ErrorBody>(&body).unwrap().code))
        }
        Err(UpgradeError::Broken(error)) => panic!("{error}"),
    }
}

async fn messages(socket: &Path, port: u16) -> WebSocketStream<UnixStream> {
    connect(socket, &format!("/tcp/{port}")).await.unwrap()
}

/// A program that answers each connection with what it was sent, once that has ended.
async fn answering(address: &str) -> u16 {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut sent = Vec::new();
                stream.read_to_end(&mut sent).await.unwrap();
                stream.write_all(&sent).await.unwrap();
            });
        }
    });
    port
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

#[tokio::test]
async fn bytes_pass_both_ways_and_each_side_ends_its_own() {
    let sidecar = Sidecar::start();
    for address in ["127.0.0.1", "::1"] {
        let port = answering(address).await;
        let mut stream = tunnel(&sidecar.socket, &port.to_string()).await.unwrap();
        let sent = pattern(1_000_000);
        stream.write_all(&sent).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut got = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut got)).await.unwrap().unwrap();
        assert!(got == sent, "{address}");
    }
}

#[tokio::test]
async fn a_port_that_ends_first_still_takes_what_comes() {
    let sidecar = Sidecar::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = tunnel(&sidecar.socket, &port.to_string()).await.unwrap();
    let (mut program, _) = listener.accept().await.unwrap();
    program.write_all(b"bye").await.unwrap();
    program.shutdown().await.unwrap();
    let mut got = String::new();
    timeout(PATIENCE, client.read_to_string(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, "bye");
    client.write_all(b"still").await.unwrap();
    client.shutdown().await.unwrap();
    timeout(PATIENCE, program.read_to_string(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, "byestill");
}

#[tokio::test]
async fn as_a_websocket_an_empty_message_ends_the_clients_direction() {
    let sidecar = Sidecar::start();
    let port = answering("127.0.0.1").await;
    let mut socket = messages(&sidecar.socket, port).await;
    let sent = pattern(3 * TUNNEL_MESSAGE_BYTES_MAX / 2);
    for part in sent.chunks(TUNNEL_MESSAGE_BYTES_MAX) {
        socket.send(Message::Binary(Bytes::copy_from_slice(part))).await.unwrap();
    }
    socket.send(Message::Binary(Bytes::new())).await.unwrap();
    let mut got = Vec::new();
    loop {
        match timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap() {
            Message::Binary(bytes) => got.extend_from_slice(&bytes),
            Message::Close(frame) => break assert_eq!(u16::from(frame.unwrap().code), 1000),
            other => panic!("{other}"),
        }
    }
    assert!(got == sent);
}

#[tokio::test]
async fn what_a_client_sent_before_it_closed_arrives() {
    let sidecar = Sidecar::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut socket = messages(&sidecar.socket, port).await;
    let (mut program, _) = listener.accept().await.unwrap();
    socket.send(Message::Binary(Bytes::from_static(b"last words"))).await.unwrap();
    socket.close(None).await.unwrap();
    let mut got = String::new();
    timeout(PATIENCE, program.read_to_string(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, "last words");
}

#[tokio::test]
async fn a_tunnel_of_messages_takes_no_text_and_no_message_beyond_its_bound() {
    let sidecar = Sidecar::start();
    let port = answering("127.0.0.1").await;
    let long = Message::Binary(vec![0; TUNNEL_MESSAGE_BYTES_MAX + 1].into());
    for (message, expected) in [(Message::text("text"), 1003), (long, 1009)] {
        let mut socket = messages(&sidecar.socket, port).await;
        socket.send(message).await.unwrap();
        let Message::Close(frame) = timeout(PATIENCE, socket.next()).await.unwrap().unwrap().unwrap() else {
            panic!("not closed")
        };
        assert_eq!(u16::from(frame.unwrap().code), expected);
    }
}

#[tokio::test]
async fn a_port_that_cannot_be_reached_is_told_before_the_upgrade() {
    let sidecar = Sidecar::start();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let refusal = async |port: &str| tunnel(&sidecar.socket, port).await.err().unwrap();
    assert_eq!(refusal(&closed.to_string()).await, (502, "port_closed".to_owned()));
    for port in [0, RESERVED_PORT] {
        assert_eq!(refusal(&port.to_string()).await, (403, "port_reserved".to_owned()));
    }
    for port in ["65536", "-1", "http"] {
        assert_eq!(refusal(port).await, (400, "bad_request".to_owned()), "{port}");
    }
    let bearer = format!("Bearer {TOKEN}");
    let plain = send(&sidecar.socket, Method::GET, "/tcp/80", &[("authorization", &bearer)], Vec::new()).await;
    assert_eq!(plain.0, StatusCode::UPGRADE_REQUIRED);
}

#[tokio::test]
async fn as_many_tunnels_are_open_as_may_and_all_end_with_the_sidecar() {
    let sidecar = Sidecar::start();
    let port = answering("127.0.0.1").await.to_string();
    let mut open = Vec::new();
    for _ in 0..TUNNELS_MAX {
        open.push(tunnel(&sidecar.socket, &port).await.unwrap());
    }
    assert_eq!(tunnel(&sidecar.socket, &port).await.err(), Some((429, "busy".to_owned())));
    let mut freed = open.pop().unwrap();
    freed.shutdown().await.unwrap();
    assert_eq!(freed.read(&mut [0]).await.unwrap(), 0);
    let again = async {
        loop {
            if let Ok(stream) = tunnel(&sidecar.socket, &port).await {
                break stream;
            }
        }
    };
    open.push(timeout(PATIENCE, again).await.unwrap());
    sidecar.stop.cancel();
    timeout(PATIENCE, sidecar.streams.stop()).await.expect("did not stop");
    for mut stream in open {
        assert!(matches!(timeout(PATIENCE, stream.read(&mut [0])).await.unwrap(), Ok(0) | Err(_)));
    }
}

/// A figure, not a promise: `cargo test --release -p sandbox-sidecar --test it -- --ignored --nocapture speed`.
#[tokio::test]
#[ignore = "measures"]
async fn the_speed_of_a_tunnel_in_each_direction() {
    const BYTES: usize = 1 << 30;
    let sidecar = Sidecar::start();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let (mut client, chunk) = (tunnel(&sidecar.socket, &port).await.unwrap(), vec![7; 256 * 1024]);
    let (mut program, _) = listener.accept().await.unwrap();
    for up in [true, false] {
        let begun = Instant::now();
        let (mut from, mut to): (Box<dyn tokio::io::AsyncRead + Unpin>, Box<dyn tokio::io::AsyncWrite + Unpin>) = if up
        {
            (Box::new(&mut program), Box::new(&mut client))
        } else {
            (Box::new(&mut client), Box::new(&mut program))
        };
        let write = async {
            for _ in 0..BYTES / chunk.len() {
                to.write_all(&chunk).await.unwrap();
            }
            to.flush().await.unwrap();
        };
        let read = async {
            let (mut left, mut buffer) = (BYTES, vec![0; 256 * 1024]);
            while left > 0 {
                left -= from.read(&mut buffer).await.unwrap();
            }
        };
        tokio::join!(write, read);
        let speed = (BYTES >> 20) as f64 / begun.elapsed().as_secs_f64();
        eprintln!("{}: {speed:.0} MiB/s", if up { "up" } else { "down" });
    }
}
