//! Which calls are being written, and who waits for a change of which call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandbox_protocol::CallKey;
use tokio::sync::watch;

/// The changes of all calls. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Changes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// How many writes of a call are not on disk yet.
    writing: HashMap<CallKey, usize>,
    watched: HashMap<CallKey, watch::Sender<()>>,
}

impl Changes {
    /// Tells when something of this call has come onto the disk, and of no other.
    pub(super) fn watch(&self, call: CallKey) -> watch::Receiver<()> {
        let watched = &mut self.state().watched;
        watched.retain(|_, changed| changed.receiver_count() > 0);
        watched.entry(call).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// A write of these calls is on its way.
    pub(super) fn begin(&self, calls: &[CallKey]) {
        let mut state = self.state();
        for call in calls {
            *state.writing.entry(*call).or_default() += 1;
        }
    }

    /// The write is on disk.
    pub(super) fn end(&self, calls: &[CallKey]) {
        let mut state = self.state();
        for call in calls {
            if let Some(writes) = state.writing.get_mut(call) {
                *writes -= 1;
            }
            if state.writing.get(call) == Some(&0) {
                state.writing.remove(call);
            }
            if let Some(changed) = state.watched.get(call) {
                changed.send_replace(());
            }
        }
    }

    /// Whether a write of this call is not on disk yet.
    pub(super) fn is_writing(&self, call: CallKey) -> bool {
        self.state().writing.contains_key(&call)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: CallKey = CallKey { service: 1, call: 1 };
    const OTHER: CallKey = CallKey { service: 1, call: 2 };

    #[test]
    fn a_watcher_hears_of_its_call_only() {
        let changes = Changes::default();
        let watch = changes.watch(ONE);
        changes.begin(&[ONE, OTHER]);
        changes.end(&[OTHER]);
        assert!(!watch.has_changed().unwrap());
        changes.end(&[ONE]);
        assert!(watch.has_changed().unwrap());
    }

    #[test]
    fn a_call_is_being_written_until_its_last_write_is_on_disk() {
        let changes = Changes::default();
        changes.begin(&[ONE]);
        changes.begin(&[ONE, OTHER]);
        changes.end(&[ONE]);
        assert!(changes.is_writing(ONE));
        changes.end(&[ONE, OTHER]);
        assert!(!changes.is_writing(ONE) && !changes.is_writing(OTHER));
    }

    #[test]
    fn nothing_is_kept_of_watchers_that_left() {
        let changes = Changes::default();
        for call in 0..100 {
            drop(changes.watch(CallKey { service: 1, call }));
        }
        let _watch = changes.watch(ONE);
        assert_eq!(changes.state().watched.len(), 1);
    }
}
