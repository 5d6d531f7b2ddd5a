//! What a sandbox sends and gets: counted for the operator, and held to a rate where there is one.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::limits::BURST_MAX;

/// What a sandbox has used since it was opened first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes out of the sandbox, headers included.
    pub bytes_up: u64,
    /// Bytes into it.
    pub bytes_down: u64,
    /// Requests and tunnels asked for.
    pub requests: u64,
    /// Those that were refused or came to nothing.
    pub refusals: u64,
    /// Connections open now.
    pub connections: u64,
    /// Time since the last byte of something allowed; nothing if there was none.
    pub idle_for: Option<Duration>,
}

impl Usage {
    /// Both together; idle for as long as the less idle one. Connections of what is closed are none.
    #[must_use]
    pub(super) fn and(&self, other: &Self) -> Self {
        let idle_for = self.idle_for.into_iter().chain(other.idle_for).min();
        Self {
            bytes_up: self.bytes_up + other.bytes_up,
            bytes_down: self.bytes_down + other.bytes_down,
            requests: self.requests + other.requests,
            refusals: self.refusals + other.refusals,
            connections: self.connections + other.connections,
            idle_for,
        }
    }
}

/// The counters of one sandbox.
#[derive(Debug)]
pub(super) struct Meter {
    begun: Instant,
    up: AtomicU64,
    down: AtomicU64,
    requests: AtomicU64,
    refusals: AtomicU64,
    connections: AtomicU64,
    /// Milliseconds since `begun`, plus one; 0 for never.
    active: AtomicU64,
    pace: Option<Pace>,
}

impl Meter {
    pub(super) fn new(bytes_per_second: Option<NonZeroU32>) -> Self {
        Self {
            begun: Instant::now(),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            active: AtomicU64::new(0),
            pace: bytes_per_second.map(Pace::new),
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let active = self.active.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_millis);
        Usage {
            bytes_up: self.up.load(Ordering::Relaxed),
            bytes_down: self.down.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            refusals: self.refusals.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            idle_for: active.map(|active| self.begun.elapsed().saturating_sub(active)),
        }
    }

    pub(super) fn asked(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }
}

/// One connection's part: where its bytes are counted, and when the last one moved.
#[derive(Debug)]
pub(super) struct Pulse {
    meter: std::sync::Arc<Meter>,
    last: AtomicU64,
    /// Something was allowed on this connection, so that its bytes count as the sandbox's activity. A program that only
    /// asks for what it is refused keeps nothing awake.
    allowed: std::sync::atomic::AtomicBool,
}

/// The way of bytes, seen from the sandbox.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    Up,
    Down,
}

impl Pulse {
    pub(super) fn new(meter: std::sync::Arc<Meter>) -> Self {
        let last = AtomicU64::new(meter.now());
        meter.opened();
        Self { meter, last, allowed: false.into() }
    }

    pub(super) fn allow(&self) {
        self.allowed.store(true, Ordering::Relaxed);
        self.meter.active.store(self.meter.now(), Ordering::Relaxed);
    }

    /// Counts bytes; when the rate is exceeded, the instant before which no more may move.
    pub(super) fn moved(&self, way: Way, bytes: usize) -> Option<Instant> {
        if bytes == 0 {
            return None;
        }
        let counter = match way {
            Way::Up => &self.meter.up,
            Way::Down => &self.meter.down,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        let now = self.meter.now();
        self.last.store(now, Ordering::Relaxed);
        if self.allowed.load(Ordering::Relaxed) {
            self.meter.active.store(now, Ordering::Relaxed);
        }
        self.meter.pace.as_ref()?.spend(bytes)
    }

    /// Returns when no byte has moved for `limit`.
    pub(super) async fn stopped(&self, limit: Duration) {
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed) - 1);
            let due = self.meter.begun + last + limit;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.meter.closed();
    }
}

/// A sandbox's rate, over all of its connections and both ways together.
#[derive(Debug)]
struct Pace {
    bytes_per_second: NonZeroU32,
    /// When everything that has moved would have moved at that rate.
    paid: Mutex<Instant>,
}

impl Pace {
    fn new(bytes_per_second: NonZeroU32) -> Self {
        Self { bytes_per_second, paid: Mutex::new(Instant::now()) }
    }

    fn spend(&self, bytes: usize) -> Option<Instant> {
        let cost = Duration::from_secs_f64(bytes as f64 / f64::from(self.bytes_per_second.get()));
        let now = Instant::now();
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        *paid = (*paid).max(now) + cost;
        (*paid > now + BURST_MAX).then_some(*paid)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_beyond_the_burst_wait_as_long_as_they_cost() {
        let pulse = Pulse::new(Arc::new(Meter::new(NonZeroU32::new(1_000))));
        assert_eq!(pulse.moved(Way::Up, 100), None);
        let wait = pulse.moved(Way::Down, 900).unwrap() - Instant::now();
        assert_eq!(wait.as_millis(), 1_000);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pulse.moved(Way::Up, 100), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_stops_when_no_byte_moved_for_as_long_as_it_may() {
        let (pulse, begun) = (Pulse::new(Arc::new(Meter::new(None))), Instant::now());
        let moving = async {
            tokio::time::advance(Duration::from_secs(40)).await;
            pulse.moved(Way::Up, 1);
        };
        tokio::join!(moving, pulse.stopped(Duration::from_secs(60)));
        assert_eq!(begun.elapsed().as_secs(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_allowed_is_activity() {
        let meter = Arc::new(Meter::new(None));
        let pulse = Pulse::new(Arc::clone(&meter));
        pulse.moved(Way::Up, 5);
        assert_eq!(meter.usage().idle_for, None);
        pulse.allow();
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(meter.usage().idle_for, Some(Duration::from_secs(3)));
        pulse.moved(Way::Down, 7);
        let usage = meter.usage();
        assert_eq!((usage.bytes_up, usage.bytes_down, usage.connections), (5, 7, 1));
        assert_eq!(usage.idle_for, Some(Duration::ZERO));
        drop(pulse);
        assert_eq!(meter.usage().connections, 0);
    }
}
