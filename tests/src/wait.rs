//! Waiting for states, never for seconds.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Looks until `look` finds something.
///
/// # Errors
/// It did not within `bound`.
pub async fn until<T, F>(what: &str, bound: Duration, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Option<T>>,
{
    let started = Instant::now();
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        if started.elapsed() > bound {
            bail!("waited {} s for {what}", bound.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Lets time pass, for tests whose subject is an instant: when a process dies, say. No test may wait for a state by it.
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
