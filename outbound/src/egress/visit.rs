//! The way out for whoever acts in a sandbox's name from outside it: a tunnel that is asked for as the sandbox asks.

use std::io;

use bytes::Bytes;
use http::uri::Authority;
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use sandbox_protocol::http::ErrorBody;
use tokio::net::UnixStream;

use crate::limits::HEADER_BYTES_MAX;

/// The connection. It ends with the sandbox's egress.
pub type Visited = TokioIo<Upgraded>;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// The sandbox has no egress, or no more.
    #[error("the sandbox has no way out now")]
    Closed,
    /// The sandbox, or all of them, have as many connections as may be.
    #[error("too many connections at a time")]
    Busy,
    /// The rules, the policy or the guard of addresses forbid it.
    #[error("{0}")]
    Refused(String),
    /// Nobody answers there.
    #[error("{0}")]
    Unreachable(String),
    /// The tunnel broke off before it stood.
    #[error("the way out broke off")]
    Broken(#[source] io::Error),
}

/// Asks for a tunnel at the other end of `stream`.
pub(super) async fn tunnel(stream: UnixStream, host: &str, port: u16) -> Result<Visited, VisitError> {
    let request = request(host, port).ok_or_else(|| VisitError::Refused("not a host and a port".to_owned()))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a tunnel broke off");
        }
    });
    let response = sender.send_request(request).await.map_err(broken)?;
    let status = response.status();
    if status.is_success() {
        return hyper::upgrade::on(response).await.map(TokioIo::new).map_err(broken);
    }
    let body = Limited::new(response.into_body(), HEADER_BYTES_MAX).collect().await.map(|body| body.to_bytes());
    let told = body.ok().and_then(|body| serde_json::from_slice::<ErrorBody>(&body).ok());
    let message = told.map_or_else(|| status.to_string(), |told| told.message);
    Err(match status {
        StatusCode::SERVICE_UNAVAILABLE => VisitError::Busy,
        status if status.is_client_error() => VisitError::Refused(message),
        _ => VisitError::Unreachable(message),
    })
}

/// Addresses of version 6 have brackets in an authority, and none where SSH names a host.
fn request(host: &str, port: u16) -> Option<Request<Empty<Bytes>>> {
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let authority: Authority = format!("{host}:{port}").parse().ok()?;
    let uri = Uri::builder().authority(authority).build().ok()?;
    Request::builder().method(Method::CONNECT).uri(uri).body(Empty::new()).ok()
}

fn broken(error: hyper::Error) -> VisitError {
    VisitError::Broken(io::Error::other(error))
}
