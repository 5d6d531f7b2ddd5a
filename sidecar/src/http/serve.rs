//! Opens the doors: a port, a socket, and how many may come through them.

use std::fs::{self, Permissions};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use axum::Router;
use hyper_util::service::TowerToHyperService;
use sandbox_process::serve::{self, Queue};
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

use crate::limits::{CONNECTION_BOUNDS, CONNECTIONS_MAX};

/// Only the owner may connect.
const SOCKET_MODE: u32 = 0o600;

/// The sidecar's doors.
pub type Doorway = serve::Doorway<TowerToHyperService<Router>, Queue>;

/// Doors to `router`, until `stop`.
pub fn doorway(router: Router, stop: CancellationToken) -> Doorway {
    Doorway::new(TowerToHyperService::new(router), Queue::of(CONNECTIONS_MAX), CONNECTION_BOUNDS, stop)
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
