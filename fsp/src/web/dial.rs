//! A sandbox behind a `ws://` or `wss://` address.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use http::Uri;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::dial::{Dial, Link};

/// A sandbox behind an address.
#[derive(Clone)]
pub struct Web {
    uri: Uri,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// Why no sandbox can be at an address.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    /// It is no address of a WebSocket.
    #[error("{0} is not a ws:// or wss:// address")]
    Address(Uri),
    /// The certificates that are trusted here cannot be read.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

impl Web {
    /// The sandbox at `uri`, trusting what this system trusts.
    ///
    /// # Errors
    /// The address is of another kind, or TLS cannot be set up.
    pub fn new(uri: Uri) -> Result<Self, WebError> {
        Self::with(uri, |builder| Ok(builder.with_platform_verifier()?.with_no_client_auth()))
    }

    /// The sandbox at `uri`, trusting `roots` alone.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn trusting(uri: Uri, roots: RootCertStore) -> Result<Self, WebError> {
        Self::with(uri, |builder| Ok(builder.with_root_certificates(roots).with_no_client_auth()))
    }

    fn with(uri: Uri, finish: impl FnOnce(Builder) -> Result<ClientConfig, rustls::Error>) -> Result<Self, WebError> {
        let bad = || WebError::Address(uri.clone());
        let host = uri.host().ok_or_else(bad)?.trim_matches(['[', ']']).to_owned();
        let (tls, port) = match uri.scheme_str() {
            Some("ws") => (None, 80),
            Some("wss") => {
                let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
                let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
                let name = ServerName::try_from(host.clone()).map_err(|_| bad())?;
                (Some((TlsConnector::from(Arc::new(finish(builder)?)), name)), 443)
            }
            _ => return Err(bad()),
        };
        let port = uri.port_u16().unwrap_or(port);
        Ok(Self { uri, host, port, tls })
    }

    /// Opens a stream for HTTP/1, through TLS where the address says so.
    ///
    /// # Errors
    /// Nobody is there, or it is not who it should be.
    pub async fn open(&self) -> io::Result<Link> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some((connector, name)) => Ok(Box::new(connector.connect(name.clone(), stream).await?)),
        }
    }
}

type Builder = rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>;

#[async_trait]
impl Dial for Web {
    async fn dial(&self) -> io::Result<Link> {
        self.open().await
    }

    fn uri(&self) -> Uri {
        self.uri.clone()
    }
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Web({})", self.uri)
    }
}
