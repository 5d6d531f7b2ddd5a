//! What tools need of the world: a sandbox that runs programs, and its files. Fakes are in [`super::fakes`].

use std::collections::BTreeMap;

use async_trait::async_trait;
use sandbox_fsp::FspError;
use sandbox_protocol::files::{FileKind, FilesRefusal};
use sandbox_protocol::fsp::{Language, Status};

/// Runs programs as the agent's user.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Runs a program to its end, or attaches to the one that runs or ran under the same id. Whoever drops this wants it
    /// ended, with all that it started.
    ///
    /// # Errors
    /// Nothing is known of its end.
    async fn run(&self, execution: Execution) -> Result<Ran, SandboxError>;
}

/// A program that is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    /// The sandbox runs what has this id once, however often it is asked.
    pub id: String,
    /// Of `code`.
    pub language: Language,
    /// Source code.
    pub code: String,
    /// Where it runs: absolute, or beneath the workspace; empty is the workspace itself, `None` a fresh directory.
    pub cwd: Option<String>,
    /// What it reads.
    pub stdin: Option<String>,
    /// Added to the clean environment.
    pub env: BTreeMap<String, String>,
    /// Its time in milliseconds.
    pub timeout_ms: u64,
    /// Memory of all its processes together; 0, with `cwd` only, leaves it to the sandbox's own limit.
    pub memory_mb: u64,
    /// Do not run it if it is not known: [`SandboxError::Unknown`].
    pub attach_only: bool,
}

/// What became of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// How it ended; never [`Status::Running`].
    pub ended: Status,
    /// Exit code; `None` for a program that was killed.
    pub exit_code: Option<i32>,
    /// What it wrote, as much as was kept.
    pub stdout: String,
    /// What it wrote, as much as was kept.
    pub stderr: String,
    /// Some of what it wrote was not kept.
    pub truncated: bool,
}

/// Why nothing is known of a program's end.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// Something between here and the sandbox, or the sandbox would not.
    #[error(transparent)]
    Fsp(#[from] FspError),
    /// It was to be attached to and the sandbox knows nothing of it: it has run, in part or not at all.
    #[error("the sandbox does not know this execution")]
    Unknown,
}

/// The files that the agent's user sees. Paths are absolute, or beneath the workspace.
#[async_trait]
pub trait Files: Send + Sync {
    /// Reads a file's beginning, at most so many bytes.
    ///
    /// # Errors
    /// It is not read.
    async fn read(&self, path: &str, bytes_max: usize) -> Result<Content, FilesError>;

    /// Writes a file, whole or not at all, with the directories that are missing on the way to it; only if it still is what
    /// `etag` says, where that is given.
    ///
    /// # Errors
    /// It is as it was, or nobody knows.
    async fn write(&self, path: &str, content: &[u8], etag: Option<&str>) -> Result<(), FilesError>;

    /// What a directory holds, in the order of names, at most so many.
    ///
    /// # Errors
    /// It is not read.
    async fn list(&self, path: &str, entries_max: usize) -> Result<Listing, FilesError>;
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// Its beginning.
    pub bytes: Vec<u8>,
    /// Its whole length.
    pub length: u64,
    /// Another one after every change.
    pub etag: String,
}

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// In the order of their names.
    pub entries: Vec<Entry>,
    /// There are others.
    pub more: bool,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name; bytes that are no UTF-8 are U+FFFD.
    pub name: String,
    /// What it stands for.
    pub kind: FileKind,
    /// Length in bytes.
    pub bytes: u64,
}

/// Why nothing was done with a file.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The sandbox would not.
    #[error("{message}")]
    Refused {
        /// Why.
        refusal: FilesRefusal,
        /// In words.
        message: String,
    },
    /// The sandbox is not to be reached, or said something else.
    #[error("the sandbox's files cannot be reached")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}
