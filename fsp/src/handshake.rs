//! A sandbox as it is reached, and the handshake by which a stream to it becomes a WebSocket.

use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Request, Response};
use sandbox_protocol::fsp::{EXTENSIONS_HEADER, Extensions, VERSION, VERSION_HEADER};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::limits::FSP_CUT_BYTES_MAX;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config, tungstenite};

use crate::backoff;
use crate::dial::{Dial, Link};
use crate::error::FspError;
use crate::limits::{CONNECT_TIMEOUT_MS, MESSAGE_BYTES_MAX, RETRIES_MAX, WRITE_BUFFER_BYTES};
use crate::token::Token;

/// The client's end of an open WebSocket.
pub(crate) type Socket = WebSocketStream<Link>;

/// A sandbox: where it is, by what key, and what is wanted of it beyond version 1.
#[derive(Debug, Clone)]
pub struct Endpoint {
    dial: Arc<dyn Dial>,
    token: Token,
    wanted: Extensions,
}

impl Endpoint {
    /// The sandbox that `dial` leads to. It may grant less than is `wanted`.
    pub fn new(dial: impl Dial + 'static, token: Token, wanted: Extensions) -> Self {
        Self { dial: Arc::new(dial), token, wanted }
    }

    /// Where it is.
    pub(crate) fn uri(&self) -> String {
        self.dial.uri().to_string()
    }

    /// One attempt.
    pub(crate) async fn attempt(&self) -> Result<(Socket, Extensions), FspError> {
        let late = || FspError::ConnectTimeout { uri: self.uri(), limit_ms: CONNECT_TIMEOUT_MS };
        let limit = Duration::from_millis(CONNECT_TIMEOUT_MS);
        tokio::time::timeout(limit, self.shake_hands()).await.unwrap_or_else(|_| Err(late()))
    }

    /// As many attempts as it takes, from now on at the pace of [`backoff`].
    pub(crate) async fn again(&self, mut last: FspError) -> Result<(Socket, Extensions), FspError> {
        for wait in backoff::waits() {
            if !last.retryable() {
                return Err(last);
            }
            tokio::time::sleep(wait).await;
            match self.attempt().await {
                Ok(open) => return Ok(open),
                Err(error) => last = error,
            }
        }
        Err(FspError::Unavailable { attempts: RETRIES_MAX, source: Box::new(last) })
    }

    async fn shake_hands(&self) -> Result<(Socket, Extensions), FspError> {
        let request = self.request()?;
        let link = self
            .dial
            .dial()
            .await
            .map_err(|source| FspError::Unreachable { uri: self.uri(), source: Arc::new(source) })?;
        match client_async_with_config(request, link, Some(bounds())).await {
            Ok((socket, response)) => Ok((socket, granted(&response, &self.wanted))),
            Err(tungstenite::Error::Http(response)) => Err(refused(&response)),
            Err(tungstenite::Error::Io(source)) => {
                Err(FspError::Unreachable { uri: self.uri(), source: Arc::new(source) })
            }
            Err(source) => Err(FspError::Handshake { uri: self.uri(), source: Arc::new(source) }),
        }
    }

    fn request(&self) -> Result<Request<()>, FspError> {
        let bad = |source| FspError::Handshake { uri: self.uri(), source: Arc::new(source) };
        let mut request = self.dial.uri().into_client_request().map_err(bad)?;
        let mut key = HeaderValue::from_str(&format!("Bearer {}", self.token.get()))
            .map_err(|error| bad(tungstenite::Error::HttpFormat(error.into())))?;
        key.set_sensitive(true);
        let headers = request.headers_mut();
        headers.insert(AUTHORIZATION, key);
        headers.insert(HeaderName::from_static(VERSION_HEADER), HeaderValue::from(VERSION));
        if let Ok(wanted) = HeaderValue::from_str(&self.wanted.to_header())
            && !self.wanted.is_empty()
        {
            headers.insert(HeaderName::from_static(EXTENSIONS_HEADER), wanted);
        }
        Ok(request)
    }
}

fn bounds() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(FSP_CUT_BYTES_MAX))
        .max_frame_size(Some(FSP_CUT_BYTES_MAX))
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BUFFER_BYTES + FSP_CUT_BYTES_MAX)
}

/// What was granted of what was wanted; a sandbox that grants more is not taken at its word.
fn granted<B>(response: &Response<B>, wanted: &Extensions) -> Extensions {
    let header = response.headers().get(EXTENSIONS_HEADER).and_then(|value| value.to_str().ok());
    let named = Extensions::from_header(header.unwrap_or_default());
    sandbox_protocol::fsp::Extension::ALL.iter().copied().filter(|one| named.has(*one) && wanted.has(*one)).collect()
}

fn refused(response: &Response<Option<Vec<u8>>>) -> FspError {
    let status = response.status();
    let body = response.body().as_deref().and_then(|body| serde_json::from_slice::<ErrorBody>(body).ok());
    let mut body = body.unwrap_or_else(|| ErrorBody {
        code: "refused".to_owned(),
        message: status.canonical_reason().unwrap_or("no reason given").to_owned(),
        retryable: matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504),
    });
    body.message.truncate(body.message.floor_char_boundary(MESSAGE_BYTES_MAX));
    FspError::Refused { status: status.as_u16(), body }
}
