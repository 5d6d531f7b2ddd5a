//! Connections to one sandbox that are kept open, and a few more for bursts.

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sandbox_protocol::limits::{FSP_POOL_OVERFLOW_DEFAULT, FSP_POOL_SIZE_DEFAULT};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::connection::{Connection, State};
use crate::error::FspError;
use crate::handshake::Endpoint;
use crate::limits::{CHECKOUT_TIMEOUT_MS, IDLE_CHECK_MS};

/// How many connections a pool opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// Connections that are kept.
    pub size: usize,
    /// Connections beyond those, which are closed after use.
    pub overflow: usize,
    /// Leases of one connection at a time. More than one wants a sandbox that grants `credit`, or a slow consumer holds
    /// up its neighbours.
    pub leases_per_connection: usize,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self { size: FSP_POOL_SIZE_DEFAULT, overflow: FSP_POOL_OVERFLOW_DEFAULT, leases_per_connection: 1 }
    }
}

/// Connections to one sandbox. Copies are the same pool.
#[derive(Debug, Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    settings: PoolSettings,
    /// One permit for each lease that may be.
    places: Arc<Semaphore>,
    shelf: Mutex<Shelf>,
}

/// What is open.
#[derive(Debug, Default)]
struct Shelf {
    slots: Vec<Slot>,
    /// Connections that are being opened.
    opening: usize,
    next_number: u64,
}

#[derive(Debug)]
struct Slot {
    number: u64,
    connection: Connection,
    leases: usize,
    used_last: Instant,
}

/// A connection for as long as it is held.
#[derive(Debug)]
pub struct Lease {
    taken: Taken,
    _place: OwnedSemaphorePermit,
}

/// One lease of a slot, given back when it is dropped.
#[derive(Debug)]
struct Taken {
    connection: Connection,
    number: u64,
    inner: Arc<Inner>,
}

impl Deref for Lease {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.taken.connection
    }
}

impl Pool {
    /// A pool without connections; they are opened as they are needed.
    pub fn new(endpoint: Endpoint, settings: PoolSettings) -> Self {
        let places = (settings.size + settings.overflow) * settings.leases_per_connection;
        let places = Arc::new(Semaphore::new(places.min(Semaphore::MAX_PERMITS)));
        Self { inner: Arc::new(Inner { endpoint, settings, places, shelf: Mutex::default() }) }
    }

    /// A connection that lives.
    ///
    /// # Errors
    /// None became free in [`CHECKOUT_TIMEOUT_MS`], or the sandbox could not be reached.
    pub async fn checkout(&self) -> Result<Lease, FspError> {
        let limit = Duration::from_millis(CHECKOUT_TIMEOUT_MS);
        let place = match tokio::time::timeout(limit, Arc::clone(&self.inner.places).acquire_owned()).await {
            Ok(Ok(place)) => place,
            // The places are never closed.
            Ok(Err(_)) | Err(_) => return Err(FspError::PoolExhausted { waited_ms: CHECKOUT_TIMEOUT_MS }),
        };
        while let Some((taken, idle)) = self.take() {
            if idle < Duration::from_millis(IDLE_CHECK_MS) || taken.connection.ping().await.is_ok() {
                return Ok(Lease { taken, _place: place });
            }
            self.inner.discard(taken.number);
        }
        let opening = Opening::begin(&self.inner);
        let opened = tokio::time::timeout(limit, Connection::open(&self.inner.endpoint)).await;
        let late = |_| FspError::ConnectTimeout { uri: self.inner.endpoint.uri(), limit_ms: CHECKOUT_TIMEOUT_MS };
        let connection = opened.map_err(late)??;
        let number = opening.done(connection.clone());
        Ok(Lease { taken: Taken { connection, number, inner: Arc::clone(&self.inner) }, _place: place })
    }

    /// A lease of a connection that is open, and how long nobody used it.
    fn take(&self) -> Option<(Taken, Duration)> {
        let (number, connection, idle) = self.inner.borrow()?;
        Some((Taken { connection, number, inner: Arc::clone(&self.inner) }, idle))
    }

    /// Connections that are open, and leases of them.
    pub fn usage(&self) -> (usize, usize) {
        let shelf = self.inner.shelf();
        (shelf.slots.len(), shelf.slots.iter().map(|slot| slot.leases).sum())
    }
}

impl Inner {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease of a connection that is open: the one used last of those that idle. A busy one is only shared where no
    /// other may be kept.
    fn borrow(&self) -> Option<(u64, Connection, Duration)> {
        let PoolSettings { size, leases_per_connection, .. } = self.settings;
        let mut shelf = self.shelf();
        shelf.slots.retain(|slot| slot.leases > 0 || slot.connection.state() == State::Live);
        let may_keep_another = shelf.slots.len() + shelf.opening < size;
        let usable = |slot: &&mut Slot| {
            slot.connection.state() == State::Live
                && slot.leases < if may_keep_another { 1 } else { leases_per_connection }
        };
        let slot = shelf
            .slots
            .iter_mut()
            .filter(usable)
            .min_by_key(|slot| (slot.leases, std::cmp::Reverse(slot.used_last)))?;
        let idle = if slot.leases == 0 { slot.used_last.elapsed() } else { Duration::ZERO };
        slot.leases += 1;
        Some((slot.number, slot.connection.clone(), idle))
    }

    /// Takes a lease back. What is more than is kept, or of no use, is closed with its last lease.
    fn give_back(&self, number: u64) {
        let mut shelf = self.shelf();
        let open = shelf.slots.len();
        let Some(at) = shelf.slots.iter().position(|slot| slot.number == number) else { return };
        let slot = &mut shelf.slots[at];
        slot.leases -= 1;
        slot.used_last = Instant::now();
        if slot.leases == 0 && (open > self.settings.size || slot.connection.state() != State::Live) {
            shelf.slots.swap_remove(at);
        }
    }

    fn discard(&self, number: u64) {
        self.shelf().slots.retain(|slot| slot.number != number);
    }
}

/// A connection that is being opened, and counts until it is open or failed.
struct Opening<'a> {
    inner: &'a Inner,
}

impl<'a> Opening<'a> {
    fn begin(inner: &'a Inner) -> Self {
        inner.shelf().opening += 1;
        Self { inner }
    }

    fn done(self, connection: Connection) -> u64 {
        let mut shelf = self.inner.shelf();
        let number = shelf.next_number;
        shelf.next_number += 1;
        shelf.slots.push(Slot { number, connection, leases: 1, used_last: Instant::now() });
        number
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.inner.shelf().opening -= 1;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.inner.give_back(self.number);
    }
}
