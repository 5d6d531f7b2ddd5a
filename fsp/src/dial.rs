//! How a stream of bytes to a sandbox is opened.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use http::Uri;
use sandbox_protocol::fsp::ROUTE;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// Bytes both ways.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// An open stream.
pub type Link = Box<dyn Duplex>;

/// Opens streams to one sandbox.
#[async_trait]
pub trait Dial: Debug + Send + Sync {
    /// Opens one.
    ///
    /// # Errors
    /// Nobody is there.
    async fn dial(&self) -> io::Result<Link>;

    /// What the WebSocket's request asks for: `ws://` or `wss://`, host and path.
    fn uri(&self) -> Uri;
}

/// A sandbox behind a Unix socket of this host.
#[derive(Debug, Clone)]
pub struct UnixSocket {
    path: PathBuf,
}

impl UnixSocket {
    /// The socket at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

#[async_trait]
impl Dial for UnixSocket {
    async fn dial(&self) -> io::Result<Link> {
        Ok(Box::new(UnixStream::connect(&self.path).await?))
    }

    fn uri(&self) -> Uri {
        let parts = Uri::builder().scheme("ws").authority("sandbox").path_and_query(ROUTE);
        parts.build().unwrap_or_default()
    }
}
