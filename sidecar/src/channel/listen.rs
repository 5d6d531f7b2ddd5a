//! Sockets that the sidecar listens at for an operator, and the connections that come there and wait to be fetched.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use sandbox_protocol::channel::{Arrival, ListenQuery};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::bare::carry;
use super::error::ChannelError;
use super::socket::Bound;
use crate::limits::{LISTEN_ACCEPT_PAUSE, LISTEN_PORTS_TRIED_MAX};

/// All that listen. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Listeners {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Arc<Settings>,
    room: Arc<Semaphore>,
    waiting: Mutex<Table>,
}

/// What waits to be fetched, by the ids of the arrivals; the oldest first.
#[derive(Debug, Default)]
struct Table {
    arrivals: BTreeMap<u64, Waiting>,
    ids_given: u64,
}

#[derive(Debug)]
struct Waiting {
    connection: Accepted,
    listener: u64,
    until: Instant,
    _place: OwnedSemaphorePermit,
}

/// A connection that came.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Where is listened.
#[derive(Debug)]
enum Socket {
    /// One or both loopback addresses, at one port.
    Port(u16, TcpListener, Option<TcpListener>),
    Path(Bound),
}

/// What listens as long as an operator wants it.
#[derive(Debug)]
pub(crate) struct Listening {
    shared: Arc<Shared>,
    id: u64,
    socket: Socket,
    /// Those that may wait to be fetched.
    room: Arc<Semaphore>,
    arrived: Notify,
    _place: OwnedSemaphorePermit,
}

impl Listeners {
    pub(super) fn new(settings: Arc<Settings>) -> Self {
        let room = Arc::new(Semaphore::new(settings.bounds.listeners_max));
        Self { shared: Arc::new(Shared { settings, room, waiting: Mutex::default() }) }
    }

    /// Listens where `query` says.
    ///
    /// # Errors
    /// [`ChannelError`]; nothing listens.
    pub(crate) async fn listen(&self, query: ListenQuery) -> Result<Listening, ChannelError> {
        let shared = &self.shared;
        let place = Arc::clone(&shared.room).try_acquire_owned().map_err(|_| ChannelError::Full)?;
        let socket = match query {
            ListenQuery { port: Some(port), path: None, private: false } => at_port(port, &shared.settings).await?,
            ListenQuery { port: None, path: Some(path), private: false } => {
                Socket::Path(Bound::at(&path, &shared.settings).await?)
            }
            ListenQuery { port: None, path: None, private: true } => {
                Socket::Path(Bound::apart(&shared.settings).await?)
            }
            ListenQuery { .. } => return Err(ChannelError::NotOne),
        };
        let room = Arc::new(Semaphore::new(shared.settings.bounds.arrivals_max));
        let id = shared.table().new_id();
        Ok(Listening { shared: Arc::clone(shared), id, socket, room, arrived: Notify::new(), _place: place })
    }

    /// The connection that waits under `id`.
    ///
    /// # Errors
    /// None does, or not any more.
    pub(crate) fn fetch(&self, id: u64) -> Result<Accepted, ChannelError> {
        let waiting = self.shared.table().arrivals.remove(&id);
        waiting.map(|waiting| waiting.connection).ok_or(ChannelError::NoArrival)
    }
}

impl Shared {
    /// No code panics while it holds the lock, so what a poisoned one guards is whole.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn new_id(&mut self) -> u64 {
        self.ids_given += 1;
        self.ids_given
    }

    /// When the first of a listener's arrivals has waited for long enough.
    fn next_due(&self, listener: u64) -> Option<Instant> {
        self.arrivals.values().find(|waiting| waiting.listener == listener).map(|waiting| waiting.until)
    }
}

impl Accepted {
    /// Passes on its bytes to and from `client`.
    pub(crate) async fn carry(self, client: impl AsyncRead + AsyncWrite + Send) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => carry(client, stream).await,
            Self::Unix(stream) => carry(client, stream).await,
        }
    }
}

impl Socket {
    /// The next connection, and the port that it comes from.
    async fn accept(&self) -> io::Result<(Accepted, u16)> {
        match self {
            Self::Port(_, one, other) => {
                let other = async {
                    match other {
                        Some(other) => other.accept().await,
                        None => std::future::pending().await,
                    }
                };
                let (stream, from) = tokio::select! {
                    accepted = one.accept() => accepted?,
                    accepted = other => accepted?,
                };
                stream.set_nodelay(true)?;
                Ok((Accepted::Tcp(stream), from.port()))
            }
            Self::Path(bound) => {
                let (stream, _) = bound.listener.accept().await?;
                Ok((Accepted::Unix(stream), 0))
            }
        }
    }
}

impl Listening {
    /// The port, where it is one.
    pub(crate) fn port(&self) -> Option<u16> {
        match &self.socket {
            Socket::Port(port, ..) => Some(*port),
            Socket::Path(_) => None,
        }
    }

    /// The path, absolute, where it is one.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match &self.socket {
            Socket::Port(..) => None,
            Socket::Path(bound) => Some(bound.path(&self.shared.settings)),
        }
    }

    /// Tells the operator of what comes until it closes the connection or the sidecar ends.
    pub(crate) async fn announce(&self, operator: impl AsyncRead + AsyncWrite + Send, stop: &CancellationToken) {
        let (mut reader, mut writer) = split(operator);
        let (mut closed, mut told) = ([0], pin!(self.tell(&mut writer)));
        tokio::select! {
            // Nothing is said this way but the end.
            _ = reader.read(&mut closed) => {}
            Err(error) = &mut told => tracing::debug!(%error, "nobody is told of arrivals any more"),
            () = self.expire() => {}
            () = stop.cancelled() => {}
        }
    }

    /// Stops listening, closes what waits, and removes the path.
    pub(crate) async fn end(self) {
        self.shared.table().arrivals.retain(|_, waiting| waiting.listener != self.id);
        let Self { shared, socket, _place: place, .. } = self;
        if let Socket::Path(bound) = socket {
            bound.remove(&shared.settings).await;
        }
        drop(place);
    }

    async fn tell(&self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        loop {
            match self.socket.accept().await {
                Ok((connection, from_port)) => {
                    if let Some(id) = self.keep(connection) {
                        writer.write_all(&Arrival { id, from_port }.encode()).await?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection for an operator");
                    sleep(LISTEN_ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Has the connection wait to be fetched under an id; where as many wait as may, it is closed.
    fn keep(&self, connection: Accepted) -> Option<u64> {
        let place = Arc::clone(&self.room).try_acquire_owned().ok()?;
        let until = Instant::now() + self.shared.settings.bounds.arrival_max;
        let mut table = self.shared.table();
        let id = table.new_id();
        table.arrivals.insert(id, Waiting { connection, listener: self.id, until, _place: place });
        drop(table);
        self.arrived.notify_one();
        Some(id)
    }

    /// Closes what has waited for long enough.
    async fn expire(&self) {
        loop {
            let due = self.shared.table().next_due(self.id);
            match due {
                None => self.arrived.notified().await,
                Some(due) => {
                    sleep_until(due).await;
                    let now = Instant::now();
                    let of_this = |waiting: &Waiting| waiting.listener == self.id && waiting.until <= now;
                    self.shared.table().arrivals.retain(|_, waiting| !of_this(waiting));
                }
            }
        }
    }
}

/// Listens at `port` of both loopback addresses, or at one that is free on both.
async fn at_port(port: u16, settings: &Settings) -> Result<Socket, ChannelError> {
    if settings.reserved.contains(&port) {
        return Err(ChannelError::Reserved(port));
    }
    let refused = |source| ChannelError::Port { port, source };
    let mut tries_left = if port == 0 { LISTEN_PORTS_TRIED_MAX } else { 1 };
    loop {
        tries_left -= 1;
        let one = TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), port)).await.map_err(refused)?;
        let given = one.local_addr().map_err(refused)?.port();
        match TcpListener::bind((IpAddr::V6(Ipv6Addr::LOCALHOST), given)).await {
            Ok(other) => return Ok(Socket::Port(given, one, Some(other))),
            Err(error) if has_no_such_address(&error) => return Ok(Socket::Port(given, one, None)),
            Err(error) if tries_left == 0 => return Err(refused(error)),
            Err(_) => {}
        }
    }
}

/// Whether the sandbox knows nothing of the sixth version.
fn has_no_such_address(error: &io::Error) -> bool {
    let known = [Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT].map(|errno| errno as i32);
    error.raw_os_error().is_some_and(|errno| known.contains(&errno))
}
