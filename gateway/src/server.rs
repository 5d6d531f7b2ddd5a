//! The door: takes connections, bounds those of strangers, and ends those whose time is over.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use russh::server::{Config, RunningSession, run_stream};
use russh::{Disconnect, MethodKind, MethodSet, SshId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::algorithms::PREFERRED;
use crate::backlog::Backlog;
use crate::client::{Arriving, Client};
use crate::guest::{Ends, Guest};
use crate::hostkeys::{HostKeyError, HostKeys};
use crate::limits::{
    FAREWELL_MAX, GUESTS_MAX, KEEP_ALIVE, KEEP_ALIVES_MAX, LOGIN_MAX, LOGIN_TRIES_MAX, MESSAGES_MAX, PACKET_BYTES_MAX,
    STRANGERS_MAX, WINDOW_START_BYTES,
};
use crate::ports::{AuditEvent, Doors, Over};
use crate::strangers::Strangers;
use crate::transport::Transport;

/// What the gateway calls itself. Clients order the arguments of SFTP's symlink as OpenSSH does where its name is in it.
const SERVER_ID: &str = "SSH-2.0-sandbox symlinks_as_OpenSSH";
/// Time without accepting after it failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bounds that tests make smaller.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// [`GUESTS_MAX`]
    pub guests_max: usize,
    /// [`STRANGERS_MAX`]
    pub strangers_max: usize,
    /// [`LOGIN_MAX`]
    pub login_max: Duration,
    /// Bytes after which keys are exchanged anew.
    pub rekey_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            guests_max: GUESTS_MAX,
            strangers_max: STRANGERS_MAX,
            login_max: LOGIN_MAX,
            rekey_bytes: russh::Limits::default().rekey_write_limit,
        }
    }
}

/// SSH into sandboxes.
pub struct Gateway {
    shared: Arc<Shared>,
}

struct Shared {
    doors: Arc<dyn Doors>,
    keys: HostKeys,
    bounds: Bounds,
    connections: AtomicU64,
    strangers: Strangers,
    guests: Arc<Semaphore>,
}

impl Gateway {
    /// Lets in whom `doors` knows, and proves itself by `keys`.
    pub fn new(doors: Arc<dyn Doors>, keys: HostKeys, bounds: Bounds) -> Self {
        let shared = Shared {
            doors,
            keys,
            bounds,
            connections: AtomicU64::new(0),
            strangers: Strangers::new(bounds.strangers_max),
            guests: Arc::new(Semaphore::new(bounds.guests_max)),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Takes connections until `stop`, and returns when all have ended.
    pub async fn serve(&self, listener: TcpListener, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((socket, peer)) => {
                    tasks.spawn(Arc::clone(&self.shared).meet(socket, peer, stop.child_token()));
                }
                Err(error) => {
                    // Out of descriptors, say: that passes, and a loop does not help.
                    tracing::warn!(%error, "a connection was not accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        tasks.close();
        tasks.wait().await;
    }
}

impl Shared {
    fn config(&self) -> Result<Arc<Config>, HostKeyError> {
        let rekey = self.bounds.rekey_bytes;
        Ok(Arc::new(Config {
            server_id: SshId::Standard(SERVER_ID.into()),
            methods: MethodSet::from(&[MethodKind::PublicKey][..]),
            // Nothing is to be learnt from time: a stranger is looked up as everybody is.
            auth_rejection_time: Duration::ZERO,
            auth_rejection_time_initial: Some(Duration::ZERO),
            keys: vec![self.keys.current(SystemTime::now())?],
            limits: russh::Limits::new(rekey, rekey, russh::Limits::default().rekey_time_limit),
            window_size: WINDOW_START_BYTES,
            maximum_packet_size: PACKET_BYTES_MAX,
            channel_buffer_size: 1,
            event_buffer_size: MESSAGES_MAX,
            preferred: PREFERRED,
            max_auth_attempts: LOGIN_TRIES_MAX,
            inactivity_timeout: None,
            keepalive_interval: Some(KEEP_ALIVE),
            keepalive_max: KEEP_ALIVES_MAX,
            ..Config::default()
        }))
    }

    /// Meets a peer, from its first byte to its last.
    async fn meet(self: Arc<Self>, socket: TcpStream, peer: SocketAddr, stop: CancellationToken) {
        let Some(stranger) = self.strangers.admit(peer.ip().to_canonical()) else {
            tracing::debug!(%peer, "as many strangers are at the door as may");
            return;
        };
        let Ok(own) = socket.local_addr() else { return stranger.failed() };
        let cut = CancellationToken::new();
        let _ends_here = cut.clone().drop_guard();
        let (proven, entered, begun) = (CancellationToken::new(), oneshot::channel(), Instant::now());
        let arriving = Arriving {
            number: self.connections.fetch_add(1, Ordering::Relaxed) + 1,
            ends: Ends { peer, own },
            backlog: Backlog::default(),
            proven: proven.clone(),
            entered: entered.0,
        };
        let login_until = begun + self.bounds.login_max;
        let greeted = tokio::select! {
            greeted = timeout_at(login_until, self.greet(socket, arriving, &cut)) => greeted.ok().flatten(),
            () = stop.cancelled() => return,
        };
        let Some(mut session) = greeted else { return stranger.failed() };
        tokio::select! {
            biased;
            () = proven.cancelled() => drop(stranger),
            _ = &mut session => return stranger.failed(),
            () = sleep_until(login_until) => return stranger.failed(),
            () = stop.cancelled() => return,
        }
        let guest = tokio::select! {
            guest = entered.1 => guest.ok(),
            () = stop.cancelled() => None,
        };
        match guest {
            Some(guest) => {
                let reason = attend(&guest, &mut session, stop).await;
                guest.note(AuditEvent::Left { reason, lasted: begun.elapsed() });
            }
            // Whoever is not let in is told why first.
            None => drop(timeout(FAREWELL_MAX, session).await),
        }
    }

    /// Speaks SSH up to where keys are exchanged.
    async fn greet(
        &self,
        socket: TcpStream,
        arriving: Arriving,
        cut: &CancellationToken,
    ) -> Option<RunningSession<Client>> {
        let transport = Transport::new(socket, arriving.backlog.clone(), cut);
        let transport = transport.map_err(|error| tracing::debug!(%error, "a peer was gone at once")).ok()?;
        let client = Client::new(Arc::clone(&self.doors), Arc::clone(&self.guests), arriving);
        let config = self.config();
        let config =
            config.map_err(|error| tracing::error!(error = &error as &dyn Error, "nobody can be let in")).ok()?;
        let session = run_stream(config, transport, client).await;
        session.map_err(|error| tracing::debug!(%error, "a peer does not speak SSH")).ok()
    }
}

/// Stays with a guest until it leaves, or has to. Returns why.
async fn attend(guest: &Guest, session: &mut RunningSession<Client>, stop: CancellationToken) -> String {
    let over = tokio::select! {
        ended = &mut *session => return ended.map_or_else(|error| error.to_string(), |()| "left".to_owned()),
        over = guest.room.over() => over,
        () = stop.cancelled() => Over::Operator,
    };
    if matches!(over, Over::Revoked | Over::Expired) {
        guest.expelled.cancel();
        guest.tasks.close();
        if timeout(FAREWELL_MAX, guest.tasks.wait()).await.is_err() {
            tracing::warn!(connection = guest.name.number, "programs of a guest who was expelled may go on");
        }
    }
    let farewell = async {
        let told = guest.handle.disconnect(Disconnect::ByApplication, over.to_string(), String::new()).await;
        (told, session.await)
    };
    if timeout(FAREWELL_MAX, farewell).await.is_err() {
        tracing::debug!(connection = guest.name.number, "a guest does not hear that it has to leave");
    }
    over.to_string()
}
