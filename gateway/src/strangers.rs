//! Peers that have proven nothing: so many at a time, of all addresses and of each, and none for a while from where too
//! many failed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::limits::{ADDRESSES_MAX, FAILURES_MAX, FAILURES_PAUSE, STRANGERS_PER_ADDRESS_MAX};

/// All strangers. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Strangers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    strangers_max: usize,
    door: Mutex<Door>,
}

#[derive(Debug, Default)]
struct Door {
    here: usize,
    addresses: HashMap<IpAddr, Address>,
}

#[derive(Debug, Clone, Copy)]
struct Address {
    here: usize,
    failures: u32,
    /// When these failures began to be counted.
    since: Instant,
}

/// A stranger's place, until this is dropped.
#[derive(Debug)]
pub(crate) struct Stranger {
    strangers: Strangers,
    address: IpAddr,
}

impl Strangers {
    pub(crate) fn new(strangers_max: usize) -> Self {
        Self { shared: Arc::new(Shared { strangers_max, door: Mutex::default() }) }
    }

    fn door(&self) -> MutexGuard<'_, Door> {
        self.shared.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one from `address`, unless there is none.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<Stranger> {
        let mut door = self.door();
        if door.here >= self.shared.strangers_max {
            return None;
        }
        door.forget_old();
        let now = Instant::now();
        let known = door.addresses.entry(address).or_insert(Address { here: 0, failures: 0, since: now });
        if now.duration_since(known.since) >= FAILURES_PAUSE {
            (known.failures, known.since) = (0, now);
        }
        if known.here >= STRANGERS_PER_ADDRESS_MAX || known.failures >= FAILURES_MAX {
            return None;
        }
        known.here += 1;
        door.here += 1;
        Some(Stranger { strangers: self.clone(), address })
    }
}

impl Door {
    /// Makes room for one more address.
    fn forget_old(&mut self) {
        if self.addresses.len() < ADDRESSES_MAX {
            return;
        }
        let absent = self.addresses.iter().filter(|(_, address)| address.here == 0);
        if let Some(oldest) = absent.min_by_key(|(_, address)| address.since).map(|(address, _)| *address) {
            self.addresses.remove(&oldest);
        }
    }
}

impl Stranger {
    /// It has left, and has proven nothing.
    pub(crate) fn failed(self) {
        if let Some(address) = self.strangers.door().addresses.get_mut(&self.address) {
            address.failures = address.failures.saturating_add(1);
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut door = self.strangers.door();
        door.here = door.here.saturating_sub(1);
        if let Some(address) = door.addresses.get_mut(&self.address) {
            address.here = address.here.saturating_sub(1);
            if address.here == 0 && address.failures == 0 {
                door.addresses.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn an_address_has_so_many_places_and_another_has_its_own() {
        let strangers = Strangers::new(1_000);
        let mut here: Vec<_> = (0..STRANGERS_PER_ADDRESS_MAX).map(|_| strangers.admit(address(1)).unwrap()).collect();
        assert!(strangers.admit(address(1)).is_none());
        assert!(strangers.admit(address(2)).is_some());
        here.pop();
        assert!(strangers.admit(address(1)).is_some());
    }

    #[test]
    fn all_together_have_so_many_places() {
        let strangers = Strangers::new(3);
        let here: Vec<_> = (0..3).map(|number| strangers.admit(address(number)).unwrap()).collect();
        assert!(strangers.admit(address(9)).is_none());
        drop(here);
        assert!(strangers.admit(address(9)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_failed_too_often_waits() {
        let strangers = Strangers::new(10);
        for _ in 0..FAILURES_MAX {
            strangers.admit(address(1)).unwrap().failed();
        }
        assert!(strangers.admit(address(1)).is_none());
        tokio::time::advance(FAILURES_PAUSE).await;
        assert!(strangers.admit(address(1)).is_some());
    }

    #[test]
    fn so_many_addresses_are_remembered() {
        let strangers = Strangers::new(10);
        for number in 0..=ADDRESSES_MAX as u32 {
            strangers.admit(address(number)).unwrap().failed();
        }
        assert_eq!(strangers.door().addresses.len(), ADDRESSES_MAX);
    }
}
