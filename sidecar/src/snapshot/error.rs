//! Why no snapshot is made or taken. Status codes and wire words are chosen in `http::error`.

use crate::archive::Failed;
use crate::exec::ExecError;

/// Everything that keeps a snapshot from being made or taken.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Neither the workspace nor the state was asked for.
    #[error("ask for workspace=true, state=true or both")]
    NothingAsked,
    /// Workspace and home cannot be told apart.
    #[error("workspace and home lie within each other")]
    Nested,
    /// Another one is under way.
    #[error("another snapshot is under way")]
    Busy,
    /// The sidecar is ending; nothing was started.
    #[error("the sidecar is ending")]
    Ending,
    /// The sidecar ended meanwhile.
    #[error("the snapshot was broken off with the sidecar")]
    Interrupted,
    /// Whoever sent the archive stopped before its end.
    #[error("the body broke off")]
    CutOff,
    /// It took longer than it may.
    #[error("the snapshot took too long")]
    TooSlow,
    /// The process could not be started.
    #[error(transparent)]
    Start(#[from] ExecError),
    /// The process has said why not.
    #[error("{}", .0.message)]
    Failed(Failed),
    /// What became of the process cannot be known.
    #[error("the end of the snapshot was lost")]
    Lost,
}
