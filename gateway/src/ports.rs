//! What the gateway wants of the operator around it.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
pub use sandbox_fleet::ports::Pipe;
use sandbox_protocol::SandboxId;
use sandbox_protocol::ssh::PublicKey;
use serde::Serialize;

/// Where a key stands with a sandbox that has it on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It opens the sandbox.
    Open,
    /// It did, up to this block.
    Expired {
        /// The last block in which it opened the sandbox.
        at_block: u64,
    },
}

/// Why somebody whose key opens a sandbox is not let in. Told to them only.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Barred {
    /// It is stopped, and is not to be resumed by a visit.
    #[error("the sandbox is stopped; resume it, or connect as user <id>+resume")]
    Stopped,
    /// It is not there any more, or not yet.
    #[error("the sandbox does not run: {0}")]
    NotRunning(String),
    /// It was to be resumed, and that failed.
    #[error("the sandbox could not be resumed: {0}")]
    NotResumed(String),
    /// The operator is stopping, or cannot tell.
    #[error("the operator cannot let you in now; try again later")]
    Later,
}

/// Why a connection into a sandbox is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Over {
    /// The key was revoked.
    #[error("the key was revoked")]
    Revoked,
    /// The key's time is over.
    #[error("the key has expired")]
    Expired,
    /// The container that was entered does not run any more.
    #[error("the sandbox does not run any more")]
    Sandbox,
    /// The operator ends.
    #[error("the operator is ending; connect again")]
    Operator,
}

/// Why there is no way from a sandbox to a place outside.
#[derive(Debug, thiserror::Error)]
pub enum OutsideError {
    /// The sandbox's rules, or the operator's, forbid it.
    #[error("the sandbox's egress rules do not allow it")]
    Forbidden,
    /// Nobody answers there.
    #[error("no connection")]
    Unreachable(#[source] io::Error),
}

/// What is on record of keys, and the sandboxes behind them.
#[async_trait]
pub trait Doors: Send + Sync + 'static {
    /// Where `key` stands with `sandbox`; `None` for a stranger, and for a sandbox that nobody knows. As quick for one as
    /// for the other.
    fn standing(&self, sandbox: SandboxId, key: &PublicKey) -> Option<Standing>;

    /// Lets in whoever has proven to have `key`, whose standing is open. With `resume`, a stopped sandbox is started.
    ///
    /// # Errors
    /// [`Barred`]
    async fn enter(&self, sandbox: SandboxId, key: &PublicKey, resume: bool) -> Result<Box<dyn Room>, Barred>;

    /// Keeps what happened for the operator's audit. Never waits.
    fn note(&self, entry: AuditEntry);
}

/// A running sandbox, entered with a key.
#[async_trait]
pub trait Room: Send + Sync + 'static {
    /// A new connection to the sidecar, on which it speaks HTTP/1.
    ///
    /// # Errors
    /// It takes none.
    async fn connect(&self) -> io::Result<Box<dyn Pipe>>;

    /// What a request to the sidecar carries behind `authorization:`.
    fn authorization(&self) -> String;

    /// A connection from the sandbox to a place outside, under its rules.
    ///
    /// # Errors
    /// [`OutsideError`]
    async fn outside(&self, host: &str, port: u16) -> Result<Box<dyn Pipe>, OutsideError>;

    /// Notes that the sandbox is in use. Cheap.
    fn touch(&self);

    /// Returns once the key opens the sandbox no more, or there is nothing to be opened.
    async fn over(&self) -> Over;
}

/// One line of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditEntry {
    /// Number of the connection in this life of the operator, from 1.
    pub connection: u64,
    /// Address that it came from.
    pub peer: String,
    /// The sandbox; nothing before a key was proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxId>,
    /// Fingerprint of the proven key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What happened.
    pub event: AuditEvent,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum AuditEvent {
    /// Somebody was let in.
    Entered {
        /// What the client calls itself.
        client: String,
    },
    /// Somebody who has proven a key on record was not let in.
    Barred {
        /// Why.
        reason: String,
    },
    /// A channel was opened.
    Opened {
        /// Its number in the connection.
        channel: u32,
        /// `shell`, `command`, `sftp`, `forward`, `agent`, …
        kind: &'static str,
        /// The command, or where it leads to.
        detail: String,
    },
    /// A channel was closed.
    Closed {
        /// Its number in the connection.
        channel: u32,
        /// Bytes from the customer.
        bytes_in: u64,
        /// Bytes to the customer.
        bytes_out: u64,
        /// How it ended: `exit 0`, `signal 9`, `closed`, …
        end: String,
    },
    /// The connection ended.
    Left {
        /// Why.
        reason: String,
        /// How long it lasted.
        #[serde(serialize_with = "seconds")]
        lasted: Duration,
    },
}

fn seconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
