//! When workflows fire: tables of what must come, a second opinion over every zone, and properties of the queue.

#![allow(clippy::unwrap_used)] // helpers of tests end a test as its own body would

mod calendar;
mod grammar;
mod queue;
mod transitions;
mod zones;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use sandbox_fleet::schedule::Cron;

fn cron(expression: &str, zone: &str) -> Cron {
    Cron::parse(expression, zone).unwrap()
}

fn zone(name: &str) -> TimeZone {
    TimeZoneDatabase::bundled().get(name).unwrap()
}

/// Seconds since 1970 at an instant such as `2026-03-29T01:00Z`.
fn at(instant: &str) -> i64 {
    instant.parse::<Timestamp>().unwrap().as_second()
}

/// The slots after an instant, which must be these by the clock on the wall, and are the same ones seen from the last.
fn check(expression: &str, name: &str, after: &str, expected: &[&str]) {
    let cron = cron(expression, name);
    let mut slots = vec![at(after)];
    for _ in expected {
        slots.push(cron.next_after(slots[slots.len() - 1]).unwrap());
    }
    let slots = &slots[1..];
    let zone = zone(name);
    let wall =
        |slot: &i64| Timestamp::from_second(*slot).unwrap().to_zoned(zone.clone()).strftime("%FT%T%:z").to_string();
    assert_eq!(slots.iter().map(wall).collect::<Vec<_>>(), expected, "{expression} in {name}");
    assert_eq!(
        cron.last_between(at(after), slots[slots.len() - 1], expected.len()),
        slots,
        "{expression} in {name}, back"
    );
    assert_eq!(
        cron.last_between(at(after), slots[slots.len() - 1], expected.len() + 1),
        slots,
        "{expression} in {name}, no more"
    );
}
