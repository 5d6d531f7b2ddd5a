//! The chain as the operator meets it: what it reads (calls, requests, heads) and what it sends (receipts, approvals).
//!
//! Reading is at least once and remembered; sending is by one task that owns the key. The stock producer and consumer of
//! the Blueprint SDK lose calls over an outage and end the process on a refused transaction; [`source`] and [`outbox`]
//! stand in their places. A chain takes blocks back: what was read of them and sent in them is held against what it says next,
//! and nothing is undone because it said nothing.

pub(crate) mod admittance;
pub(crate) mod approvals;
pub(crate) mod blocks;
pub(crate) mod connect;
pub(crate) mod counted;
pub(crate) mod duty;
pub(crate) mod head;
pub(crate) mod heartbeat;
pub(crate) mod key;
mod logs;
#[cfg(test)]
pub(crate) mod mocked;
pub(crate) mod notices;
pub(crate) mod outbox;
pub(crate) mod policy;
pub(crate) mod reconciler;
pub(crate) mod registration;
pub(crate) mod sender;
pub(crate) mod source;
pub(crate) mod sweep;

use crate::limits::{RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};
use std::time::Duration;

/// Asks until there is an answer. Whoever may have to stop drops the question.
pub(crate) async fn until_answered<T, E, F>(question: &'static str, ask: impl Fn() -> F) -> T
where
    E: std::error::Error + 'static,
    F: Future<Output = Result<T, E>>,
{
    until_answered_within(question, RETRY_PAUSE_MAX, ask).await
}

/// The same with pauses of at most `pause_max`.
pub(crate) async fn until_answered_within<T, E, F>(
    question: &'static str,
    pause_max: Duration,
    ask: impl Fn() -> F,
) -> T
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
        pause = Duration::min(pause * 2, pause_max);
    }
}
