//! Why a workflow was not fired, read or changed.

use sandbox_fleet::Unfinished;
use sandbox_protocol::workflow::HookFault;
use sandbox_protocol::{Failure, FailureCode};
use sandbox_sdk::chain::ReadError;

use crate::records::RecordsError;

/// Why something was not done with a workflow.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkflowError {
    /// There is none of that id here, or it is not this customer's.
    #[error("this operator fires no such workflow of this customer")]
    Unknown,
    /// It has no such run, or not any more.
    #[error("the workflow has no such run, or it is not kept any more")]
    NoRun,
    /// Its owner paused it.
    #[error("the workflow is paused")]
    Paused,
    /// The instant was fired before.
    #[error("this instant was fired before")]
    FiredBefore,
    /// Another operator may have come to fire it, and this one would not know.
    #[error("nothing is fired now: {0}")]
    Blind(&'static str),
    /// No request fires it.
    #[error("no request fires this workflow: its trigger is {0}")]
    NoHook(&'static str),
    /// A request that proves nothing.
    #[error(transparent)]
    Hook(#[from] HookFault),
    /// As many webhooks came as can be told from repeats: who forgot some would fire for them again.
    #[error("too many webhooks of this workflow; the next is taken a little later")]
    Crowded,
    /// The sandboxes were not asked.
    #[error("the operator's sandbox keeper takes too long to answer")]
    Keeper,
    /// A task of this process's own broke off.
    #[error("the operator failed")]
    BrokeOff(#[from] tokio::task::JoinError),
    /// Its text cannot be carried out.
    #[error(transparent)]
    Text(Failure),
    /// The records were not read or written.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The chain was not asked.
    #[error(transparent)]
    Chain(#[from] ReadError),
    /// The chain's log does not hold the text of the hash on chain, or the node does not serve it.
    #[error("the text of the workflow is not to be had from the chain's logs now")]
    NoText,
}

impl WorkflowError {
    /// What a job is answered; a store that failed ends the process, and its next life goes on.
    pub(crate) fn unfinished(self) -> Unfinished {
        let code = match &self {
            Self::Unknown => FailureCode::SandboxLost,
            Self::NoRun | Self::Paused | Self::FiredBefore | Self::NoHook(_) | Self::Hook(_) => FailureCode::BadRequest,
            Self::Text(failure) => return failure.clone().into(),
            Self::Chain(_) | Self::NoText | Self::Blind(_) | Self::Crowded | Self::Keeper | Self::BrokeOff(_) => {
                FailureCode::Internal
            }
            Self::Records(_) => return Unfinished::Stopping,
        };
        Failure::new(code, self.to_string()).into()
    }
}
