//! The chain as the operator meets it: what it reads (calls, requests, heads) and what it sends (receipts, approvals).
//!
//! Reading is at least once and remembered; sending is by one task that owns the key. The stock producer and consumer of
//! the Blueprint SDK lose calls over an outage and end the process on a refused transaction; [`source`] and [`outbox`]
//! stand in their places.

pub(crate) mod approvals;
pub(crate) mod connect;
pub(crate) mod head;
pub(crate) mod key;
pub(crate) mod outbox;
pub(crate) mod registration;
pub(crate) mod sender;
pub(crate) mod source;

use std::time::Duration;

/// First pause after a question that the node did not answer; it doubles.
pub(crate) const RETRY_PAUSE_MIN: Duration = Duration::from_millis(250);
/// Longest such pause.
pub(crate) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(15);

/// Asks until there is an answer.
pub(crate) async fn until_answered<T, E, F>(question: &'static str, ask: impl Fn() -> F) -> T
where
    E: std::error::Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    let mut pause = RETRY_PAUSE_MIN;
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => tracing::warn!(question, error = %crate::error_chain(&error), "no answer; asking again"),
        }
        tokio::time::sleep(pause).await;
        pause = Duration::min(pause * 2, RETRY_PAUSE_MAX);
    }
}
