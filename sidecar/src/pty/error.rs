//! Why there is no terminal, or no view of it. Status codes and wire words are chosen in `http::error`.

use std::io;

use sandbox_protocol::limits::{PTY_COLS_MAX, PTY_ROWS_MAX, PTY_TERM_BYTES_MAX, PTY_TERMINALS_MAX, PTY_VIEWERS_MAX};

use crate::exec::{ExecError, Invalid};

/// Everything that keeps a viewer from a terminal.
#[derive(Debug, thiserror::Error)]
pub enum PtyError {
    /// Command, directory or environment are refused as they stand.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// No size that a terminal can have.
    #[error("size: give 1 to {PTY_COLS_MAX} cols and 1 to {PTY_ROWS_MAX} rows")]
    Size,
    /// No name that a terminal can have.
    #[error("term: give 1 to {PTY_TERM_BYTES_MAX} letters, digits and any of + - . _")]
    Term,
    /// A viewer that has more than was ever shown.
    #[error("since: {since}, but the terminal has shown {offset} bytes")]
    Since {
        /// What was asked for.
        since: u64,
        /// What there is.
        offset: u64,
    },
    /// No terminal of this id runs or is remembered.
    #[error("no terminal of this id runs or is remembered")]
    Unknown,
    /// As many terminals run as may.
    #[error("as many terminals run as may: {PTY_TERMINALS_MAX}")]
    Full,
    /// As many view the terminal as may.
    #[error("as many view the terminal as may: {PTY_VIEWERS_MAX}")]
    ManyViewers,
    /// The sidecar is ending; nothing was started.
    #[error("the sidecar is ending")]
    Ending,
    /// The kernel gives no terminal.
    #[error("no terminal could be opened")]
    Open(#[source] io::Error),
    /// The shell could not be started.
    #[error("{0}")]
    Start(#[from] ExecError),
}
