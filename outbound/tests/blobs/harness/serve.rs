//! An HTTP server on a port of its own, with or without TLS, that ends with its handle.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// A certificate of nobody's.
pub(crate) struct Identity {
    pub(crate) pem: Vec<u8>,
    acceptor: TlsAcceptor,
}

impl Identity {
    pub(crate) fn of(names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        Self { pem: cert.pem().into_bytes(), acceptor: TlsAcceptor::from(Arc::new(config)) }
    }
}

/// Serves until the handle is dropped.
pub(crate) async fn serve<S, B>(identity: Option<&Identity>, service: S) -> Server
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = identity.map(|identity| identity.acceptor.clone());
    let accepting = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, service) = (acceptor.clone(), service.clone());
            // What becomes of a connection is the client's to tell.
            connections.spawn(async move {
                match acceptor {
                    None => http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok(),
                    Some(acceptor) => {
                        let stream = acceptor.accept(stream).await.ok()?;
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok()
                    }
                }
            });
        }
    });
    Server { address, accepting }
}
