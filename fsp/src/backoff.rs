//! When to try again: at once, then after waits that double.

use std::time::Duration;

use crate::limits::{BACKOFF_MS_MAX, BACKOFF_MS_MIN, RETRIES_MAX};

/// The waits before each attempt to reach a sandbox again.
pub(crate) fn waits() -> impl Iterator<Item = Duration> {
    let doubled = std::iter::successors(Some(BACKOFF_MS_MIN), |wait_ms| Some((wait_ms * 2).min(BACKOFF_MS_MAX)));
    std::iter::once(0).chain(doubled).take(RETRIES_MAX as usize).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_retry_comes_at_once_and_the_others_double() {
        let waits_ms: Vec<_> = waits().map(|wait| wait.as_millis()).collect();
        assert_eq!(waits_ms, [0, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600]);
    }
}
