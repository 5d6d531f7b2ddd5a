//! Programs as they run inside a sandbox, and what they speak to: a TCP port before the door, servers with certificates.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::Node;
use super::origin::{origin, serve_file};

/// Programs of script languages take seconds to begin on a busy machine.
const PROGRAM_PATIENCE: Duration = Duration::from_secs(120);

/// The port that programs in a sandbox find their proxy at: what the sidecar does there.
pub(crate) async fn port(node: &Node) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, socket) = (listener.local_addr().unwrap(), node.socket.clone());
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = UnixStream::connect(&socket).await.unwrap();
            tokio::spawn(async move { drop(tokio::io::copy_bidirectional(&mut near, &mut far).await) });
        }
    });
    address
}

/// Runs `program` with a proxy for everything; its output.
pub(crate) async fn run(proxy: SocketAddr, program: &str, arguments: &[&str]) -> Output {
    let url = format!("http://{proxy}");
    let mut command = Command::new(program);
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "npm_config_proxy", "npm_config_https_proxy"]
    {
        command.env(name, &url);
    }
    // What a machine may have set for itself: exceptions from the proxy, authorities in place of a test's own.
    for name in ["no_proxy", "NO_PROXY", "npm_config_noproxy", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"]
    {
        command.env_remove(name);
    }
    let running = command.args(arguments).kill_on_drop(true).stdin(std::process::Stdio::null()).output();
    let output = tokio::time::timeout(PROGRAM_PATIENCE, running).await.expect("the program ends");
    output.unwrap_or_else(|error| panic!("these tests need `{program}`: {error}"))
}

/// What it printed, which must have been to success.
#[track_caller]
pub(crate) fn printed(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// A certificate authority of a test's own.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "test authority");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub(crate) fn root(&self) -> reqwest::Certificate {
        reqwest::Certificate::from_pem(self.pem.as_bytes()).unwrap()
    }

    /// A file with the authority's certificate, for programs.
    pub(crate) fn file(&self, dir: &Path) -> PathBuf {
        let path = dir.join("authority.pem");
        std::fs::write(&path, &self.pem).unwrap();
        path
    }

    /// A server of `files` by TLS as `name`.
    pub(crate) async fn serve(&self, name: &str, files: Arc<HashMap<String, Vec<u8>>>) -> SocketAddr {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        origin(move |stream| {
            let (acceptor, files) = (acceptor.clone(), Arc::clone(&files));
            async move {
                // Who does not trust us hangs up during the handshake.
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve_file(stream, files).await;
                }
            }
        })
        .await
    }
}
