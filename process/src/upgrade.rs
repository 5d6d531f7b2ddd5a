//! Bare bytes on a connection that began as HTTP/1: both ends of an `Upgrade` to a protocol of one's own.
//!
//! WebSockets are in [`crate::websocket`].

use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

use crate::websocket::names;

/// Either end of an upgraded connection. Shutting it down ends this side's bytes; the other's go on.
pub type Stream = TokioIo<Upgraded>;

/// A client's wish for a protocol, to be answered with [`response`](Self::response) and then [opened](Self::open).
#[derive(Debug)]
pub struct Wish {
    protocol: &'static str,
    upgrade: OnUpgrade,
}

impl Wish {
    /// The wish of `request`, where it is for `protocol`.
    pub fn of<B>(request: &mut Request<B>, protocol: &'static str) -> Option<Self> {
        let headers = request.headers();
        let asks = request.method() == Method::GET
            && names(headers, &CONNECTION, "upgrade")
            && names(headers, &UPGRADE, protocol);
        asks.then(|| Self { protocol, upgrade: hyper::upgrade::on(request) })
    }

    /// The answer after which the connection speaks the protocol.
    pub fn response<B: Default>(&self) -> Response<B> {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(self.protocol));
        response
    }

    /// The connection, once the answer has been sent.
    ///
    /// # Errors
    /// The client is gone.
    pub async fn open(self) -> Result<Stream, hyper::Error> {
        Ok(TokioIo::new(self.upgrade.await?))
    }
}

/// Why a connection was not upgraded.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// It broke.
    #[error("the connection broke off")]
    Broken(#[from] hyper::Error),
    /// The server answered with something else.
    #[error("answered {}", .0.status())]
    Refused(Box<Response<Incoming>>),
}

/// Sends `request` with the wish for `protocol`, over a [link](crate::link::link).
///
/// # Errors
/// [`UpgradeError`].
pub async fn upgrade<B>(
    sender: &mut SendRequest<B>,
    request: Request<B>,
    protocol: &'static str,
) -> Result<Stream, UpgradeError>
where
    B: Body + Send + 'static,
{
    upgrade_with_headers(sender, request, protocol).await.map(|(stream, _)| stream)
}

/// As [`upgrade`], with the headers of the answer.
///
/// # Errors
/// [`UpgradeError`].
pub async fn upgrade_with_headers<B>(
    sender: &mut SendRequest<B>,
    mut request: Request<B>,
    protocol: &'static str,
) -> Result<(Stream, HeaderMap), UpgradeError>
where
    B: Body + Send + 'static,
{
    let headers = request.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(protocol));
    let mut response = sender.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS || !names(response.headers(), &UPGRADE, protocol) {
        return Err(UpgradeError::Refused(Box::new(response)));
    }
    let stream = TokioIo::new(hyper::upgrade::on(&mut response).await?);
    Ok((stream, std::mem::take(response.headers_mut())))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;
    use crate::link::link;

    /// Reads to the client's end, then says how much came.
    async fn count(mut request: Request<Incoming>) -> Result<Response<String>, Infallible> {
        let Some(wish) = Wish::of(&mut request, "count") else {
            return Ok(Response::new("ask for count".to_owned()));
        };
        let response = wish.response();
        tokio::spawn(async move {
            let mut stream = wish.open().await.unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            stream.write_all(bytes.len().to_string().as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        Ok(response)
    }

    fn server() -> DuplexStream {
        let (ours, theirs) = duplex(64);
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(theirs), service_fn(count)).with_upgrades());
        ours
    }

    #[tokio::test]
    async fn bytes_flow_both_ways_and_one_side_may_end_before_the_other() {
        let (mut sender, _driver) = link(server()).await.unwrap();
        let mut stream = upgrade(&mut sender, Request::new(String::new()), "count").await.unwrap();
        stream.write_all(&[7; 1_000]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "1000");
    }

    #[tokio::test]
    async fn a_protocol_that_the_server_does_not_speak_is_answered_as_plain_http() {
        let (mut sender, _driver) = link(server()).await.unwrap();
        let refused = upgrade(&mut sender, Request::new(String::new()), "sum").await.unwrap_err();
        assert!(matches!(refused, UpgradeError::Refused(response) if response.status() == StatusCode::OK));
    }
}
