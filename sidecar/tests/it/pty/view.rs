//! A viewer of a terminal, as a client would write one.

use std::path::Path;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use hyper::{Method, StatusCode};
use sandbox_protocol::exec::BEARER;
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::pty::{PtyBody, PtyList, ServerMessage, ViewerMessage};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::harness::{PATIENCE, TOKEN, send};

/// What a viewer is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Bytes(Vec<u8>),
    Message(ServerMessage),
    Closed(u16),
}

pub(crate) struct View {
    socket: WebSocketStream<UnixStream>,
    pub(crate) id: String,
    /// Of the first byte of `shown`.
    pub(crate) start: u64,
    pub(crate) shown: Vec<u8>,
    pub(crate) writer: bool,
    pub(crate) size: (u16, u16),
}

pub(crate) async fn connect(socket: &Path, path: &str) -> Result<WebSocketStream<UnixStream>, (u16, String)> {
    let mut request = format!("ws://sidecar{path}").into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("{BEARER} {TOKEN}").parse().unwrap());
    let stream = UnixStream::connect(socket).await.unwrap();
    let connected = timeout(PATIENCE, tokio_tungstenite::client_async(request, stream)).await.expect("no answer");
    match connected {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(response)) => {
            let error: ErrorBody = serde_json::from_slice(response.body().as_deref().unwrap_or_default()).unwrap();
            Err((response.status().as_u16(), error.code))
        }
        Err(error) => panic!("{error}"),
    }
}

impl View {
    /// Of a new terminal that runs `command`.
    pub(crate) async fn command(socket: &Path, command: &str) -> Self {
        Self::open(socket, &format!("command={}", escaped(command))).await
    }

    /// Of a new terminal.
    pub(crate) async fn open(socket: &Path, query: &str) -> Self {
        Self::at(socket, &format!("/pty?{query}")).await.unwrap()
    }

    /// Of an old one.
    pub(crate) async fn attach(socket: &Path, id: &str, query: &str) -> Self {
        Self::at(socket, &format!("/pty/{id}?{query}")).await.unwrap()
    }

    pub(crate) async fn at(socket: &Path, path: &str) -> Result<Self, (u16, String)> {
        let socket = connect(socket, path).await?;
        let mut view = Self { socket, id: String::new(), start: 0, shown: Vec::new(), writer: false, size: (0, 0) };
        let Told::Message(ServerMessage::Hello { id, cols, rows, offset, writer }) = view.next().await else {
            panic!("no hello")
        };
        (view.id, view.start, view.writer, view.size) = (id, offset, writer, (cols, rows));
        Ok(view)
    }

    /// Offset of the next byte.
    pub(crate) fn offset(&self) -> u64 {
        self.start + self.shown.len() as u64
    }

    pub(crate) async fn next(&mut self) -> Told {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let came = timeout_at(deadline, self.socket.next()).await;
            let Ok(came) = came else { panic!("nothing came, after {:?}", self.text()) };
            match came.expect("ended without a close").unwrap() {
                Message::Binary(bytes) => {
                    self.shown.extend_from_slice(&bytes);
                    return Told::Bytes(bytes.to_vec());
                }
                Message::Text(text) => return Told::Message(serde_json::from_str(&text).unwrap()),
                Message::Close(frame) => return Told::Closed(frame.unwrap().code.into()),
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    /// The next message that is not bytes.
    pub(crate) async fn message(&mut self) -> Told {
        loop {
            match self.next().await {
                Told::Bytes(_) => {}
                told => return told,
            }
        }
    }

    /// Reads bytes until what was shown holds `text`.
    pub(crate) async fn until(&mut self, text: &str) {
        while !self.text().contains(text) {
            let Told::Bytes(_) = self.next().await else { panic!("no {text:?} in {:?}", self.text()) };
        }
    }

    /// Reads bytes until so many were shown.
    pub(crate) async fn until_offset(&mut self, offset: u64) {
        while self.offset() < offset {
            let Told::Bytes(_) = self.next().await else { panic!("not only bytes") };
        }
    }

    /// Reads to the end: how the shell ended, and the close code.
    pub(crate) async fn end(&mut self) -> ((Option<i32>, Option<i32>), u16) {
        let mut exit = None;
        loop {
            match self.next().await {
                Told::Message(ServerMessage::Exit { exit_code, signal }) => exit = Some((exit_code, signal)),
                Told::Closed(code) => return (exit.expect("closed without an exit"), code),
                Told::Bytes(_) | Told::Message(_) => assert!(exit.is_none(), "something after the exit"),
            }
        }
    }

    /// What was shown, as far as it is text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    pub(crate) async fn type_in(&mut self, bytes: impl AsRef<[u8]>) {
        self.socket.send(Message::Binary(bytes.as_ref().to_vec().into())).await.unwrap();
    }

    pub(crate) async fn say(&mut self, message: ViewerMessage) {
        self.say_text(&serde_json::to_string(&message).unwrap()).await;
    }

    pub(crate) async fn say_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// Waits until nothing has come for a moment.
    pub(crate) async fn quiet(&mut self) {
        while let Ok(Told::Bytes(_)) = timeout(Duration::from_millis(300), self.next()).await {}
    }
}

pub(crate) async fn list(socket: &Path) -> Vec<PtyBody> {
    let bearer = format!("{BEARER} {TOKEN}");
    let (status, bytes) = send(socket, Method::GET, "/ptys", &[("authorization", &bearer)], Vec::new()).await;
    assert_eq!(status, StatusCode::OK);
    serde_json::from_slice::<PtyList>(&bytes).unwrap().ptys
}

pub(crate) async fn delete(socket: &Path, id: &str) -> StatusCode {
    let bearer = format!("{BEARER} {TOKEN}");
    send(socket, Method::DELETE, &format!("/pty/{id}"), &[("authorization", &bearer)], Vec::new()).await.0
}

/// For a query.
pub(crate) fn escaped(text: &str) -> String {
    let byte =
        |byte: u8| if byte.is_ascii_alphanumeric() { (byte as char).to_string() } else { format!("%{byte:02x}") };
    text.bytes().map(byte).collect()
}
