//! The one layer that tries again: retryable failures only, with full jitter, as often as is bounded.

use std::time::Duration;

use tokio::time::Instant;

use super::failure::Failure;
use super::settings::ProviderLimits;
use crate::model::ModelError;

/// Between two looks whether something gets out of the sandbox again, on average.
const SHUT_IN_PAUSE: Duration = Duration::from_millis(250);

/// The attempts of one call.
pub(super) struct Attempts<'a> {
    limits: &'a ProviderLimits,
    failed: u32,
    /// Since when nothing gets out of the sandbox.
    shut_in: Option<Instant>,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(limits: &'a ProviderLimits) -> Self {
        Self { limits, failed: 0, shut_in: None }
    }

    /// Attempts that have failed.
    pub(super) fn failed(&self) -> u32 {
        self.failed
    }

    /// Waits until the next attempt.
    ///
    /// # Errors
    /// The failure, if there is none.
    pub(super) async fn pause(&mut self, failure: Failure) -> Result<(), ModelError> {
        if failure.is_shut_in {
            // No attempt: the provider heard nothing of it.
            let since = *self.shut_in.get_or_insert_with(Instant::now);
            if since.elapsed() < self.limits.shut_in_max {
                tokio::time::sleep(SHUT_IN_PAUSE.mul_f64(0.5 + rand::random::<f64>())).await;
                return Ok(());
            }
        }
        self.shut_in = None;
        self.failed += 1;
        let Some(pause) = self.next(&failure, rand::random()) else { return Err(failure.error) };
        tracing::debug!(attempt = self.failed, error = %failure.error, ?pause, "a provider is asked again");
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// How long is waited, with this chance; `None` if it is in vain.
    fn next(&self, failure: &Failure, chance: f64) -> Option<Duration> {
        if !failure.error.is_retryable() || self.failed >= self.limits.attempts_max {
            return None;
        }
        let doubled = 2_u32.saturating_pow(self.failed.saturating_sub(1));
        let widest = self.limits.backoff_base.saturating_mul(doubled).min(self.limits.backoff_max);
        let jitter = widest.mul_f64(chance.clamp(0.0, 1.0));
        match failure.retry_after {
            None => Some(jitter),
            // Everybody was told the same time; who keeps it to the letter meets all others.
            Some(told) => (told <= self.limits.retry_after_max).then(|| told + jitter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ProviderLimits = ProviderLimits {
        attempts_max: 4,
        backoff_base: Duration::from_millis(100),
        backoff_max: Duration::from_millis(300),
        retry_after_max: Duration::from_secs(5),
        ..ProviderLimits::DEFAULT
    };

    fn check(failed: u32, retry_after_ms: Option<u64>, chance: f64, waited_ms: Option<u64>) {
        let failure = Failure {
            error: ModelError::Failed { status: 500 },
            retry_after: retry_after_ms.map(Duration::from_millis),
            is_shut_in: false,
        };
        let attempts = Attempts { limits: &LIMITS, failed, shut_in: None };
        assert_eq!(
            attempts.next(&failure, chance),
            waited_ms.map(Duration::from_millis),
            "{failed} {retry_after_ms:?}"
        );
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_are_jittered_in_full() {
        check(1, None, 0.0, Some(0));
        check(1, None, 1.0, Some(100));
        check(2, None, 0.5, Some(100));
        check(3, None, 1.0, Some(300));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_shut_in_waits_for_the_way_out_and_has_made_no_attempt() {
        let shut = || Failure { is_shut_in: true, ..Failure::from(ModelError::Failed { status: 503 }) };
        let mut attempts = Attempts::new(&LIMITS);
        let begun = Instant::now();
        while begun.elapsed() < LIMITS.shut_in_max {
            attempts.pause(shut()).await.unwrap();
            assert_eq!(attempts.failed(), 0);
        }
        attempts.pause(shut()).await.unwrap();
        assert_eq!(attempts.failed(), 1);
    }

    #[test]
    fn the_fourth_failure_is_the_last() {
        check(3, None, 0.0, Some(0));
        check(4, None, 0.0, None);
    }

    #[test]
    fn what_the_provider_says_is_kept_up_to_a_bound() {
        check(1, Some(5_000), 0.0, Some(5_000));
        check(1, Some(5_001), 0.0, None);
        check(1, Some(2_000), 1.0, Some(2_100));
    }

    #[test]
    fn what_would_fail_again_is_not_tried_again() {
        let attempts = Attempts { limits: &LIMITS, failed: 1, shut_in: None };
        for error in [
            ModelError::Refused,
            ModelError::Rejected(String::new()),
            ModelError::ContextOverflow,
            ModelError::Forbidden,
            ModelError::Settings(""),
        ] {
            assert_eq!(attempts.next(&Failure::from(error), 0.5), None);
        }
    }
}
