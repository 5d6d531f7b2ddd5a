//! Who waits for a change of which run: each is woken by that run alone.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::records::RunKey;

/// All who wait.
#[derive(Default)]
pub(super) struct Waiters(Mutex<HashMap<RunKey, watch::Sender<()>>>);

impl Waiters {
    /// Tells when something of this run was written, and of no other.
    pub(super) fn watch(&self, run: RunKey) -> watch::Receiver<()> {
        let mut of = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        of.retain(|_, changed| changed.receiver_count() > 0);
        of.entry(run).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Something of this run was written.
    pub(super) fn tell(&self, run: RunKey) {
        if let Some(changed) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&run) {
            changed.send_replace(());
        }
    }
}

#[cfg(test)]
mod tests {
    use sandbox_protocol::CallKey;

    use super::*;

    #[test]
    fn who_waits_hears_of_its_run_alone_and_nothing_is_kept_of_those_that_left() {
        let waiters = Waiters::default();
        let run = |number| RunKey { workflow: CallKey { service: 1, call: 2 }, number };
        for number in 10..20 {
            drop(waiters.watch(run(number)));
        }
        let waiting = waiters.watch(run(1));
        assert_eq!(waiters.0.lock().unwrap().len(), 1);
        waiters.tell(run(2));
        assert!(!waiting.has_changed().unwrap());
        waiters.tell(run(1));
        assert!(waiting.has_changed().unwrap());
    }
}
