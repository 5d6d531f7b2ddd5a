//! Places for those who follow something over a stream: so many in all, and of one address.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use alloy::primitives::Address;
use axum::http::HeaderMap;

use super::ApiError;
use crate::limits::{API_STREAMS_EACH_MAX, API_STREAMS_MAX};

const LAST_EVENT_ID: &str = "last-event-id";

/// Who follows, by address. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Seats(Arc<Mutex<HashMap<Address, usize>>>);

/// A place among those who follow.
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
    /// A place for one more stream of this address.
    pub(super) fn take(&self, address: Address) -> Result<Seat, ApiError> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.values().sum::<usize>() >= API_STREAMS_MAX {
            return Err(ApiError::Busy("too many follow streams"));
        }
        let own = taken.entry(address).or_default();
        if *own >= API_STREAMS_EACH_MAX {
            return Err(ApiError::Busy("this address follows streams as often as it may"));
        }
        *own += 1;
        Ok(Seat { seats: self.clone(), address })
    }
}

#[cfg(test)]
impl Seats {
    /// How many there are.
    pub(super) fn taken(&self) -> usize {
        self.0.lock().unwrap().values().sum()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.0.lock().unwrap_or_else(PoisonError::into_inner);
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

    #[test]
    fn one_follows_as_often_as_one_may_and_all_as_many_as_there_are_seats() {
        let seats = Seats::default();
        let own: Vec<_> = std::iter::from_fn(|| seats.take(address(1)).ok()).collect();
        assert_eq!(own.len(), API_STREAMS_EACH_MAX);
        drop(own);
        let all: Vec<_> = (0..).map_while(|number| seats.take(address(number)).ok()).collect();
        assert_eq!(all.len(), API_STREAMS_MAX);
        drop(all);
        assert!(seats.take(address(1)).is_ok());
        assert!(seats.0.lock().unwrap().is_empty(), "nothing is kept of who has left");
    }
}
