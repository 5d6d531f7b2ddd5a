//! Workflows as their owner sees them: what the chain says of each, with what operators tell beside it; and their webhooks
//! as senders sign them.
//!
//! The chain has the last word. What an operator tells counts for the workflows that it fires by the chain's word, and for
//! the epoch in which it fires them.

mod definition;
mod held;
mod hook;

use sandbox_protocol::CallKey;

use crate::chain::ReadError;

pub use self::definition::{Definition, Origin};
pub use self::held::{Answer, HeldWorkflow, Status, Told, trigger_name};
pub use self::hook::{HookError, HookSender, signed_curl};
pub use sandbox_protocol::workflow::sign_hook;

/// Why a workflow cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum WorkflowError {
    /// The chain could not be asked.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The chain has none.
    #[error("there is no workflow {0}")]
    None(CallKey),
    /// Its create is not in the logs of its block, or no create.
    #[error("the node does not have the call that created workflow {0}")]
    Lost(CallKey),
    /// What was found is not what the contract has the hash of.
    #[error("what the node gives as workflow {0} is not what its owner created")]
    Changed(CallKey),
}
