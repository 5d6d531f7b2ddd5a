//! The execution protocol's server: one [session](session) a connection, one [pump](pump) an execution it is told of.
//!
//! What is said stands in `sandbox_protocol::fsp`; what is done, in `exec`. Here one becomes the other.

mod pump;
mod sending;
mod session;
mod words;

use std::sync::Arc;

use sandbox_process::websocket::Socket;
use sandbox_protocol::fsp::Extensions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::session::Session;
use crate::exec::Engine;
use crate::limits::FSP_CONNECTIONS_MAX;

/// The connections that speak the protocol. Clones share the bound on them.
#[derive(Debug, Clone)]
pub struct Sessions {
    engine: Engine,
    stop: CancellationToken,
    seats: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// The right to a session.
#[derive(Debug)]
pub struct Seat {
    _permit: OwnedSemaphorePermit,
}

impl Sessions {
    /// Sessions with `engine`, until `stop`.
    pub fn new(engine: Engine, stop: CancellationToken) -> Self {
        Self { engine, stop, seats: Arc::new(Semaphore::new(FSP_CONNECTIONS_MAX)), tasks: TaskTracker::new() }
    }

    /// A seat, unless as many are taken as may be.
    pub fn seat(&self) -> Option<Seat> {
        Arc::clone(&self.seats).try_acquire_owned().ok().map(|permit| Seat { _permit: permit })
    }

    /// A session's task, for which [`closed`](Self::closed) waits.
    pub fn spawn(&self, session: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(session);
    }

    /// Returns when, after the signal to stop, the last session is over.
    pub async fn closed(&self) {
        self.stop.cancelled().await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Speaks until either side leaves.
    pub async fn serve(&self, seat: Seat, socket: Socket, extensions: Extensions) {
        Session::run(&self.engine, socket, extensions, &self.stop).await;
        drop(seat);
    }
}
