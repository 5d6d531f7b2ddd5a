//! Measures a look at who is due among 10,000 workflows: when about 170 are, when none is, and once all have missed a day.
//! Prints a line of samples for each figure, with their median and 95th percentile.
//!
//! Schedules, zones and times are always the same ones, so that a figure changes only with the code.

use std::time::Instant;

use sandbox_fleet::schedule::{BadCron, Cron, DueQueue, Entry};
use sandbox_protocol::CallKey;
use sandbox_protocol::workflow::CatchUp;
use serde_json::json;

/// Workflows that the clock fires.
const WORKFLOWS: u64 = 10_000;
/// Looks that are timed, one a minute.
const LOOKS: i64 = 240;
/// Midnight by UTC of 25 October 2026, an hour before clocks are put back in Europe.
const START_S: i64 = 1_792_886_400;
const MINUTE_S: i64 = 60;
const DAY_S: i64 = 86_400;
const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Africa/Casablanca",
    "America/Santiago",
    "Asia/Tokyo",
];

/// Most fire hourly, the others from every ten minutes to each leap day.
fn expression(number: u64) -> String {
    let (minute, hour) = (number * 7 % 60, number * 5 % 24);
    match number % 20 {
        0 => format!("{minute} {hour} * * 1-5"),
        1 => format!("{minute} {hour} {} * *", 1 + number % 28),
        2 => format!("{minute} {hour} L * 5"),
        3 => "0 0 29 2 *".to_owned(),
        4 => format!("{}-59/10 * * * *", number % 10),
        5 => format!("{} {minute} */2 * * *", number % 60),
        _ => format!("{minute} * * * *"),
    }
}

fn entry(number: u64) -> Result<Entry, BadCron> {
    let zone = ZONES.iter().cycle().nth(usize::try_from(number % 8).unwrap_or(0)).copied().unwrap_or("UTC");
    let policies = [CatchUp::Latest, CatchUp::All, CatchUp::Skip];
    let policy = policies[usize::try_from(number % 3).unwrap_or(0)];
    let jitter_s = if number.is_multiple_of(10) { 30 } else { 0 };
    let cron = Cron::parse(&expression(number), zone)?;
    Ok(Entry { cron, policy, jitter_s, last_slot_s: None, since_s: START_S })
}

fn main() -> Result<(), BadCron> {
    let start = Instant::now();
    let entries = (0..WORKFLOWS).map(entry).collect::<Result<Vec<_>, _>>()?;
    print("parse_10000_ms", &[milliseconds(start)], 0);

    let start = Instant::now();
    let mut queue = DueQueue::default();
    for (call, entry) in (0..).zip(entries) {
        queue.enter(CallKey { service: 1, call }, entry, START_S - 1);
    }
    print("enter_10000_ms", &[milliseconds(start)], 0);

    let (mut busy, mut idle, mut fired) = (Vec::new(), Vec::new(), 0);
    for look in 0..LOOKS {
        let now = START_S + look * MINUTE_S;
        let start = Instant::now();
        fired += queue.due(now).len();
        busy.push(milliseconds(start));
        let start = Instant::now();
        let none = queue.due(now).len();
        idle.push(milliseconds(start));
        assert_eq!(none, 0, "somebody is due twice");
    }
    print("due", &busy, fired / busy.len());
    print("due_none", &idle, 0);

    let start = Instant::now();
    let late = queue.due(START_S + LOOKS * MINUTE_S + DAY_S).len();
    print("due_after_a_day_ms", &[milliseconds(start)], late);
    Ok(())
}

fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1_000.0
}

fn print(figure: &str, samples: &[f64], workflows: usize) {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (median_ms, p95_ms) = (sorted[sorted.len() / 2], sorted[sorted.len() * 95 / 100]);
    let (unit, baseline): (_, [f64; 0]) = ("ms", []);
    let line = json!({
        "figure": figure, "unit": unit, "median_ms": median_ms, "p95_ms": p95_ms, "workflows": workflows,
        "ours": samples, "baseline": baseline,
    });
    println!("{line}");
}
