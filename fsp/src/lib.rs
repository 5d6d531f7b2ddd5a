//! Client of the Fathom Sandbox Protocol: connections, a pool of them, and what became of an execution.
//!
//! An [`Endpoint`] is a sandbox as it is reached; [`Connection::open`] opens a WebSocket to it, on which many
//! [`Execution`]s run at a time; a [`Pool`] keeps several. Everything that goes wrong is an [`FspError`].
//!
//! Invariants: an `execute` leaves at most once; of an execution whose link broke, each message is handed out once and
//! in order, or a [`Event::Gap`] says which are missing; no consumer makes this crate hold more than a stated number of
//! bytes for it.
//!
//! Not here: what the messages look like (`protocol::fsp`), and when a command should be run.

mod accumulate;
mod backoff;
mod config;
mod connection;
mod dial;
mod error;
mod handshake;
pub mod limits;
mod pool;
mod token;
#[cfg(feature = "web")]
mod web;

pub use self::accumulate::{Accumulator, Outcome};
pub use self::config::{Config, ConfigError};
pub use self::connection::{Connection, Control, Event, Execution, Place, State};
pub use self::dial::{Dial, Duplex, Link, UnixSocket};
pub use self::error::{ErrorKind, FspError};
pub use self::handshake::Endpoint;
pub use self::pool::{Lease, Pool, PoolSettings};
pub use self::token::{Keeper, Refresh, RefreshError, Renewed, Token};
#[cfg(feature = "web")]
pub use self::web::{HttpRefresh, Web, WebError};
