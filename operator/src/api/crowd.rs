//! How many may be connected, and how many of them from one place: the rest is closed at once.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use sandbox_process::serve::Gate;

use super::peer::{is_trusted, place};
use crate::limits::{API_CONNECTIONS_MAX, API_PEER_CONNECTIONS_MAX};

/// Who is connected. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd {
    guests: Arc<Mutex<Guests>>,
    /// Proxies, which speak for many.
    trusted: Arc<[IpNet]>,
}

#[derive(Debug, Default)]
struct Guests {
    all: usize,
    by_place: HashMap<IpAddr, usize>,
}

/// A place in the crowd.
#[derive(Debug)]
pub(super) struct Guest {
    crowd: Crowd,
    place: Option<IpAddr>,
}

impl Crowd {
    /// Nobody is connected. Proxies that are `trusted` may take all places, as this host's own may.
    pub(super) fn new(trusted: &[IpNet]) -> Self {
        Self { guests: Arc::default(), trusted: trusted.into() }
    }

    fn let_in(&self, peer: SocketAddr) -> Option<Guest> {
        let place = if is_trusted(peer.ip(), &self.trusted) { None } else { place(peer.ip()) };
        let mut guests = self.guests();
        let of_place = place.and_then(|place| guests.by_place.get(&place).copied()).unwrap_or_default();
        if guests.all >= API_CONNECTIONS_MAX || of_place >= API_PEER_CONNECTIONS_MAX {
            return None;
        }
        guests.all += 1;
        if let Some(place) = place {
            guests.by_place.insert(place, of_place + 1);
        }
        Some(Guest { crowd: self.clone(), place })
    }

    fn guests(&self) -> MutexGuard<'_, Guests> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate<SocketAddr> for Crowd {
    type Pass = Guest;

    async fn admit(&self, peer: &SocketAddr) -> Option<Guest> {
        let guest = self.let_in(*peer);
        if guest.is_none() {
            tracing::debug!(%peer, "too many connections; one was closed");
        }
        guest
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut guests = self.crowd.guests();
        guests.all -= 1;
        let Some(place) = self.place else { return };
        if let Some(count) = guests.by_place.get_mut(&place) {
            *count -= 1;
        }
        guests.by_place.retain(|_, count| *count > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(crowd: &Crowd, peers: impl Fn(usize) -> String) -> Vec<Guest> {
        (0..).map_while(|n| crowd.let_in(peers(n).parse().unwrap())).collect()
    }

    #[test]
    fn one_place_gets_its_part_and_no_more() {
        for peers in [
            |_: usize| "192.0.2.1:1".to_owned(),
            |_| "[::ffff:192.0.2.1]:1".to_owned(),
            |n| format!("[2001:db8::{n:x}]:1"),
        ] {
            let crowd = Crowd::default();
            let guests = full(&crowd, peers);
            assert_eq!(guests.len(), API_PEER_CONNECTIONS_MAX);
            assert!(crowd.let_in("192.0.2.2:1".parse().unwrap()).is_some(), "another place");
            drop(guests);
            assert!(crowd.let_in(peers(0).parse().unwrap()).is_some(), "they have left");
            assert!(crowd.guests().by_place.is_empty());
        }
    }

    #[test]
    fn all_places_together_get_no_more_than_there_is() {
        let crowd = Crowd::default();
        let guests = full(&crowd, |n| format!("192.0.{}.{}:1", n / 256, n % 256));
        assert_eq!(guests.len(), API_CONNECTIONS_MAX);
        assert!(crowd.let_in("127.0.0.1:1".parse().unwrap()).is_none());
    }

    #[test]
    fn a_proxy_on_this_host_or_a_trusted_one_may_use_all_there_is() {
        let crowd = || Crowd::new(&["192.0.2.0/24".parse().unwrap()]);
        for peer in ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "192.0.2.1:1", "[::ffff:192.0.2.1]:1"] {
            assert_eq!(full(&crowd(), |_| peer.to_owned()).len(), API_CONNECTIONS_MAX);
        }
    }
}
