//! Why an execution has no result. Status codes and wire words are chosen in `http::error` and `fsp::words`.

use std::io;
use std::sync::Arc;

use nix::errno::Errno;
use sandbox_protocol::fsp::Language;

use super::order::Invalid;

/// Everything that keeps an execution from a result. Shared by all who wait for it, hence [`Clone`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum ExecError {
    /// The request is refused as it stands.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The working directory cannot be entered by the user that commands run as.
    #[error("the working directory cannot be entered: {}", .0.desc())]
    Directory(Errno),
    /// The sandbox has no program for this language.
    #[error("Language '{0}' is not available in this sandbox")]
    NoLanguage(Language),
    /// Command and environment together are more than the kernel hands to a process.
    #[error("command and environment are too long together")]
    TooLong,
    /// Asked for an id that neither runs nor is remembered.
    #[error("no execution of this id runs or is remembered")]
    Unknown,
    /// The id belongs to another request.
    #[error("the id belongs to an execution with another request")]
    Conflict,
    /// As many executions run and wait as may.
    #[error("as many executions run and wait as may")]
    Full,
    /// Its time was over while it waited for a place.
    #[error("the time was over before a place was free")]
    WaitedTooLong,
    /// The sandbox has no process or space left to start with.
    #[error("the sandbox has no room for another process")]
    NoRoom,
    /// The sandbox has no memory left to start with.
    #[error("the sandbox has no memory left for another process")]
    NoMemory,
    /// It wrote more than it may, and was killed.
    #[error("more than {bytes_max} bytes of output")]
    OutputLimit {
        /// The bound.
        bytes_max: u64,
    },
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
