//! Whether a sandbox is in use, which its idle clock asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The uses of one sandbox. Clones share them.
#[derive(Debug, Clone)]
pub struct Activity(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Debug)]
struct State {
    uses: usize,
    last: Instant,
}

/// A use that goes on until this is dropped.
#[derive(Debug)]
#[must_use = "a use ends when this is dropped"]
pub struct Use(Activity);

impl Default for Activity {
    fn default() -> Self {
        let state = State { uses: 0, last: Instant::now() };
        Self(Arc::new(Shared { state: Mutex::new(state), ended: Notify::new() }))
    }
}

impl Activity {
    /// Begins a use.
    pub fn begin(&self) -> Use {
        self.state().uses += 1;
        Use(self.clone())
    }

    /// Something happened just now: a byte went through, say.
    pub fn touch(&self) {
        self.state().last = Instant::now();
    }

    /// Returns once nothing has happened for `timeout`.
    pub(crate) async fn idle_for(&self, timeout: Duration) {
        loop {
            let ended = self.0.ended.notified();
            let since = {
                let state = self.state();
                (state.uses == 0).then_some(state.last)
            };
            match since {
                None => ended.await,
                Some(since) if since.elapsed() >= timeout => return,
                Some(since) => tokio::time::sleep_until(since + timeout).await,
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.uses -= 1;
        state.last = Instant::now();
        drop(state);
        self.0.0.ended.notify_one();
    }
}
