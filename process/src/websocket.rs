//! WebSockets on connections that are served here: the handshake, and bounds on what comes through.

use hyper::header::{
    CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
pub use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::limits::WEBSOCKET_WRITE_BYTES_MAX;

/// The server's end of an open WebSocket.
pub type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Bytes that are gathered before they are written.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// A client's wish for a WebSocket, to be answered with [`response`](Self::response) and then [opened](Self::open).
#[derive(Debug)]
pub struct Handshake {
    accept: HeaderValue,
    upgrade: OnUpgrade,
}

/// A request that does not ask for a WebSocket, or for one of another version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ask for a WebSocket of version 13")]
pub struct NotAWebSocket;

impl Handshake {
    /// The wish of `request`.
    ///
    /// # Errors
    /// [`NotAWebSocket`].
    pub fn of<B>(request: &mut Request<B>) -> Result<Self, NotAWebSocket> {
        let headers = request.headers();
        let asks = request.method() == Method::GET
            && names(headers, &CONNECTION, "upgrade")
            && names(headers, &UPGRADE, "websocket")
            && headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
        let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| asks).ok_or(NotAWebSocket)?;
        let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes())).map_err(|_| NotAWebSocket)?;
        Ok(Self { accept, upgrade: hyper::upgrade::on(request) })
    }

    /// The answer by which the connection becomes a WebSocket.
    pub fn response<B: Default>(&self) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(SEC_WEBSOCKET_ACCEPT, self.accept.clone());
        response
    }

    /// The WebSocket, once the answer has been sent. A message of more than `message_bytes_max` ends it.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn open(self, message_bytes_max: usize) -> Result<Socket, hyper::Error> {
        let stream = TokioIo::new(self.upgrade.await?);
        Ok(WebSocketStream::from_raw_socket(stream, Role::Server, Some(bounds(message_bytes_max))).await)
    }
}

/// What either end of a WebSocket of ours holds at a time.
pub fn bounds(message_bytes_max: usize) -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(message_bytes_max))
        .max_frame_size(Some(message_bytes_max))
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WEBSOCKET_WRITE_BYTES_MAX + message_bytes_max)
}

/// Whether a header, a list of words with commas between them, has this one among them.
pub fn names(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|found| found.trim().eq_ignore_ascii_case(word))
}
