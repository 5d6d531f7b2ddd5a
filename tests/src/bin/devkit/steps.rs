//! Steps of a journey, shown as they are done.

use std::time::Instant;

use anyhow::{Context, Result};

/// Counts and times steps.
pub(crate) struct Steps {
    begun: Instant,
    done: usize,
}

impl Steps {
    /// None done yet.
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), done: 0 }
    }

    /// Does a step and shows it with its time; `note` turns what it gave into a few words.
    pub(crate) async fn step<T>(
        &mut self,
        what: &str,
        doing: impl Future<Output = Result<T>>,
        note: impl FnOnce(&T) -> String,
    ) -> Result<T> {
        let begun = Instant::now();
        let done = doing.await.with_context(|| what.to_owned())?;
        self.done += 1;
        println!("✔ {:>2}  {what:<44} {:>7.2} s  {}", self.done, begun.elapsed().as_secs_f64(), note(&done));
        Ok(done)
    }

    /// The time since the first step began, in seconds.
    pub(crate) fn total_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}
