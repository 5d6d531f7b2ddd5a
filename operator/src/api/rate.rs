//! How often one may ask: a bucket of tokens for each address that signed in, and for each place that did not.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use alloy::primitives::Address;
use tokio::time::Instant;

use super::ApiError;
use crate::limits::{API_ADDRESS_BURST, API_ADDRESS_PER_S, API_PLACE_BURST, API_PLACE_PER_S, API_PRINCIPALS_MAX};

/// Pause between two searches for buckets that are full again.
const SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// Whose bucket a request is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Principal {
    /// Who signed in.
    Address(Address),
    /// Who did not: an address, or a network of IPv6.
    Place(IpAddr),
    /// Everybody for whom there is no bucket left.
    Rest,
}

/// The buckets.
pub(super) struct Rates(Mutex<Buckets>);

struct Buckets {
    by_principal: HashMap<Principal, Bucket>,
    swept: Instant,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

/// Tokens that a bucket gains in a second, and holds at most.
#[derive(Clone, Copy)]
struct Rate {
    per_s: f64,
    burst: f64,
}

impl Principal {
    const fn rate(self) -> Rate {
        match self {
            Self::Address(_) => Rate { per_s: API_ADDRESS_PER_S as f64, burst: API_ADDRESS_BURST as f64 },
            Self::Place(_) | Self::Rest => Rate { per_s: API_PLACE_PER_S as f64, burst: API_PLACE_BURST as f64 },
        }
    }
}

impl Rates {
    /// Everybody's bucket is full.
    pub(super) fn new() -> Self {
        Self(Mutex::new(Buckets { by_principal: HashMap::new(), swept: Instant::now() }))
    }

    /// Takes one request out of the bucket of `principal`.
    pub(super) fn take(&self, principal: Principal) -> Result<(), ApiError> {
        let now = Instant::now();
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let principal = buckets.room_for(principal, now);
        let rate = principal.rate();
        let bucket = buckets.by_principal.entry(principal).or_insert(Bucket { tokens: rate.burst, at: now });
        *bucket = Bucket { tokens: bucket.level(rate, now), at: now };
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            return Ok(());
        }
        let retry_after_s = ((1.0 - bucket.tokens) / rate.per_s).ceil().max(1.0) as u64;
        Err(ApiError::TooFast { retry_after_s })
    }
}

impl Buckets {
    /// The principal whose bucket is used: its own, unless there are as many as may be. A full bucket is as good as none.
    fn room_for(&mut self, principal: Principal, now: Instant) -> Principal {
        if self.by_principal.len() < API_PRINCIPALS_MAX || self.by_principal.contains_key(&principal) {
            return principal;
        }
        if now.duration_since(self.swept) >= SWEEP_PAUSE {
            self.swept = now;
            self.by_principal.retain(|principal, bucket| bucket.level(principal.rate(), now) < principal.rate().burst);
        }
        if self.by_principal.len() < API_PRINCIPALS_MAX { principal } else { Principal::Rest }
    }
}

impl Bucket {
    fn level(&self, rate: Rate, now: Instant) -> f64 {
        let gained = now.duration_since(self.at).as_secs_f64() * rate.per_s;
        (self.tokens + gained).min(rate.burst)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::advance;

    use super::*;

    fn place(number: u32) -> Principal {
        Principal::Place(Ipv4Addr::from_bits(number).into())
    }

    fn spend(rates: &Rates, principal: Principal) -> u64 {
        (0..).take_while(|_| rates.take(principal).is_ok()).count() as u64
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_served_and_then_as_many_as_come_back() {
        let rates = Rates::new();
        let address = Principal::Address(Address::repeat_byte(1));
        assert_eq!((spend(&rates, place(1)), spend(&rates, address)), (API_PLACE_BURST, API_ADDRESS_BURST));
        assert!(matches!(rates.take(place(1)), Err(ApiError::TooFast { retry_after_s: 1 })));
        assert_eq!(spend(&rates, place(2)), API_PLACE_BURST, "another place");
        advance(Duration::from_secs(1)).await;
        assert_eq!((spend(&rates, place(1)), spend(&rates, address)), (API_PLACE_PER_S, API_ADDRESS_PER_S));
        advance(Duration::from_secs(3_600)).await;
        assert_eq!(spend(&rates, place(1)), API_PLACE_BURST, "and no more than a burst");
    }

    #[tokio::test(start_paused = true)]
    async fn those_for_whom_there_is_no_bucket_share_one_until_others_are_full_again() {
        let rates = Rates::new();
        let all = API_PRINCIPALS_MAX as u32;
        for number in 0..all {
            rates.take(place(number)).unwrap();
        }
        assert_eq!(spend(&rates, place(all)), API_PLACE_BURST);
        assert_eq!(spend(&rates, place(all + 1)), 0, "the same bucket");
        assert!(rates.take(place(0)).is_ok(), "who has a bucket keeps it");
        advance(Duration::from_secs(60)).await;
        assert_eq!(spend(&rates, place(all + 1)), API_PLACE_BURST);
        assert!(rates.0.lock().unwrap().by_principal.len() <= 2);
    }
}
