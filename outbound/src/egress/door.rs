//! The Unix socket of one sandbox and the connections that come through it. Who connects is who the socket belongs to.

use std::error::Error;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::metered::Metered;
use super::proxy::{Desk, Sandbox};
use super::refusal::Refusal;
use super::usage::Pulse;
use crate::limits::{ACCEPT_PAUSE, HEADER_BYTES_MAX, HEADERS_MAX};

/// An open door. Dropping it closes it: its connections and tunnels end, its socket's file goes.
pub(super) struct Door {
    pub sandbox: Arc<Sandbox>,
    socket: Socket,
    /// A permit for each connection of the sandbox.
    places: Arc<Semaphore>,
    stop: CancellationToken,
    _stop: DropGuard,
}

/// The file of a listening socket.
#[derive(Debug)]
struct Socket {
    path: PathBuf,
    /// Device and inode: another's file at the same path is not ours to remove.
    identity: (u64, u64),
}

impl Door {
    /// Opens a door at `path`, in place of any file there, and serves whoever comes through it.
    pub(super) fn open(path: PathBuf, sandbox: Arc<Sandbox>) -> io::Result<Self> {
        let (listener, socket) = bind(path)?;
        let stop = CancellationToken::new();
        let places = Arc::new(Semaphore::new(sandbox.shared.bounds.connections_per_sandbox_max));
        let accepting = accept(listener, Arc::clone(&sandbox), Arc::clone(&places), stop.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(accepting));
        Ok(Self { sandbox, socket, places, stop: stop.clone(), _stop: stop.drop_guard() })
    }

    /// A connection as if it had come through the socket; nothing where there are as many as may be.
    pub(super) fn visit(&self) -> io::Result<Option<UnixStream>> {
        let Some(passes) = take(&self.places, &self.sandbox.shared.places) else {
            self.sandbox.meter.asked();
            self.sandbox.meter.refused();
            return Ok(None);
        };
        let (near, far) = UnixStream::pair()?;
        let serving = converse(far, Arc::clone(&self.sandbox), passes);
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(serving));
        Ok(Some(near))
    }

    /// Whether this is the door that is asked for, and can still be found.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        self.socket.path == path && self.socket.is_there()
    }
}

impl Socket {
    fn is_there(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.is_there()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket of a closed sandbox");
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Bound beside its place and then moved there: at `path` there is never a socket that others may use, nor none at all.
fn bind(path: PathBuf) -> io::Result<(UnixListener, Socket)> {
    let beside = beside(&path);
    match std::fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&beside)?;
    std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600))?;
    let identity = identity(&beside)?;
    std::fs::rename(&beside, &path)?;
    Ok((listener, Socket { path, identity }))
}

/// The name under which a socket is made ready.
pub(super) fn beside(path: &Path) -> PathBuf {
    path.with_extension("new")
}

async fn accept(listener: UnixListener, sandbox: Arc<Sandbox>, places: Arc<Semaphore>, stop: CancellationToken) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match take(&places, &sandbox.shared.places) {
                Some(passes) => {
                    let serving = converse(stream, Arc::clone(&sandbox), passes);
                    tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
                }
                None => turn_away(&stream, &sandbox),
            },
            Err(error) => {
                tracing::error!(%error, sandbox = sandbox.key, "cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The right to be served: one of the sandbox's places, one of everybody's.
type Passes = [OwnedSemaphorePermit; 2];

fn take(own: &Arc<Semaphore>, all: &Arc<Semaphore>) -> Option<Passes> {
    let own = Arc::clone(own).try_acquire_owned().ok()?;
    Some([own, Arc::clone(all).try_acquire_owned().ok()?])
}

/// Says so and closes, without waiting for anything: a fresh socket's buffer holds the whole answer.
fn turn_away(stream: &UnixStream, sandbox: &Sandbox) {
    sandbox.meter.asked();
    sandbox.meter.refused();
    if let Err(error) = stream.try_write(&Refusal::Busy.bytes()) {
        tracing::debug!(%error, sandbox = sandbox.key, "one connection too many left by itself");
    }
}

/// Serves one connection, as HTTP and perhaps then as a tunnel, until it ends or stands still for too long.
async fn converse(stream: UnixStream, sandbox: Arc<Sandbox>, passes: Passes) {
    let bounds = sandbox.shared.bounds;
    let pulse = Arc::new(Pulse::new(Arc::clone(&sandbox.meter)));
    let desk = Desk::new(sandbox, Arc::clone(&pulse));
    let io = TokioIo::new(Metered::new(stream, Arc::clone(&pulse)));
    let serving = async {
        let at_desk = desk.clone();
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(bounds.header_read_max)
            .max_buf_size(HEADER_BYTES_MAX)
            .max_headers(HEADERS_MAX)
            .serve_connection(io, service_fn(move |request| at_desk.clone().answer(request)))
            .with_upgrades()
            .await?;
        if let Some(tunnel) = desk.take_tunnel() {
            tunnel.run().await?;
        }
        Ok::<(), Box<dyn Error + Send + Sync>>(())
    };
    tokio::select! {
        served = serving => if let Err(error) = served {
            tracing::debug!(%error, "a connection broke off");
        },
        () = pulse.stopped(bounds.idle_max) => tracing::debug!("a connection stood still and was cut"),
    }
    drop(passes);
}
