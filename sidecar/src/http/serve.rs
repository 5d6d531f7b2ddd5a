//! Opens the doors and serves what comes through them, until told to stop.

use std::fs::{self, Permissions};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::{CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADER_READ_MAX, HEADERS_MAX};

/// Only the owner may connect.
const SOCKET_MODE: u32 = 0o600;

/// What all doors share: the routes, the bound on connections, the signal to stop.
#[derive(Debug)]
pub struct Doorway {
    router: Router,
    permits: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Doorway {
    /// Nothing is served before [`Self::serve`].
    pub fn new(router: Router, stop: CancellationToken) -> Self {
        Self { router, permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)), stop, tasks: TaskTracker::new() }
    }

    /// Serves what comes through `listener`, in the background.
    pub fn serve(&self, listener: impl Listener) {
        let accepting =
            accept(listener, self.router.clone(), Arc::clone(&self.permits), self.stop.clone(), self.tasks.clone());
        self.tasks.spawn(accepting);
    }

    /// Returns when, after the signal to stop, the last request has been answered.
    pub async fn closed(self) {
        self.stop.cancelled().await;
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn accept(
    mut listener: impl Listener,
    router: Router,
    permits: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    let accepting = async {
        while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
            let (stream, _) = listener.accept().await;
            let serving = converse(stream, router.clone(), stop.clone());
            tasks.spawn(async move {
                serving.await;
                drop(permit);
            });
        }
    };
    stop.run_until_cancelled(accepting).await;
}

/// Serves one connection; told to stop, it answers the request that it has and ends.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router, stop: CancellationToken) {
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_READ_MAX)
            .max_buf_size(HEADER_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(error = &error as &dyn std::error::Error, "a connection broke off");
    }
}

/// Listens on `port` of all addresses.
///
/// # Errors
/// The port is taken or may not be used.
pub async fn open_port(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
}

/// A listening socket whose file is removed with it.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "the socket's file is left behind");
        }
    }
}

/// Listens on a Unix socket at `path`. The file appears when all is ready: listening, and closed to other users. One
/// that an earlier sidecar left behind is replaced.
///
/// # Errors
/// The directory cannot be written, or something other than a socket is in the way.
pub fn open_socket(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    let unready = path.with_extension("new");
    match fs::remove_file(&unready) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&unready)?;
    fs::set_permissions(&unready, Permissions::from_mode(SOCKET_MODE))?;
    fs::rename(&unready, path)?;
    Ok((listener, SocketFile(path.to_owned())))
}
