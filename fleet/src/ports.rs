//! What the fleet needs done, as traits. Adapters live in the operator, fakes in [`crate::fakes`].

use std::error::Error;

use async_trait::async_trait;
use sandbox_protocol::agent::event::RunEvent;
use sandbox_protocol::agent::negotiation::NegotiateBody;
use sandbox_protocol::agent::{RunReply, RunSummary, TaskBody};
use sandbox_protocol::exec::{ExecBody, ExecReply};
use sandbox_protocol::{Failure, FailureCode};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::request::SnapshotUri;
use crate::sandbox::{Instance, Sandbox};

/// The container engine.
#[async_trait]
pub trait Containers: Send + Sync + 'static {
    /// Makes and starts the container of a sandbox, or finds it made; then inspects it. Repeatable.
    ///
    /// # Errors
    /// What could not be done. Something half-made may be left; [`Containers::remove`] removes it.
    async fn provision(&self, sandbox: &Sandbox) -> Result<Instance, PortError>;

    /// Looks for the container of a sandbox that ran, and starts it if it is stopped. `None`: it does not exist.
    ///
    /// # Errors
    /// The engine gave no answer; that says nothing of the container.
    async fn adopt(&self, sandbox: &Sandbox) -> Result<Option<Instance>, PortError>;

    /// Stops the container and keeps what is in it. Repeatable. `false`: it does not exist.
    ///
    /// # Errors
    /// It may go on running.
    async fn halt(&self, sandbox: &Sandbox) -> Result<bool, PortError>;

    /// Removes whatever exists of a sandbox. Repeatable.
    ///
    /// # Errors
    /// Something may be left.
    async fn remove(&self, sandbox: &Sandbox) -> Result<(), PortError>;
}

/// The sidecars inside the sandboxes.
#[async_trait]
pub trait Sidecars: Send + Sync + 'static {
    /// Returns once the sidecar of a started container answers.
    ///
    /// # Errors
    /// It did not within the time that a start may take.
    async fn ready(&self, instance: &Instance) -> Result<(), PortError>;

    /// Runs a command, or attaches to the one that runs or ran under the same id.
    ///
    /// # Errors
    /// [`SidecarError`].
    async fn exec(&self, instance: &Instance, body: ExecBody) -> Result<ExecReply, SidecarError>;

    /// Ends a command with all that it started. Repeatable.
    ///
    /// # Errors
    /// [`SidecarError`].
    async fn kill(&self, instance: &Instance, execution: &str) -> Result<(), SidecarError>;

    /// Opens a connection to the sidecar, on which it speaks HTTP/1.
    ///
    /// # Errors
    /// [`SidecarError::NotSent`].
    async fn connect(&self, instance: &Instance) -> Result<Box<dyn Pipe>, SidecarError>;
}

/// The agents inside the sandboxes.
#[async_trait]
pub trait Agents: Send + Sync + 'static {
    /// Runs a prompt or task to its end, or attaches to the one that runs or ran under the same id.
    ///
    /// # Errors
    /// [`SidecarError`].
    async fn run(&self, instance: &Instance, turns: Turns, body: TaskBody) -> Result<RunReply, SidecarError>;

    /// Argues about a move, or attaches to it where its id is known, and tells of it from the beginning. Its end is asked
    /// for by [`Agents::summary`].
    ///
    /// # Errors
    /// [`SidecarError`].
    async fn negotiate(&self, instance: &Instance, body: NegotiateBody) -> Result<Box<dyn RunEvents>, SidecarError>;

    /// Where a run stands.
    ///
    /// # Errors
    /// [`SidecarError`].
    async fn summary(&self, instance: &Instance, run: &str) -> Result<RunSummary, SidecarError>;

    /// Has a run end. Repeatable.
    ///
    /// # Errors
    /// [`SidecarError`].
    async fn cancel(&self, instance: &Instance, run: &str) -> Result<(), SidecarError>;

    /// What is in a file of the workspace.
    ///
    /// # Errors
    /// [`SidecarError`].
    async fn file(&self, instance: &Instance, path: &str) -> Result<Vec<u8>, SidecarError>;
}

/// Turns that an agent takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turns {
    /// A prompt's.
    One,
    /// A task's.
    Many,
}

/// What is told of a run.
#[async_trait]
pub trait RunEvents: Send {
    /// The next event; `None` where the stream ended.
    ///
    /// # Errors
    /// [`SidecarError::Unreachable`].
    async fn next(&mut self) -> Result<Option<RunEvent>, SidecarError>;
}

/// Bytes both ways.
pub trait Pipe: AsyncRead + AsyncWrite + Send + Unpin {}

impl<P: AsyncRead + AsyncWrite + Send + Unpin> Pipe for P {}

/// What leaves a running sandbox for the network, and what does not.
#[async_trait]
pub trait Egress: Send + Sync + 'static {
    /// Lets out what the sandbox's rules allow, from now on. Repeatable: the last one counts.
    ///
    /// # Errors
    /// Nothing is let out.
    async fn open(&self, sandbox: &Sandbox, instance: &Instance) -> Result<(), PortError>;

    /// Ends every connection of the sandbox to the outside. Repeatable.
    async fn close(&self, sandbox: &Sandbox);
}

/// Contents of sandboxes, kept elsewhere.
#[async_trait]
pub trait Snapshots: Send + Sync + 'static {
    /// Streams what is in a running sandbox to a place. Its processes go on.
    ///
    /// # Errors
    /// Nothing that could be taken for a snapshot is left there.
    async fn take(&self, sandbox: &Sandbox, instance: &Instance, wanted: &SnapshotOrder)
    -> Result<Snapshot, PortError>;

    /// Puts what a snapshot holds into a running sandbox, in place of what is there. Repeatable.
    ///
    /// # Errors
    /// What was there is there still.
    async fn restore(&self, sandbox: &Sandbox, instance: &Instance, from: &SnapshotUri) -> Result<(), PortError>;
}

/// A snapshot that is to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotOrder {
    /// Where to.
    pub destination: SnapshotUri,
    /// With what is in the workspace.
    pub workspace: bool,
    /// With what is in the agent's home.
    pub state: bool,
}

/// A snapshot that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Where it is, with its hash.
    pub uri: SnapshotUri,
    /// Its length in bytes, compressed.
    pub size_bytes: u64,
}

/// Where sandboxes are remembered over a restart.
#[async_trait]
pub trait Sandboxes: Send + Sync + 'static {
    /// Remembers, durably before it returns.
    ///
    /// # Errors
    /// It may not have been written.
    async fn save(&self, sandbox: &Sandbox) -> Result<(), PortError>;
}

/// Something asked of a port that was not done.
#[derive(Debug, thiserror::Error)]
#[error("{failure}")]
pub struct PortError {
    /// What the customer is told.
    pub failure: Failure,
    /// What the log is told.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}

impl PortError {
    /// `source`, told to the customer as `message` under `code`.
    pub fn new(code: FailureCode, message: impl Into<String>, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { failure: Failure::new(code, message), source: source.into() }
    }
}

/// Why a sidecar did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// The command was begun, and what became of it is not known any more.
    #[error("the execution is lost")]
    Lost,
    /// It refused the request.
    #[error("refused: {0}")]
    Refused(String),
    /// It is of an older release, which knows no such thing.
    #[error("the sidecar is of an older release")]
    Outdated,
    /// Too much runs in the sandbox.
    #[error("too much runs in the sandbox")]
    Busy,
    /// It has nothing of that kind.
    #[error("{0}")]
    NotOffered(Failure),
    /// It could not be reached; the command was not sent.
    #[error("the sidecar cannot be reached")]
    NotSent(#[source] Box<dyn Error + Send + Sync>),
    /// No answer; the command may have run.
    #[error("the sidecar does not answer")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
}
