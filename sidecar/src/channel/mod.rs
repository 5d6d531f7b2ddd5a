//! Programs for a customer who came by SSH, and the sockets that go along: the sandbox's side of
//! [`sandbox_protocol::channel`].
//!
//! [`Channels`] holds the bounds. `program` starts what is asked for, `attend` is its life with a connection and after
//! it, `output` and `stdin` move bytes, `frames` reads what an operator sends, `modes` are a terminal's settings.
//! `socket` opens Unix sockets as the agent, `listen` keeps what listens, `bare` passes bytes on. Not here: HTTP, and
//! anything that ends a program for the time, memory or output that it takes.

mod attend;
pub(crate) mod bare;
mod error;
pub(crate) mod frames;
mod listen;
mod modes;
mod output;
mod program;
mod socket;
mod stdin;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sandbox_protocol::channel::Start;
use sandbox_protocol::limits::{CHANNEL_ARRIVAL_S, CHANNEL_ARRIVALS_MAX, CHANNELS_MAX, LISTENERS_MAX};
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use self::error::ChannelError;
pub(crate) use self::listen::{Accepted, Listeners, Listening};
pub(crate) use self::program::Program;
pub use self::program::login_shell;
pub use self::socket::OpenSocket;
use crate::exec::Identity;
use crate::limits::CHANNEL_START_READ_MAX;

/// What channels are opened with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The sidecar's program.
    pub program: PathBuf,
    /// Where programs start.
    pub workspace: PathBuf,
    /// Who they run as; `None` is the sidecar's own user.
    pub identity: Option<Identity>,
    /// In the environment of every program.
    pub environment: BTreeMap<String, String>,
    /// The agent's shell.
    pub shell: PathBuf,
    /// Ports that nobody may listen at.
    pub reserved: BTreeSet<u16>,
    /// How much at a time.
    pub bounds: Bounds,
}

/// How much there may be at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Channels to programs.
    pub channels_max: usize,
    /// Time for the first frame of one.
    pub start_read_max: Duration,
    /// Sockets that are listened at.
    pub listeners_max: usize,
    /// Connections to one of them that wait to be fetched.
    pub arrivals_max: usize,
    /// Time for which such a connection waits.
    pub arrival_max: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            channels_max: CHANNELS_MAX,
            start_read_max: CHANNEL_START_READ_MAX,
            listeners_max: LISTENERS_MAX,
            arrivals_max: CHANNEL_ARRIVALS_MAX,
            arrival_max: Duration::from_secs(CHANNEL_ARRIVAL_S),
        }
    }
}

/// All channels of a sandbox. Clones share them.
#[derive(Debug, Clone)]
pub struct Channels {
    settings: Arc<Settings>,
    /// Those to programs. What goes on after its connection has none.
    room: Arc<Semaphore>,
    listeners: Listeners,
}

/// A channel's place among as many as may be.
#[derive(Debug)]
pub(crate) struct Place(#[expect(dead_code, reason = "held, never read")] OwnedSemaphorePermit);

impl Channels {
    /// None yet.
    pub fn new(settings: Settings) -> Self {
        let room = Arc::new(Semaphore::new(settings.bounds.channels_max));
        let settings = Arc::new(settings);
        Self { listeners: Listeners::new(Arc::clone(&settings)), settings, room }
    }

    /// A place for a channel to a program.
    ///
    /// # Errors
    /// There are as many as may be.
    pub(crate) fn place(&self) -> Result<Place, ChannelError> {
        Arc::clone(&self.room).try_acquire_owned().map(Place).map_err(|_| ChannelError::Full)
    }

    /// Time for what says which program it is to be.
    pub(crate) fn start_read_max(&self) -> Duration {
        self.settings.bounds.start_read_max
    }

    /// Starts a program.
    ///
    /// # Errors
    /// [`ChannelError`]; nothing runs.
    pub(crate) async fn start(&self, start: Start) -> Result<Program, ChannelError> {
        Program::start(start, &self.settings).await
    }

    /// A connection to the Unix socket at `path`, opened as the agent.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub(crate) async fn connect(&self, path: &str) -> Result<UnixStream, ChannelError> {
        socket::connect(path, &self.settings).await
    }

    /// What listens, and what has come there.
    pub(crate) fn listeners(&self) -> &Listeners {
        &self.listeners
    }
}
