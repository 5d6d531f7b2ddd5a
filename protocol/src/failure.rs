//! Why a job was not done, and whose matter that is: the one table from reasons to outcomes.

use std::fmt;

use crate::abi::JobError;
use crate::receipt::Outcome;

/// A reason. The text form travels in receipts and error bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FailureCode {
    /// A field is not what its description demands.
    BadRequest,
    /// A valid request for something that this operator does not offer.
    Unsupported,
    /// Cores, memory or disk outside what may be asked for.
    ResourcesOutOfRange,
    /// The image is not on the operator's allow-list.
    ImageNotAllowed,
    /// `env_json` is not a JSON object of strings within its bounds.
    BadEnv,
    /// A sealed field is not of the form, too long, changed, or sealed to other operators.
    SealedUnreadable,
    /// A sealed field was written for another chain, service, caller, job or field.
    SealedElsewhere,
    /// The command ran longer than it was given.
    Timeout,
    /// The command, and what it started, used up the memory they may have, and were killed for it.
    MemoryLimit,
    /// The command wrote more than is kept, and was killed; what was kept is in the response.
    OutputLimit,
    /// The caller's own commands in the sandbox are as many as may run at once.
    SandboxBusy,
    /// The sandbox is stopped; it can be resumed.
    SandboxStopped,
    /// The place that was named for a snapshot may not be used, or does not take it.
    SnapshotRefused,
    /// The snapshot that was named cannot be read, or is not what its hash says.
    SnapshotUnreadable,
    /// The sandbox's own disk is too small.
    DiskQuota,
    /// The backend is none of those that sandboxes have.
    UnknownBackend,
    /// The agent profile is none of those that the operator has.
    UnknownProfile,
    /// The model's provider does not accept the caller's key.
    ProviderRefused,
    /// It was given up before its end: by its owner, or since another item of its batch had succeeded.
    Cancelled,
    /// What was to succeed did not: no item of a batch's part that was to have one success, or a step of a workflow. What
    /// came of it is in the response.
    NoSuccess,
    /// The operator's own provider of models refuses its key, or does not answer.
    ModelUnavailable,
    /// The operator's own store for snapshots failed.
    SnapshotStore,
    /// The operator has no room for another sandbox.
    NoCapacity,
    /// The image that the operator promises is not there.
    ImageMissing,
    /// The operator's disk is full.
    DiskFull,
    /// The container engine failed or was too slow.
    Engine,
    /// The started container is not as hardened as promised.
    Hardening,
    /// The sandbox is gone though nobody deleted it.
    SandboxLost,
    /// The sandbox did not answer.
    SandboxUnreachable,
    /// The command may have run, but its result is lost; it is not run again.
    Interrupted,
    /// A defect of the operator's; the message holds a reference for its log.
    Internal,
}

impl FailureCode {
    /// Whose matter it is.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::BadRequest
            | Self::Unsupported
            | Self::ResourcesOutOfRange
            | Self::ImageNotAllowed
            | Self::BadEnv
            | Self::SealedUnreadable
            | Self::SealedElsewhere
            | Self::Timeout
            | Self::MemoryLimit
            | Self::OutputLimit
            | Self::SandboxBusy
            | Self::SandboxStopped
            | Self::SnapshotRefused
            | Self::SnapshotUnreadable
            | Self::DiskQuota
            | Self::UnknownBackend
            | Self::UnknownProfile
            | Self::ProviderRefused
            | Self::Cancelled
            | Self::NoSuccess => Outcome::Caller,
            Self::ModelUnavailable
            | Self::SnapshotStore
            | Self::NoCapacity
            | Self::ImageMissing
            | Self::DiskFull
            | Self::Engine
            | Self::Hardening
            | Self::SandboxLost
            | Self::SandboxUnreachable
            | Self::Interrupted
            | Self::Internal => Outcome::Operator,
        }
    }

    /// Whether the same request may succeed later, or elsewhere.
    pub const fn retryable(self) -> bool {
        match self {
            Self::SandboxBusy
            | Self::ModelUnavailable
            | Self::SnapshotStore
            | Self::NoCapacity
            | Self::ImageMissing
            | Self::DiskFull
            | Self::Engine
            | Self::SandboxUnreachable
            | Self::Internal => true,
            Self::BadRequest
            | Self::Unsupported
            | Self::ResourcesOutOfRange
            | Self::ImageNotAllowed
            | Self::BadEnv
            | Self::SealedUnreadable
            | Self::SealedElsewhere
            | Self::Timeout
            | Self::MemoryLimit
            | Self::OutputLimit
            | Self::SandboxStopped
            | Self::SnapshotRefused
            | Self::SnapshotUnreadable
            | Self::DiskQuota
            | Self::UnknownBackend
            | Self::UnknownProfile
            | Self::ProviderRefused
            | Self::Cancelled
            | Self::NoSuccess
            | Self::Hardening
            | Self::SandboxLost
            | Self::Interrupted => false,
        }
    }

    /// Whether the response is the job's own, holding what was gathered until the limit struck or the items ended, and not a
    /// [`JobError`].
    pub const fn keeps_response(self) -> bool {
        matches!(self, Self::Timeout | Self::MemoryLimit | Self::OutputLimit | Self::NoSuccess)
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde::Serialize::serialize(self, f)
    }
}

/// A reason with its sentence for the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{code}: {message}")]
pub struct Failure {
    /// The reason.
    pub code: FailureCode,
    /// What the caller should know; never internals.
    pub message: String,
}

impl Failure {
    /// A failure with its sentence.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<&Failure> for JobError {
    fn from(failure: &Failure) -> Self {
        Self { code: failure.code.to_string(), message: failure.message.clone(), retryable: failure.code.retryable() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_prints_as_it_is_serialized() {
        assert_eq!(FailureCode::ImageNotAllowed.to_string(), "image_not_allowed");
        assert_eq!(serde_json::to_string(&FailureCode::ImageNotAllowed).unwrap(), "\"image_not_allowed\"");
    }

    #[test]
    fn only_limits_of_what_ran_keep_its_response() {
        assert!(FailureCode::Timeout.keeps_response() && FailureCode::OutputLimit.keeps_response());
        assert!(!FailureCode::Interrupted.keeps_response());
    }
}
