//! Why an execution has no reply. Status codes and wire words are chosen in `http::error`.

use std::io;
use std::sync::Arc;

use nix::errno::Errno;

use super::request::Invalid;

/// Everything that keeps an execution from a reply. Shared by all who wait for it, hence [`Clone`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExecError {
    /// The request is refused as it stands.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The working directory cannot be entered by the user that commands run as.
    #[error("the working directory cannot be entered: {}", .0.desc())]
    Directory(Errno),
    /// Command and environment together are more than the kernel hands to a process.
    #[error("command and environment are too long together")]
    TooLong,
    /// Asked to attach to an id that neither runs nor is remembered.
    #[error("no execution of this id runs or is remembered")]
    Unknown,
    /// The id belongs to another request.
    #[error("the id belongs to an execution with another request")]
    Conflict,
    /// As many executions run as may.
    #[error("as many commands run as may")]
    Full,
    /// The sandbox has no process or memory left to start with.
    #[error("the sandbox has no room for another process")]
    NoRoom,
    /// The sidecar is ending; nothing was started.
    #[error("the sidecar is ending")]
    Ending,
    /// The sidecar ended while the command ran.
    #[error("the command was ended with the sidecar")]
    Interrupted,
    /// The process could not be started for a reason that is not the caller's.
    #[error("the command could not be started")]
    Start(#[source] Arc<io::Error>),
    /// The process was started too slowly to be waited for.
    #[error("the command did not start in time")]
    SlowStart,
    /// What became of the process cannot be known.
    #[error("the end of the command was lost")]
    Lost,
}
