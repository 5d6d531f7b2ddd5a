//! Places for what lasts longer than a request, streams and tunnels: so many in all, and of one address.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use alloy::primitives::Address;
use axum::http::HeaderMap;

use super::ApiError;
use crate::limits::{
    API_RELAYS_EACH_MAX, API_RELAYS_MAX, API_STREAMS_EACH_MAX, API_STREAMS_MAX, API_TUNNELS_EACH_MAX, API_TUNNELS_MAX,
};

const LAST_EVENT_ID: &str = "last-event-id";

/// How many places there are, and what is said where there is none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    all_max: usize,
    each_max: usize,
    taken: &'static str,
    own_taken: &'static str,
}

/// For those who follow a stream of the operator's own.
pub(super) const STREAMS: Room = Room {
    all_max: API_STREAMS_MAX,
    each_max: API_STREAMS_EACH_MAX,
    taken: "too many follow streams",
    own_taken: "this address follows streams as often as it may",
};
/// For tunnels into sandboxes.
pub(super) const TUNNELS: Room = Room {
    all_max: API_TUNNELS_MAX,
    each_max: API_TUNNELS_EACH_MAX,
    taken: "too many tunnels are open",
    own_taken: "this address has as many tunnels open as it may",
};
/// For connections of the execution protocol.
pub(super) const RELAYS: Room = Room {
    all_max: API_RELAYS_MAX,
    each_max: API_RELAYS_EACH_MAX,
    taken: "too many connections of the execution protocol are open",
    own_taken: "this address has as many connections of the execution protocol open as it may",
};

/// Who has a place, by address. Clones share it.
#[derive(Clone)]
pub(super) struct Seats {
    room: Room,
    taken: Arc<Mutex<HashMap<Address, usize>>>,
}

/// A place among others.
pub(super) struct Seat {
    seats: Seats,
    address: Address,
}

/// The id of the last event that a reader has, where it takes a stream up again.
pub(super) fn taken_up(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| ApiError::BadRequest("Last-Event-ID is not an id that this operator gave".into()))
}

impl Seats {
    /// All places are free.
    pub(super) fn new(room: Room) -> Self {
        Self { room, taken: Arc::default() }
    }

    /// One more place for this address.
    pub(super) fn take(&self, address: Address) -> Result<Seat, ApiError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.values().sum::<usize>() >= self.room.all_max {
            return Err(ApiError::Busy(self.room.taken));
        }
        let own = taken.entry(address).or_default();
        if *own >= self.room.each_max {
            return Err(ApiError::Busy(self.room.own_taken));
        }
        *own += 1;
        Ok(Seat { seats: self.clone(), address })
    }
}

#[cfg(test)]
impl Seats {
    /// How many there are.
    pub(super) fn taken(&self) -> usize {
        self.taken.lock().unwrap().values().sum()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.address) {
            *own -= 1;
        }
        taken.retain(|_, own| *own > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> Address {
        Address::left_padding_from(&number.to_be_bytes())
    }

    fn check(room: Room, (all_max, each_max): (usize, usize)) {
        let seats = Seats::new(room);
        let own: Vec<_> = std::iter::from_fn(|| seats.take(address(1)).ok()).collect();
        assert_eq!(own.len(), each_max);
        drop(own);
        let all: Vec<_> = (0..).map_while(|number| seats.take(address(number)).ok()).collect();
        assert_eq!(all.len(), all_max);
        drop(all);
        assert!(seats.take(address(1)).is_ok());
        assert!(seats.taken.lock().unwrap().is_empty(), "nothing is kept of who has left");
    }

    #[test]
    fn one_address_has_its_part_of_the_places_and_all_together_as_many_as_there_are() {
        check(STREAMS, (API_STREAMS_MAX, API_STREAMS_EACH_MAX));
        check(TUNNELS, (API_TUNNELS_MAX, API_TUNNELS_EACH_MAX));
        check(RELAYS, (API_RELAYS_MAX, API_RELAYS_EACH_MAX));
    }
}
