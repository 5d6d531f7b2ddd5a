//! The port of what survives the process: calls that need not be made again.

use std::io;

use async_trait::async_trait;

use super::call::Completed;

/// What survives the process, of one move.
#[async_trait]
pub trait Checkpoints: Send + Sync {
    /// All that former lives recorded, in their order.
    fn load(&self) -> Vec<Completed>;

    /// Records a call. When it returns, the record outlives this process, and is on its way to the disk. Calls of a stage are
    /// recorded at the same time.
    ///
    /// # Errors
    /// Why it may be lost. The debate goes on and its report says so.
    async fn record(&self, completed: &Completed) -> Result<(), CheckpointError>;

    /// Returns when all that was recorded outlives the machine.
    ///
    /// # Errors
    /// Why it may not. The debate goes on and its report says so.
    async fn settle(&self) -> Result<(), CheckpointError>;
}

/// Why calls cannot be remembered.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file of former calls cannot be opened or read.
    #[error("cannot open the record of calls")]
    Open(#[source] io::Error),
    /// The file is longer than any move's can be.
    #[error("the record of calls has {bytes} bytes, at most {bytes_max}")]
    TooLong {
        /// Its length.
        bytes: u64,
        /// Most that there can be.
        bytes_max: u64,
    },
    /// A call has no form in JSON.
    #[error("cannot write a call as JSON")]
    Encode(#[source] serde_json::Error),
    /// The file cannot be written.
    #[error("cannot write the record of calls")]
    Write(#[source] io::Error),
    /// The disk failed, and what lies behind that place would not be read.
    #[error("the record of calls is broken off")]
    BrokenOff,
}
