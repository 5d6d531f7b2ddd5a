//! The client's end of one HTTP/1 connection, over whatever carries it.

use std::error::Error;

use hyper::body::Body;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

/// Drives a connection until this is dropped. An upgraded connection has left it behind.
pub type Driver = AbortOnDropHandle<()>;

/// Opens HTTP/1 on `stream`, which may be upgraded.
///
/// # Errors
/// The stream broke.
pub async fn link<S, B>(stream: S) -> Result<(SendRequest<B>, Driver), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    let driven = tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(error = &error as &dyn Error, "a connection broke off");
        }
    });
    Ok((sender, AbortOnDropHandle::new(driven)))
}
