//! A terminal in a sandbox, which outlives the connections over which it is seen.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::HeaderValue;
use http::header::AUTHORIZATION;
use sandbox_fsp::{Dial as _, Link};
use sandbox_protocol::limits::PTY_CHUNK_BYTES_MAX;
use sandbox_protocol::pty::{AttachQuery, OpenQuery, ROUTE, ServerMessage, ViewerMessage, WriterWish};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::{Inside, target};
use crate::api::ApiError;
use crate::limits::{
    OPEN_WITHIN, RETRY_PAUSE_MAX, RETRY_PAUSE_MIN, TERMINAL_ACK_BYTES, TERMINAL_SILENCE, TERMINAL_TRIES_MAX,
};

/// A terminal, whose writer this is. When its connection breaks it is opened again, and what was shown meanwhile follows.
pub struct Terminal {
    inside: Inside,
    socket: WebSocketStream<Link>,
    id: String,
    /// Of the next byte.
    offset: u64,
    /// Up to which the sidecar was told.
    acked: u64,
    size: (u16, u16),
    heard: Instant,
    asked: bool,
}

/// What a terminal tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Show these.
    Bytes(Bytes),
    /// So many bytes were shown while nobody saw it, and are lost.
    Gap(u64),
    /// Somebody else types now, or this viewer again.
    Writer(bool),
    /// It has ended: by an exit code, or a signal.
    Exit {
        /// The shell's exit code.
        exit_code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
    /// The connection broke and is there again. What was typed meanwhile is lost.
    Back,
}

impl fmt::Debug for Terminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inside, id, offset, .. } = self;
        f.debug_struct("Terminal")
            .field("inside", inside)
            .field("id", id)
            .field("offset", offset)
            .finish_non_exhaustive()
    }
}

impl Inside {
    /// A new terminal.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn open_terminal(&self, query: &OpenQuery) -> Result<Terminal, ApiError> {
        let (socket, id, offset) = self.view(&target(ROUTE, query)).await?;
        Ok(Terminal::new(self.clone(), (socket, id, offset), (query.cols, query.rows)))
    }

    /// A terminal that was opened before, with what it has shown and still keeps.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn attach_terminal(&self, id: &str, size: (u16, u16)) -> Result<Terminal, ApiError> {
        let viewed = self.view(&again(id, 0)).await?;
        let mut terminal = Terminal::new(self.clone(), viewed, size);
        terminal.resize(size).await;
        Ok(terminal)
    }

    /// Views a terminal: its socket, its id, and the offset of the next byte.
    async fn view(&self, route: &str) -> Result<(WebSocketStream<Link>, String, u64), ApiError> {
        let web = self.web(route)?;
        let mut request = web.uri().into_client_request().map_err(|error| self.broken(error))?;
        let bearer = HeaderValue::from_str(&self.bearer()).map_err(|error| self.broken(error))?;
        request.headers_mut().insert(AUTHORIZATION, bearer);
        let opened = async {
            let stream = web.open().await.map_err(|error| self.broken(error))?;
            let config = WebSocketConfig::default().max_message_size(Some(2 * PTY_CHUNK_BYTES_MAX));
            let shaken = client_async_with_config(request, stream, Some(config)).await;
            let (mut socket, _) = shaken.map_err(|error| self.refused(error))?;
            loop {
                match socket.next().await {
                    Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
                        Ok(ServerMessage::Hello { id, offset, .. }) => return Ok((socket, id, offset)),
                        Ok(_) | Err(_) => return Err(self.session.garbled("a terminal that does not say hello")),
                    },
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(self.broken(error)),
                    None => return Err(self.broken("closed before it was open")),
                }
            }
        };
        timeout(OPEN_WITHIN, opened).await.unwrap_or_else(|late| Err(self.broken(late)))
    }

    fn refused(&self, error: Error) -> ApiError {
        let Error::Http(response) = error else { return self.broken(error) };
        let said = response.body().as_deref().and_then(|body| serde_json::from_slice(body).ok());
        match said {
            Some(error) => ApiError::Refused { status: response.status().as_u16(), error },
            None => self.broken(format!("status {}", response.status())),
        }
    }
}

/// The route to a terminal that is known, behind what was seen of it.
fn again(id: &str, since: u64) -> String {
    target(&format!("{ROUTE}/{id}"), &AttachQuery { since: Some(since), writer: WriterWish::Take })
}

impl Terminal {
    fn new(inside: Inside, (socket, id, offset): (WebSocketStream<Link>, String, u64), size: (u16, u16)) -> Self {
        Self { inside, socket, id, offset, acked: offset, size, heard: Instant::now(), asked: false }
    }

    /// Its id, for other viewers and for coming back.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What it tells next. Nothing is lost if this is not awaited to its end; what is under way to being opened again is
    /// begun anew.
    ///
    /// # Errors
    /// [`ApiError`]: the way to it broke, and did not come back.
    pub async fn next(&mut self) -> Result<Told, ApiError> {
        loop {
            let silent = self.heard + if self.asked { TERMINAL_SILENCE } else { TERMINAL_SILENCE / 2 };
            let heard = tokio::select! {
                message = self.socket.next() => message,
                () = sleep_until(silent) => {
                    if self.asked {
                        return self.come_back(self.inside.broken("silence")).await;
                    }
                    self.asked = true;
                    self.say(Message::Ping(Bytes::new())).await;
                    continue;
                }
            };
            (self.heard, self.asked) = (Instant::now(), false);
            match heard {
                Some(Ok(Message::Binary(bytes))) => return Ok(self.show(bytes).await),
                Some(Ok(Message::Text(text))) => {
                    if let Some(told) = self.tell(&text)? {
                        return Ok(told);
                    }
                }
                Some(Ok(Message::Close(_))) | None => return self.come_back(self.inside.broken("closed")).await,
                Some(Ok(_)) => {}
                Some(Err(error)) => return self.come_back(self.inside.broken(error)).await,
            }
        }
    }

    /// Types bytes. What cannot be sent is lost; [`next`](Self::next) tells of that.
    pub async fn type_in(&mut self, bytes: Bytes) {
        self.say(Message::Binary(bytes)).await;
    }

    /// Gives it another size, columns and rows; also when the connection comes back.
    pub async fn resize(&mut self, size: (u16, u16)) {
        self.size = size;
        let (cols, rows) = size;
        self.say_so(&ViewerMessage::Resize { cols, rows }).await;
    }

    async fn show(&mut self, bytes: Bytes) -> Told {
        self.offset += bytes.len() as u64;
        if self.offset - self.acked >= TERMINAL_ACK_BYTES {
            self.acked = self.offset;
            self.say_so(&ViewerMessage::Ack { offset: self.acked }).await;
        }
        Told::Bytes(bytes)
    }

    fn tell(&mut self, text: &str) -> Result<Option<Told>, ApiError> {
        let garbled = |error: serde_json::Error| self.inside.session.garbled(&error.to_string());
        Ok(match serde_json::from_str(text).map_err(garbled)? {
            ServerMessage::Gap { from, to } => {
                self.offset = to;
                Some(Told::Gap(to.saturating_sub(from)))
            }
            ServerMessage::Writer { yours } => Some(Told::Writer(yours)),
            ServerMessage::Exit { exit_code, signal } => Some(Told::Exit { exit_code, signal }),
            ServerMessage::Hello { .. } | ServerMessage::Resized { .. } | ServerMessage::Refused { .. } => None,
        })
    }

    /// Opens the connection again, behind what was seen.
    async fn come_back(&mut self, mut last: ApiError) -> Result<Told, ApiError> {
        let mut pause = Duration::ZERO;
        for _ in 0..TERMINAL_TRIES_MAX {
            if !last.retryable() {
                break;
            }
            sleep(pause).await;
            pause = (pause * 2).clamp(RETRY_PAUSE_MIN, RETRY_PAUSE_MAX);
            match self.inside.view(&again(&self.id, self.offset)).await {
                Ok((socket, _, offset)) => {
                    (self.socket, self.offset, self.acked) = (socket, offset, offset);
                    (self.heard, self.asked) = (Instant::now(), false);
                    self.resize(self.size).await;
                    return Ok(Told::Back);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn say_so(&mut self, message: &ViewerMessage) {
        // Every message of a viewer can be written.
        let text = serde_json::to_string(message).unwrap_or_default();
        self.say(Message::text(text)).await;
    }

    /// A socket that breaks here is heard of where it is read.
    async fn say(&mut self, message: Message) {
        if let Err(error) = self.socket.send(message).await {
            tracing::debug!(%error, "a terminal's connection broke");
        }
    }
}
