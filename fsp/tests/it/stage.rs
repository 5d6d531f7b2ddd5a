//! A sandbox that says what a test tells it to.

use std::io;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderMap, HeaderValue, Uri};
use sandbox_fsp::{Connection, Dial, Endpoint, Link, Token};
use sandbox_protocol::fsp::{
    ClientMessage, EXTENSIONS_HEADER, Ended, Execute, Extension, Extensions, Extra, Frame, Kind, Language, Limits,
    Load, ServerBody, ServerMessage, Status, Stream, decode_client, encode_server,
};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::{Error, Message};

/// Where clients arrive.
pub(crate) struct Stage {
    arrivals: mpsc::Receiver<DuplexStream>,
    door: Door,
}

/// The client's way to a [`Stage`].
#[derive(Debug, Clone)]
pub(crate) struct Door {
    sender: mpsc::Sender<DuplexStream>,
    attempts: Arc<Mutex<Attempts>>,
}

#[derive(Debug, Default)]
struct Attempts {
    at: Vec<Instant>,
    /// How many of the next fail.
    fail: usize,
}

#[async_trait]
impl Dial for Door {
    async fn dial(&self) -> io::Result<Link> {
        {
            let mut attempts = self.attempts.lock().unwrap();
            attempts.at.push(Instant::now());
            if attempts.fail > 0 {
                attempts.fail -= 1;
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
        }
        let (near, far) = tokio::io::duplex(64 * 1024);
        self.sender.send(far).await.map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(Box::new(near))
    }

    fn uri(&self) -> Uri {
        Uri::from_static("ws://stage/fsp")
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        let (sender, arrivals) = mpsc::channel(64);
        Self { arrivals, door: Door { sender, attempts: Arc::default() } }
    }

    pub(crate) fn endpoint(&self, wanted: &[Extension]) -> Endpoint {
        Endpoint::new(self.door.clone(), Token::fixed("key"), wanted.iter().copied().collect())
    }

    /// The next attempts to reach it fail.
    pub(crate) fn fail_next(&self, attempts: usize) {
        self.door.attempts.lock().unwrap().fail = attempts;
    }

    /// When it was tried to be reached.
    pub(crate) fn attempts(&self) -> Vec<Instant> {
        self.door.attempts.lock().unwrap().at.clone()
    }

    /// The next client, which is granted all that it wants.
    pub(crate) async fn accept(&mut self) -> Peer<DuplexStream> {
        Peer::accept(self.arrivals.recv().await.unwrap()).await
    }

    /// The next client is answered with this instead.
    #[allow(clippy::result_large_err)] // the library's own shape
    pub(crate) async fn refuse(&mut self, status: u16, body: &str) {
        let stream = self.arrivals.recv().await.unwrap();
        let refused = |_: &Request, _: Response| {
            let mut response = ErrorResponse::new(Some(body.to_owned()));
            *response.status_mut() = status.try_into().unwrap();
            Err::<Response, _>(response)
        };
        let answered = tokio_tungstenite::accept_hdr_async(stream, refused).await;
        assert!(answered.is_err());
    }

    /// A connection, and its far end.
    pub(crate) async fn connect(&mut self, wanted: &[Extension]) -> (Connection, Peer<DuplexStream>) {
        let endpoint = self.endpoint(wanted);
        let (connection, peer) = tokio::join!(Connection::open(&endpoint), self.accept());
        (connection.unwrap(), peer)
    }
}

/// The sandbox's end of a connection.
pub(crate) struct Peer<S> {
    socket: WebSocketStream<S>,
    pub(crate) headers: HeaderMap,
    granted: Extensions,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    #[allow(clippy::result_large_err)] // the library's own shape
    pub(crate) async fn accept(stream: S) -> Self {
        let mut headers = HeaderMap::new();
        let grant = |request: &Request, mut response: Response| {
            headers = request.headers().clone();
            if let Some(wanted) = request.headers().get(EXTENSIONS_HEADER) {
                response.headers_mut().insert(EXTENSIONS_HEADER, HeaderValue::clone(wanted));
            }
            Ok(response)
        };
        let socket = tokio_tungstenite::accept_hdr_async(stream, grant).await.unwrap();
        let named = headers.get(EXTENSIONS_HEADER).map(|value| value.to_str().unwrap());
        let granted = Extensions::from_header(named.unwrap_or_default());
        Self { socket, headers, granted }
    }

    /// What the client says next; `None` once it is gone.
    pub(crate) async fn hear(&mut self) -> Option<ClientMessage> {
        loop {
            return match self.socket.next().await? {
                Ok(Message::Text(text)) => Some(decode_client(&text, &self.granted).unwrap()),
                Ok(Message::Binary(bytes)) => {
                    let Frame { kind: Kind::Stdin { eof }, id, data, .. } = Frame::decode(&bytes).unwrap() else {
                        panic!("a client sent output");
                    };
                    Some(ClientMessage::Stdin { id, data, eof })
                }
                Ok(Message::Close(_)) | Err(Error::ConnectionClosed | Error::Protocol(_) | Error::Io(_)) => None,
                Ok(_) => continue,
                Err(error) => panic!("{error}"),
            };
        }
    }

    /// What is asked for next, which must be an execution.
    pub(crate) async fn hear_execute(&mut self) -> Execute {
        match self.hear().await {
            Some(ClientMessage::Execute(execute)) => *execute,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn say(&mut self, id: &str, seq: Option<u64>, body: ServerBody) {
        let message = ServerMessage { id: Some(id).filter(|id| !id.is_empty()).map(str::to_owned), seq, body };
        self.say_raw(Message::text(encode_server(&message, 0))).await;
    }

    pub(crate) async fn say_raw(&mut self, message: Message) {
        // The client may be gone, which is what some tests are about.
        self.socket.send(message).await.ok();
    }

    /// Says the end of a successful execution.
    pub(crate) async fn say_done(&mut self, id: &str) {
        self.say(id, None, ServerBody::Status(Status::Completed)).await;
        self.say(id, None, ended()).await;
    }

    /// Answers pings until the client is gone; hears nothing else.
    pub(crate) async fn idle(mut self) {
        while let Some(ClientMessage::Ping) = self.hear().await {
            self.say("", None, ServerBody::Pong(Load::default())).await;
        }
    }
}

pub(crate) fn execute(id: &str) -> Execute {
    Execute {
        id: id.to_owned(),
        language: Language::Shell,
        code: "true".to_owned(),
        stdin: None,
        env: std::collections::BTreeMap::new(),
        limits: Limits::default(),
        extra: Extra::default(),
    }
}

pub(crate) fn ended() -> ServerBody {
    ServerBody::Result(Ended { exit_code: Some(0), signal: None, duration_ms: 1, resource_usage: None })
}

pub(crate) fn stdout(data: impl Into<Bytes>) -> ServerBody {
    ServerBody::Output(Stream::Stdout, data.into())
}
