//! The forward proxy through which sandboxes reach the outside: default deny.
//!
//! Every sandbox has a Unix socket of its own, so the proxy knows who asks by where the question comes in. It serves
//! HTTP/1.1 in absolute form and CONNECT tunnels. What is asked for must be allowed twice, by the sandbox's rules and
//! by the operator's policy; where that leads to is checked by the [address guard](crate::address); host services are
//! the operator's own and need neither.
//!
//! Not here: what is inside a sandbox, how it comes to the socket, which rules it has.

mod door;
mod headers;
mod metered;
mod proxy;
mod refusal;
mod rules;
mod services;
mod target;
mod tunnel;
mod upstream;
mod usage;
mod visit;

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use self::door::Door;
use self::proxy::Sandbox;
pub use self::rules::{Rules, RulesError};
pub use self::services::{HostService, HostServices, ServiceError};
use self::usage::Meter;
pub use self::usage::Usage;
pub use self::visit::{VisitError, Visited};
use crate::address::Guard;
use crate::limits::{
    CONNECTIONS_DEFAULT, CONNECTIONS_PER_SANDBOX_DEFAULT, HEADER_READ_DEFAULT, IDLE_DEFAULT, SANDBOXES_DEFAULT,
    SOCKET_PATH_BYTES_MAX,
};

/// What the operator decides once, for all sandboxes.
#[derive(Debug)]
pub struct EgressConfig {
    /// Looks at addresses.
    pub guard: Guard,
    /// What any sandbox may reach at most.
    pub policy: Rules,
    /// What every sandbox may ask of this host.
    pub services: HostServices,
    /// What sandboxes and connections may take.
    pub bounds: EgressBounds,
}

/// What sandboxes and connections may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressBounds {
    /// Sandboxes with egress at a time.
    pub sandboxes_max: usize,
    /// Connections of one sandbox at a time.
    pub connections_per_sandbox_max: usize,
    /// Connections of all sandboxes at a time.
    pub connections_max: usize,
    /// Time for a request's headers, also the time that a connection may wait for its next request.
    pub header_read_max: Duration,
    /// Time that a connection or tunnel may stand without a byte in either direction.
    pub idle_max: Duration,
    /// Rate of one sandbox, both ways together.
    pub bytes_per_second_max: Option<NonZeroU32>,
}

impl Default for EgressBounds {
    fn default() -> Self {
        Self {
            sandboxes_max: SANDBOXES_DEFAULT,
            connections_per_sandbox_max: CONNECTIONS_PER_SANDBOX_DEFAULT,
            connections_max: CONNECTIONS_DEFAULT,
            header_read_max: HEADER_READ_DEFAULT,
            idle_max: IDLE_DEFAULT,
            bytes_per_second_max: None,
        }
    }
}

/// Why a sandbox has no egress.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path does not fit into a socket's address.
    #[error("a socket's path of {bytes} bytes, at most {SOCKET_PATH_BYTES_MAX}")]
    PathLength {
        /// How long it is, or the name beside it that it is first made under.
        bytes: usize,
    },
    /// More sandboxes than there may be.
    #[error("{count} sandboxes have egress already")]
    Count {
        /// How many.
        count: usize,
    },
    /// The socket could not be made.
    #[error("cannot listen at {}", socket.display())]
    Listen {
        /// Where.
        socket: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The proxy of a host. Dropping it closes every sandbox's egress.
pub struct Egress {
    shared: Arc<Shared>,
    doors: Mutex<Doors>,
}

/// What all sandboxes share.
struct Shared {
    guard: Guard,
    policy: Rules,
    services: HostServices,
    bounds: EgressBounds,
    /// A permit for each connection.
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct Doors {
    open: HashMap<String, Door>,
    /// What sandboxes used that are closed now.
    closed: Usage,
}

impl Egress {
    /// A proxy that serves nobody yet.
    #[must_use]
    pub fn new(config: EgressConfig) -> Self {
        let EgressConfig { guard, policy, services, bounds } = config;
        let places = Arc::new(Semaphore::new(bounds.connections_max));
        Self { shared: Arc::new(Shared { guard, policy, services, bounds, places }), doors: Mutex::default() }
    }

    /// Serves the sandbox `key` at `socket`, by `rules`. Asked again for the same it changes nothing; for something
    /// else, the connections under the old rules end and the counters go on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`OpenError`]; a sandbox that was open before then is so no more.
    pub fn open(&self, key: String, socket: PathBuf, rules: Rules) -> Result<(), OpenError> {
        let bytes = door::beside(&socket).as_os_str().as_bytes().len().max(socket.as_os_str().as_bytes().len());
        if bytes > SOCKET_PATH_BYTES_MAX {
            return Err(OpenError::PathLength { bytes });
        }
        let mut doors = self.doors();
        let before = doors.open.remove(&key);
        if let Some(door) = before.as_ref().filter(|door| door.is_at(&socket) && door.sandbox.rules == rules) {
            tracing::debug!(key = door.sandbox.key, "egress is open already");
            doors.open.extend(before.map(|door| (key, door)));
            return Ok(());
        }
        if doors.open.len() >= self.shared.bounds.sandboxes_max {
            return Err(OpenError::Count { count: doors.open.len() });
        }
        let meter = before.as_ref().map(|door| Arc::clone(&door.sandbox.meter));
        let meter = meter.unwrap_or_else(|| Arc::new(Meter::new(self.shared.bounds.bytes_per_second_max)));
        let upstream = upstream::client(self.shared.guard.clone());
        let shared = Arc::clone(&self.shared);
        let sandbox = Arc::new(Sandbox { key: key.clone(), rules, meter, upstream, shared });
        let opened = Door::open(socket.clone(), sandbox);
        doors.open.insert(key, opened.map_err(|source| OpenError::Listen { socket, source })?);
        Ok(())
    }

    /// Connects to `host` and `port` as the sandbox `key` itself would by a tunnel: the same rules, bounds and counters, and
    /// the same end. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`VisitError`].
    pub async fn visit(&self, key: &str, host: &str, port: u16) -> Result<Visited, VisitError> {
        let entered = self.doors().open.get(key).map(Door::visit);
        let stream = entered.ok_or(VisitError::Closed)?.map_err(VisitError::Broken)?.ok_or(VisitError::Busy)?;
        visit::tunnel(stream, host, port).await
    }

    /// Ends the sandbox's egress at once, live tunnels too, and says what it used; nothing if it was not open.
    pub fn close(&self, key: &str) -> Option<Usage> {
        let mut doors = self.doors();
        let usage = doors.open.remove(key)?.sandbox.meter.usage();
        doors.closed = doors.closed.and(&usage);
        Some(usage)
    }

    /// What a sandbox has used so far; nothing if it is not open.
    #[must_use]
    pub fn usage(&self, key: &str) -> Option<Usage> {
        self.doors().open.get(key).map(|door| door.sandbox.meter.usage())
    }

    /// What all sandboxes, open and closed, have used since this proxy began. Counters only grow.
    #[must_use]
    pub fn total(&self) -> Usage {
        let doors = self.doors();
        doors.open.values().fold(doors.closed, |total, door| total.and(&door.sandbox.meter.usage()))
    }

    fn doors(&self) -> MutexGuard<'_, Doors> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
