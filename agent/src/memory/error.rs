//! Why a session cannot be opened, added to, listed or deleted.

use std::io;

use tokio::task::JoinError;

use crate::limits::{CONTEXT_TOKENS_MIN, MEMORY_MESSAGE_BYTES_MAX, MEMORY_MESSAGES_MAX, MEMORY_SESSION_BYTES_MAX};

/// What went wrong with a session's memory. What only makes it worse, such as a failing summary, is no error.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The id is empty, too long, or has characters other than letters, digits, `-`, `_` and, not in front, `.`.
    #[error("the session's id is none")]
    SessionId,
    /// The budget holds no message.
    #[error("a context of {0} tokens is smaller than {CONTEXT_TOKENS_MIN}")]
    Budget(usize),
    /// Somebody else has the session open.
    #[error("the session is in use")]
    Busy,
    /// Its directory and files cannot be made.
    #[error("the session cannot be created")]
    Create(#[source] io::Error),
    /// Its lock cannot be asked for.
    #[error("the session cannot be locked")]
    Lock(#[source] io::Error),
    /// Its messages cannot be read.
    #[error("the session cannot be read")]
    Read(#[source] io::Error),
    /// A line of its messages is none, although others follow it.
    #[error("line {line} of the session is damaged")]
    Damaged {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A message cannot be written down.
    #[error("a message cannot be written")]
    Encode(#[source] serde_json::Error),
    /// Messages cannot be stored; none of them is remembered.
    #[error("the session cannot be written")]
    Write(#[source] io::Error),
    /// After a failed write the file could not be put back; the session must be opened anew.
    #[error("the session's file is in doubt since a write failed")]
    InDoubt,
    /// The message is too long.
    #[error("a message of {0} bytes is longer than {MEMORY_MESSAGE_BYTES_MAX}")]
    MessageTooLong(usize),
    /// The session is as long as one may be.
    #[error("the session has its {MEMORY_MESSAGES_MAX} messages or {MEMORY_SESSION_BYTES_MAX} bytes")]
    Full,
    /// The program ended while messages were stored.
    #[error("storing was interrupted")]
    Interrupted(#[source] JoinError),
    /// The sessions cannot be listed.
    #[error("the sessions cannot be listed")]
    List(#[source] io::Error),
    /// The session cannot be deleted.
    #[error("the session cannot be deleted")]
    Delete(#[source] io::Error),
}
