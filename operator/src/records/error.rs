//! Why records cannot be read or written.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// An error of the record store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordsError {
    /// The directory cannot be made or used.
    #[error("cannot use the state directory {dir}")]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process holds the directory.
    #[error("the state directory {dir} is in use by another operator process")]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// The store does not open.
    #[error("cannot open the record store")]
    Open(#[source] sled::Error),
    /// The store was written by another version.
    #[error("the records have layout {found}, this version knows {known}")]
    Version {
        /// What was found.
        found: u64,
        /// What is known.
        known: u64,
    },
    /// The directory holds the state of another operator, chain or contract.
    #[error("the state directory belongs to {found}, this is {given}")]
    Foreign {
        /// Whose it is.
        found: String,
        /// Who asks for it.
        given: String,
    },
    /// The key is not the one by which the records are sealed.
    #[error("the state directory belongs to {found}, and its records do not open with the key of this keystore")]
    WrongKey {
        /// Whose it is.
        found: String,
    },
    /// A value was to be sealed or opened without a key.
    #[error("the records are sealed, and were opened without the operator's key")]
    Locked,
    /// A value is too long to be sealed.
    #[error("a record cannot be sealed")]
    Seal,
    /// A sealed value is not what was sealed under its key.
    #[error("a record does not open: it was sealed with another key, or changed, or moved from its place")]
    Unseal,
    /// A read failed.
    #[error("cannot read a record")]
    Read(#[source] sled::Error),
    /// A write failed.
    #[error("cannot write a record")]
    Write(#[source] sled::Error),
    /// A write was not synced to the disk.
    #[error("cannot sync the records to disk")]
    Sync(#[source] io::Error),
    /// A commit failed; the store takes no more until it is opened anew.
    #[error("the record store has failed; its cause is in the log above")]
    Failed,
    /// The commit of this write and those beside it failed.
    #[error("a record did not get onto the disk")]
    Commit(#[source] Arc<RecordsError>),
    /// The writer has ended.
    #[error("the record writer has stopped")]
    Stopped,
    /// A value is not what its key promises.
    #[error("a record cannot be encoded or decoded")]
    Encoding(#[source] serde_json::Error),
    /// The copy of the records was not written or read.
    #[error("cannot write or read the copy of the records")]
    Copy(#[source] io::Error),
    /// The copy of the records is not whole.
    #[error("the copy of the records is damaged at line {line}")]
    Damaged {
        /// The line, from 1.
        line: u64,
    },
    /// A copy is restored only where there are no records.
    #[error("the state directory {dir} holds records; a copy is restored where there are none")]
    InTheWay {
        /// The directory.
        dir: PathBuf,
    },
    /// An index names a record that is not there.
    #[error("an open call has no record")]
    Missing,
}
