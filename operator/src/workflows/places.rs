//! Places for runs that are carried out: so many in all, and so many of one owner's, in the order in which they are asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use alloy::primitives::Address;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// The places.
pub(super) struct Places {
    all: Semaphore,
    each_max: usize,
    /// Of owners who have a place or wait for one.
    of: Mutex<HashMap<Address, Weak<Semaphore>>>,
}

/// A place; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    _of_all: SemaphorePermit<'a>,
    _of_own: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new(max: usize, each_max: usize) -> Self {
        Self { all: Semaphore::new(max), each_max, of: Mutex::default() }
    }

    /// Waits for a place for a run of this owner's.
    ///
    /// # Errors
    /// Never: nobody closes them.
    pub(super) async fn take(&self, owner: Address) -> Result<Place<'_>, AcquireError> {
        // Its own first: who waits for that keeps nobody else waiting.
        let of_own = self.of_own(owner).acquire_owned().await?;
        Ok(Place { _of_all: self.all.acquire().await?, _of_own: of_own })
    }

    fn of_own(&self, owner: Address) -> Arc<Semaphore> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = of.get(&owner).and_then(Weak::upgrade) {
            return own;
        }
        of.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.each_max));
        of.insert(owner, Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn nobody_takes_all_the_places_and_all_of_them_can_be_taken() {
        let (places, greedy, other) = (Places::new(3, 2), Address::repeat_byte(1), Address::repeat_byte(2));
        let take = |owner| places.take(owner).now_or_never().map(Result::unwrap);
        let held = [take(greedy).unwrap(), take(greedy).unwrap()];
        assert!(take(greedy).is_none(), "more than one owner may have");
        let last = take(other).unwrap();
        assert!(take(other).is_none(), "more than there are");
        drop(held);
        assert!(take(other).is_some() && take(greedy).is_some());
        drop(last);
        assert!(take(Address::repeat_byte(3)).is_some());
        assert_eq!(places.of.lock().unwrap().len(), 1, "who has none is not remembered");
    }
}
