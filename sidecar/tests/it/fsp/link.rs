//! A client that says and hears single messages, right ones and wrong ones.

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use sandbox_process::websocket::tungstenite::client::IntoClientRequest as _;
use sandbox_process::websocket::tungstenite::http::StatusCode;
use sandbox_process::websocket::tungstenite::{Error, Message};
use sandbox_protocol::fsp::{EXTENSIONS_HEADER, Frame, VERSION_HEADER};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::harness::{PATIENCE, Sidecar, TOKEN};

pub(super) const TS: &str = "2025-12-27T11:30:00.000Z";

pub(super) struct Link {
    pub(super) socket: WebSocketStream<UnixStream>,
    pub(super) granted: String,
}

/// What came.
#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    Message(Value),
    Frame(Frame),
    Closed(Option<u16>),
}

impl Link {
    /// A connection with these extensions.
    pub(super) async fn open(sidecar: &Sidecar, extensions: &str) -> Self {
        let headers =
            [("authorization", &*format!("Bearer {TOKEN}")), (VERSION_HEADER, "1"), (EXTENSIONS_HEADER, extensions)];
        Self::with(sidecar, &headers).await.unwrap()
    }

    /// A connection asked for with these headers, or the status of the refusal.
    pub(super) async fn with(sidecar: &Sidecar, headers: &[(&'static str, &str)]) -> Result<Self, StatusCode> {
        let stream = UnixStream::connect(&sidecar.socket).await.unwrap();
        let mut request = "ws://sidecar/fsp".into_client_request().unwrap();
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match client_async(request, stream).await {
            Ok((socket, response)) => {
                let granted = response.headers().get(EXTENSIONS_HEADER).map(|names| names.to_str().unwrap().to_owned());
                Ok(Self { socket, granted: granted.unwrap_or_default() })
            }
            Err(Error::Http(response)) => Err(response.status()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(super) async fn say(&mut self, message: &Value) {
        self.send(Message::text(message.to_string())).await;
    }

    pub(super) async fn send(&mut self, message: Message) {
        timeout(PATIENCE, self.socket.send(message)).await.unwrap().unwrap();
    }

    /// The next thing said.
    pub(super) async fn hear(&mut self) -> Heard {
        self.hear_within(PATIENCE).await.expect("silence")
    }

    /// The next thing said within this time.
    pub(super) async fn hear_within(&mut self, bound: Duration) -> Option<Heard> {
        loop {
            match timeout(bound, self.socket.next()).await.ok()? {
                Some(Ok(Message::Text(text))) => return Some(Heard::Message(serde_json::from_str(&text).unwrap())),
                Some(Ok(Message::Binary(bytes))) => return Some(Heard::Frame(Frame::decode(&bytes).unwrap())),
                Some(Ok(Message::Close(frame))) => return Some(Heard::Closed(frame.map(|frame| frame.code.into()))),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Some(Heard::Closed(None)),
            }
        }
    }

    pub(super) async fn message(&mut self) -> Value {
        match self.hear().await {
            Heard::Message(message) => message,
            other => panic!("{other:?}"),
        }
    }

    /// The next error: its id, code, and whether to try again.
    pub(super) async fn error(&mut self) -> (Option<String>, String, bool) {
        let message = self.message().await;
        assert_eq!(message["type"], "error", "{message}");
        let id = message.get("id").map(|id| id.as_str().unwrap().to_owned());
        (id, message["code"].as_str().unwrap().to_owned(), message["retryable"].as_bool().unwrap())
    }

    /// All up to the last message of an execution: what they say in short, and what was written.
    pub(super) async fn story(&mut self, id: &str) -> Story {
        let mut story = Story::default();
        while !story.is_over {
            let message = self.message().await;
            assert_eq!((&message["v"], &message["id"]), (&json!(1), &json!(id)), "{message}");
            story.add(message);
        }
        story
    }
}

/// An execution as a client heard of it.
#[derive(Debug, Default)]
pub(super) struct Story {
    /// Types, with the status where there is one; output of one stream counts once.
    pub(super) steps: Vec<String>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// The `result` or the `error`.
    pub(super) last: Value,
    pub(super) seqs: Vec<u64>,
    is_over: bool,
}

impl Story {
    pub(super) fn add(&mut self, message: Value) {
        let kind = message["type"].as_str().unwrap().to_owned();
        let step = match kind.as_str() {
            "status" => format!("status:{}", message["status"].as_str().unwrap()),
            "stdout" => {
                self.stdout.push_str(message["data"].as_str().unwrap());
                kind.clone()
            }
            "stderr" => {
                self.stderr.push_str(message["data"].as_str().unwrap());
                kind.clone()
            }
            _ => kind.clone(),
        };
        if self.steps.last() != Some(&step) {
            self.steps.push(step);
        }
        self.seqs.extend(message["seq"].as_u64());
        if kind == "result" || kind == "error" {
            self.last = message;
            self.is_over = true;
        }
    }

    pub(super) fn steps(&self) -> Vec<&str> {
        self.steps.iter().map(String::as_str).collect()
    }
}

/// A shell execution that names what it must.
pub(super) fn execute(id: &str, code: &str) -> Value {
    json!({
        "v": 1, "type": "execute", "id": id, "ts": TS, "language": "shell", "code": code,
        "limits": { "timeout_ms": 30_000, "memory_mb": 256 },
    })
}

/// The same with other fields.
pub(super) fn with(mut message: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        message[name] = value.clone();
    }
    message
}

/// A message without anything of its own.
pub(super) fn bare(kind: &str, id: &str) -> Value {
    json!({ "v": 1, "type": kind, "id": id, "ts": TS })
}
