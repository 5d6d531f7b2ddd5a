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

use self::session::Session;
use crate::exec::Engine;
use crate::limits::FSP_CONNECTIONS_MAX;

/// The connections that speak the protocol. Clones share the bound on them.
#[derive(Debug, Clone)]
pub struct Sessions {
    engine: Engine,
    seats: Arc<Semaphore>,
}

/// The right to a session.
#[derive(Debug)]
pub struct Seat {
    _permit: OwnedSemaphorePermit,
}

impl Sessions {
    /// Sessions with `engine`.
    pub fn new(engine: Engine) -> Self {
        Self { engine, seats: Arc::new(Semaphore::new(FSP_CONNECTIONS_MAX)) }
    }

    /// A seat, unless as many are taken as may be.
    pub fn seat(&self) -> Option<Seat> {
        Arc::clone(&self.seats).try_acquire_owned().ok().map(|permit| Seat { _permit: permit })
    }

    /// Speaks until either side leaves, or until `stop`.
    pub async fn serve(&self, seat: Seat, socket: Socket, extensions: Extensions, stop: &CancellationToken) {
        Session::run(&self.engine, socket, extensions, stop).await;
        drop(seat);
    }
}
