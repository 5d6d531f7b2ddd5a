//! The wall-clock times that an expression names, sought ahead and back. Zones are not known here: a wall-clock time is
//! given in seconds since 1970 by that clock.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::Offset;

/// Days of the shortest month.
pub(super) const SHORTEST_MONTH_DAYS: u32 = 28;
const MONTHS: i8 = 12;

/// Bits of the days that are meant, by the length of a month, from the shortest, and by the weekday of its first, from
/// Sunday.
pub(super) type Days = [[u32; 7]; 4];

/// What an expression names: a bit each that is set for a value that is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    pub(super) seconds: u64,
    pub(super) minutes: u64,
    pub(super) hours: u64,
    pub(super) months: u64,
    pub(super) days: Days,
    /// Minute or hour is a wildcard or a step, so that it is meant to come by elapsed time.
    pub(super) recurs: bool,
}

/// Where one looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// At later times.
    Ahead,
    /// At earlier times.
    Back,
}

impl Way {
    /// The nearest set bit, from `from` on.
    fn seek(self, bits: u64, from: i8) -> Option<i8> {
        let from = u32::try_from(from).ok().filter(|from| *from < u64::BITS)?;
        self.nearest(match self {
            Self::Ahead => bits & (u64::MAX << from),
            Self::Back => bits & (u64::MAX >> (u64::BITS - 1 - from)),
        })
    }

    /// The first set bit of all.
    fn nearest(self, bits: u64) -> Option<i8> {
        let place = match self {
            Self::Ahead => bits.trailing_zeros(),
            Self::Back => (u64::BITS - 1).checked_sub(bits.leading_zeros())?,
        };
        i8::try_from(place).ok().filter(|_| bits != 0)
    }

    const fn step(self, from: i8) -> i8 {
        match self {
            Self::Ahead => from + 1,
            Self::Back => from - 1,
        }
    }

    const fn next_month(self, year: i16, month: i8) -> (i16, i8) {
        match self {
            Self::Ahead if month == MONTHS => (year + 1, 1),
            Self::Back if month == 1 => (year - 1, MONTHS),
            Self::Ahead | Self::Back => (year, self.step(month)),
        }
    }
}

impl Pattern {
    /// Whether no day is meant. Every kind of month comes, so one is enough.
    pub(super) fn is_never(&self) -> bool {
        let lengths = |month: i8| match month {
            2 => 0..2,
            4 | 6 | 9 | 11 => 2..3,
            _ => 3..4,
        };
        let is_meant = |month: i8| self.days[lengths(month)].iter().flatten().any(|days| *days != 0);
        self.time_from_edge(Way::Ahead).is_none()
            || !(1..=MONTHS).any(|month| has(self.months, month) && is_meant(month))
    }

    /// The first time that is named in `low..=high`.
    pub(super) fn first(&self, low: i64, high: i64) -> Option<i64> {
        (low <= high).then(|| self.seek(Way::Ahead, low, high)).flatten()
    }

    /// The last time that is named in `low..=high`.
    pub(super) fn last(&self, low: i64, high: i64) -> Option<i64> {
        (low <= high).then(|| self.seek(Way::Back, high, low)).flatten()
    }

    fn seek(&self, way: Way, from: i64, until: i64) -> Option<i64> {
        let (from, end) = (wall(from)?, wall(until)?);
        let found = match self.time_of(way, from) {
            Some(found) => found,
            None => {
                let next = match way {
                    Way::Ahead => from.date().tomorrow(),
                    Way::Back => from.date().yesterday(),
                };
                let date = self.date(way, next.ok()?, end.date())?;
                date.to_datetime(self.time_from_edge(way)?)
            }
        };
        let is_within = match way {
            Way::Ahead => found <= end,
            Way::Back => found >= end,
        };
        is_within.then(|| Offset::UTC.to_timestamp(found).ok()).flatten().map(Timestamp::as_second)
    }

    /// On the day of `from` itself.
    fn time_of(&self, way: Way, from: DateTime) -> Option<DateTime> {
        let date = from.date();
        let is_meant = has(self.months, date.month()) && has(self.days_of(date), date.day());
        Some(date.to_datetime(self.time(way, from.time()).filter(|_| is_meant)?))
    }

    fn date(&self, way: Way, from: Date, end: Date) -> Option<Date> {
        let (mut year, mut month, mut day) = (from.year(), from.month(), from.day());
        loop {
            if has(self.months, month) {
                let days = self.days_of(Date::new(year, month, 1).ok()?);
                if let Some(day) = way.seek(days, day) {
                    return Date::new(year, month, day).ok();
                }
            }
            if (year, month) == (end.year(), end.month()) {
                return None;
            }
            (year, month) = way.next_month(year, month);
            day = match way {
                Way::Ahead => 1,
                Way::Back => 31,
            };
        }
    }

    fn time(&self, way: Way, from: Time) -> Option<Time> {
        let (hour, minute, second) = (from.hour(), from.minute(), from.second());
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = way.seek(self.seconds, second)
            {
                return Time::new(hour, minute, second, 0).ok();
            }
            if let Some(minute) = way.seek(self.minutes, way.step(minute)) {
                return Time::new(hour, minute, way.nearest(self.seconds)?, 0).ok();
            }
        }
        let hour = way.seek(self.hours, way.step(hour))?;
        Time::new(hour, way.nearest(self.minutes)?, way.nearest(self.seconds)?, 0).ok()
    }

    fn time_from_edge(&self, way: Way) -> Option<Time> {
        let nearest = |bits| way.nearest(bits);
        Time::new(nearest(self.hours)?, nearest(self.minutes)?, nearest(self.seconds)?, 0).ok()
    }

    /// Those of a date's month.
    fn days_of(&self, date: Date) -> u64 {
        let first = date.first_of_month().weekday().to_sunday_zero_offset();
        let length = i8::try_from(SHORTEST_MONTH_DAYS).map_or(0, |shortest| date.days_in_month() - shortest);
        let kinds = usize::try_from(length).ok().and_then(|length| self.days.get(length));
        let bits = usize::try_from(first).ok().and_then(|first| kinds?.get(first));
        bits.copied().map_or(0, u64::from)
    }
}

fn wall(local_s: i64) -> Option<DateTime> {
    Timestamp::from_second(local_s).ok().map(|local| Offset::UTC.to_datetime(local))
}

fn has(bits: u64, value: i8) -> bool {
    u32::try_from(value).is_ok_and(|value| bits.checked_shr(value).is_some_and(|bits| bits & 1 == 1))
}
