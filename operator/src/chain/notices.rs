//! What the reader of the chain saw of workflows, for who keeps them in step: only that something changed, not what.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sandbox_protocol::CallKey;
use tokio::sync::Notify;

/// Workflows to be looked at anew. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notices(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    something: Notify,
}

/// What was seen since it was last taken.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Workflows of which something was told.
    pub(crate) workflows: BTreeSet<CallKey>,
    /// Services that ended.
    pub(crate) services: BTreeSet<u64>,
}

impl Notices {
    /// Something was told of this workflow, or of a call that may be one.
    pub(crate) fn workflow(&self, key: CallKey) {
        self.seen().workflows.insert(key);
        self.0.something.notify_one();
    }

    /// The service ended.
    pub(crate) fn service(&self, service: u64) {
        self.seen().services.insert(service);
        self.0.something.notify_one();
    }

    /// Takes what was seen; waits while that is nothing.
    pub(crate) async fn next(&self) -> Seen {
        loop {
            let seen = std::mem::take(&mut *self.seen());
            if seen != Seen::default() {
                return seen;
            }
            self.0.something.notified().await;
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn what_was_seen_is_taken_once_and_waited_for() {
        let notices = Notices::default();
        assert_eq!(notices.next().now_or_never(), None);
        let key = CallKey { service: 1, call: 2 };
        notices.workflow(key);
        notices.workflow(key);
        notices.service(3);
        let seen = notices.next().await;
        assert_eq!((seen.workflows, seen.services), (BTreeSet::from([key]), BTreeSet::from([3])));
        assert_eq!(notices.next().now_or_never(), None);
    }
}
