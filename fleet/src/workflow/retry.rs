//! Which attempts are followed by another, and when.

use sandbox_protocol::FailureCode;
use sandbox_protocol::limits::WORKFLOW_BACKOFF_MS_MAX;
use sandbox_protocol::workflow::body::Retry;

/// Whether a failure is followed by another attempt, as long as there are any: unless the same again comes to the same for sure.
/// Who says `retry` says that a step may be carried out more than once, so one whose result is lost is begun again as well.
pub(super) const fn is_worth_another(code: FailureCode) -> bool {
    match code {
        FailureCode::BadRequest
        | FailureCode::Unsupported
        | FailureCode::ResourcesOutOfRange
        | FailureCode::ImageNotAllowed
        | FailureCode::BadEnv
        | FailureCode::SealedUnreadable
        | FailureCode::SealedElsewhere
        | FailureCode::SnapshotRefused
        | FailureCode::SnapshotUnreadable
        | FailureCode::UnknownBackend
        | FailureCode::UnknownProfile
        | FailureCode::ProviderRefused
        | FailureCode::Cancelled
        | FailureCode::SandboxLost
        | FailureCode::Hardening => false,
        FailureCode::Timeout
        | FailureCode::MemoryLimit
        | FailureCode::OutputLimit
        | FailureCode::SandboxBusy
        | FailureCode::SandboxStopped
        | FailureCode::DiskQuota
        | FailureCode::NoSuccess
        | FailureCode::ModelUnavailable
        | FailureCode::SnapshotStore
        | FailureCode::NoCapacity
        | FailureCode::ImageMissing
        | FailureCode::DiskFull
        | FailureCode::Engine
        | FailureCode::SandboxUnreachable
        | FailureCode::Interrupted
        | FailureCode::Internal => true,
    }
}

/// Milliseconds between this attempt, from 1 on, and the next.
pub(super) fn pause_ms(retry: Retry, attempt: u32) -> u64 {
    let doubled = 2_u64.saturating_pow(attempt.saturating_sub(1));
    retry.backoff_ms.saturating_mul(doubled).min(WORKFLOW_BACKOFF_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pauses = |backoff_ms| {
            [1, 2, 3, 4, 10, u32::MAX].map(|attempt| pause_ms(Retry { max_attempts: 10, backoff_ms }, attempt))
        };
        assert_eq!(pauses(1_000), [1_000, 2_000, 4_000, 8_000, 512_000, WORKFLOW_BACKOFF_MS_MAX]);
        assert_eq!(pauses(0), [0; 6]);
        assert_eq!(pauses(WORKFLOW_BACKOFF_MS_MAX), [WORKFLOW_BACKOFF_MS_MAX; 6]);
    }

    #[test]
    fn what_comes_to_the_same_again_is_not_tried_again() {
        assert!(!is_worth_another(FailureCode::BadRequest) && !is_worth_another(FailureCode::SandboxLost));
        assert!(is_worth_another(FailureCode::NoSuccess) && is_worth_another(FailureCode::Timeout));
        assert!(is_worth_another(FailureCode::Interrupted) && is_worth_another(FailureCode::NoCapacity));
    }
}
