//! The ways to a sandbox: Unix sockets, TCP and TLS.

use std::sync::Arc;

use rcgen::generate_simple_self_signed;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, ServerConfig};
use sandbox_fsp::{Connection, Dial, Endpoint, FspError, Token, UnixSocket, Web, WebError};
use sandbox_protocol::fsp::Extensions;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;

use crate::stage::{Peer, execute};

async fn check(
    dial: impl Dial + 'static,
    accepted: impl Future<Output = impl AsyncRead + AsyncWrite + Unpin>,
) -> Peer<impl AsyncRead + AsyncWrite + Unpin> {
    let endpoint = Endpoint::new(dial, Token::fixed("key"), Extensions::default());
    let served = async {
        let mut peer = Peer::accept(accepted.await).await;
        peer.hear_execute().await;
        peer.say_done("e").await;
        peer
    };
    let asked = async {
        let connection = Connection::open(&endpoint).await.unwrap();
        connection.execute(execute("e")).await.unwrap().outcome(9).await.unwrap()
    };
    let (outcome, peer) = tokio::join!(asked, served);
    assert_eq!(outcome.exit_code, Some(0));
    peer
}

#[tokio::test]
async fn a_sandbox_is_reached_over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let peer = check(UnixSocket::new(path), async { listener.accept().await.unwrap().0 }).await;
    assert_eq!(peer.headers["host"], "sandbox");
}

#[tokio::test]
async fn a_sandbox_is_reached_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("ws://{}/sandboxes/sbx-1-2-0/fsp", listener.local_addr().unwrap()).parse().unwrap();
    check(Web::new(uri).unwrap(), async { listener.accept().await.unwrap().0 }).await;
}

#[tokio::test]
async fn a_sandbox_is_reached_over_tls_by_who_trusts_it() {
    let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri: http::Uri = format!("wss://localhost:{}/fsp", listener.local_addr().unwrap().port()).parse().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let accept = async { acceptor.accept(listener.accept().await.unwrap().0).await.unwrap() };
    check(Web::trusting(uri.clone(), roots).unwrap(), accept).await;
    let stranger = Web::trusting(uri, RootCertStore::empty()).unwrap();
    let (opened, accepted) =
        tokio::join!(stranger.dial(), async { acceptor.accept(listener.accept().await.unwrap().0).await });
    assert!(opened.is_err() && accepted.is_err());
}

#[test]
fn other_addresses_are_refused() {
    for uri in ["https://sandbox.test", "sandbox.test", "/fsp"] {
        assert!(matches!(Web::new(uri.parse().unwrap()), Err(WebError::Address(_))), "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_nobody_listens_is_said_with_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint =
        Endpoint::new(UnixSocket::new(folder.path().join("nobody")), Token::fixed("key"), Extensions::default());
    let Err(FspError::Unavailable { source, .. }) = Connection::open(&endpoint).await else { panic!("opened") };
    assert_eq!(source.to_string(), "cannot reach ws://sandbox/fsp");
}
