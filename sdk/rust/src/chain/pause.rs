//! Pauses between looks at something that is awaited on chain.

use std::time::Duration;

use crate::limits::{CHAIN_PAUSE_MAX, CHAIN_PAUSE_MIN};

/// A pause that grows each time it is taken.
#[derive(Debug)]
pub(crate) struct Pause(Duration);

impl Pause {
    /// The shortest.
    pub(crate) const fn new() -> Self {
        Self(CHAIN_PAUSE_MIN)
    }

    /// Takes it.
    pub(crate) async fn take(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = CHAIN_PAUSE_MAX.min(self.0 * 2);
    }
}
