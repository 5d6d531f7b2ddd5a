//! TLS at the API's own port. The certificate is read anew when its files change, and on SIGHUP.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::interval;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig, crypto::aws_lc_rs};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use tokio_util::net::Listener;
use tokio_util::sync::CancellationToken;

use crate::limits::TLS_LOOK_PAUSE;

/// Where certificate and key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// The chain in PEM, the server's own certificate first.
    pub(crate) certificate: PathBuf,
    /// Its key in PEM.
    pub(crate) key: PathBuf,
}

/// Files that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot read the certificate in TLS_CERT_FILE {file}")]
    Certificate { file: PathBuf, source: pem::Error },
    #[error("cannot read the key in TLS_KEY_FILE {file}")]
    Key { file: PathBuf, source: pem::Error },
    #[error("TLS_CERT_FILE and TLS_KEY_FILE cannot be used together")]
    Pair(#[source] rustls::Error),
    #[error("cannot hear of SIGHUP")]
    Signal(#[source] io::Error),
}

/// A port at which TLS is spoken.
pub(crate) struct TlsListener {
    tcp: TcpListener,
    config: watch::Receiver<Arc<ServerConfig>>,
}

/// A connection. The handshake is a part of reading its first request, so it has no more time than that and holds up nobody.
pub(crate) enum TlsIo {
    Greeting(Box<Accept<TcpStream>>),
    Open(Box<TlsStream<TcpStream>>),
    Broken,
}

impl TlsListener {
    /// TLS through `tcp`. The files are looked after until `stop`.
    pub(crate) fn new(tcp: TcpListener, files: TlsFiles, stop: CancellationToken) -> Result<Self, TlsError> {
        let (publish, config) = watch::channel(Arc::new(load(&files)?));
        let mut hangup = signal(SignalKind::hangup()).map_err(TlsError::Signal)?;
        let mut seen = ages(&files);
        tokio::spawn(async move {
            let mut look = interval(TLS_LOOK_PAUSE);
            loop {
                let told = tokio::select! {
                    () = stop.cancelled() => return,
                    _ = hangup.recv() => true,
                    _ = look.tick() => false,
                };
                let found = ages(&files);
                if told || found != seen {
                    seen = found;
                    renew(&files, &publish);
                }
            }
        });
        Ok(Self { tcp, config })
    }
}

/// Takes the files as they are now. Such as cannot be used leave the certificate as it was.
fn renew(files: &TlsFiles, publish: &watch::Sender<Arc<ServerConfig>>) {
    match load(files) {
        Ok(config) => {
            publish.send_replace(Arc::new(config));
            tracing::info!("the certificate was read anew");
        }
        Err(error) => tracing::error!(error = %crate::error_chain(&error), "the former certificate is kept"),
    }
}

fn load(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let TlsFiles { certificate, key } = files;
    let unreadable = |source| TlsError::Certificate { file: certificate.clone(), source };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(unreadable)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::Key { file: key.clone(), source })?;
    // Named, since the graph holds two and neither is the process's default.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(TlsError::Pair)?.with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// When the files were changed last, as far as that can be seen.
fn ages(files: &TlsFiles) -> [Option<SystemTime>; 2] {
    [&files.certificate, &files.key].map(|file| std::fs::metadata(file).and_then(|found| found.modified()).ok())
}

impl Listener for TlsListener {
    type Io = TlsIo;
    type Addr = SocketAddr;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TlsIo, SocketAddr)>> {
        let (stream, peer) = ready!(self.tcp.poll_accept(cx))?;
        let acceptor = TlsAcceptor::from(self.config.borrow().clone());
        Poll::Ready(Ok((TlsIo::Greeting(Box::new(acceptor.accept(stream))), peer)))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

impl TlsIo {
    /// The connection, once its handshake is done.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut TlsStream<TcpStream>>>> {
        if let Self::Greeting(accept) = self {
            *self = match ready!(Pin::new(accept.as_mut()).poll(cx)) {
                Ok(stream) => Self::Open(Box::new(stream)),
                Err(error) => {
                    *self = Self::Broken;
                    return Poll::Ready(Err(error));
                }
            };
        }
        Poll::Ready(match self {
            Self::Open(stream) => Ok(Pin::new(stream.as_mut())),
            Self::Greeting(_) | Self::Broken => Err(io::ErrorKind::BrokenPipe.into()),
        })
    }
}

impl AsyncRead for TlsIo {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_open(cx))?.poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.as_mut().get_mut() {
            Self::Open(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
            Self::Greeting(_) | Self::Broken => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.as_mut().get_mut() {
            Self::Open(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
            Self::Greeting(_) | Self::Broken => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Writes a certificate of its own for `localhost`.
    fn certify(dir: &Path) -> TlsFiles {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let files = TlsFiles { certificate: dir.join("cert.pem"), key: dir.join("key.pem") };
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        files
    }

    /// What a client reads that trusts the certificate as it is on disk now.
    async fn ask(address: SocketAddr, files: &TlsFiles) -> io::Result<String> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&files.certificate).unwrap()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let tcp = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
        stream.write_all(b"?").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }

    /// Answers each connection in its turn, after its first byte.
    fn serve(mut listener: TlsListener) {
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    if stream.read_u8().await.is_ok() {
                        stream.write_all(b"served").await.unwrap();
                        stream.shutdown().await.unwrap();
                    }
                });
            }
        });
    }

    #[tokio::test]
    async fn a_certificate_is_taken_anew_and_a_bad_one_leaves_the_former() {
        let dir = tempfile::tempdir().unwrap();
        let files = certify(dir.path());
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let (publish, config) = watch::channel(Arc::new(load(&files).unwrap()));
        serve(TlsListener { tcp, config });
        // One that says nothing holds up nobody.
        let _silent = TcpStream::connect(address).await.unwrap();
        let served = async || tokio::time::timeout(PATIENCE, ask(address, &files)).await.unwrap();
        assert_eq!(served().await.unwrap(), "served");

        certify(dir.path());
        assert!(served().await.is_err(), "the client trusts the new one only");
        renew(&files, &publish);
        assert_eq!(served().await.unwrap(), "served");
        std::fs::write(&files.key, "nonsense").unwrap();
        renew(&files, &publish);
        assert_eq!(served().await.unwrap(), "served");
    }

    #[tokio::test]
    async fn files_that_cannot_be_used_end_the_start_with_their_setting() {
        let dir = tempfile::tempdir().unwrap();
        let files = certify(dir.path());
        let refused = |files: TlsFiles| load(&files).unwrap_err().to_string();
        let nowhere = dir.path().join("nowhere");
        assert!(refused(TlsFiles { certificate: nowhere.clone(), ..files.clone() }).contains("TLS_CERT_FILE"));
        assert!(refused(TlsFiles { key: nowhere, ..files.clone() }).contains("TLS_KEY_FILE"));
        let other = tempfile::tempdir().unwrap();
        assert!(refused(TlsFiles { key: certify(other.path()).key, ..files }).contains("together"));
    }
}
