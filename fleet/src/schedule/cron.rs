//! The instants of a schedule: what its expression names by the clock on the wall of a zone.
//!
//! That clock is put forward and back. Between two such transitions its offset is constant, and such a span stands for
//! a window of wall-clock times. A window of a schedule of fixed times begins where the one before ends: so the times that
//! were left out are the span's first instant, those that come again were the span's before, and each time is fired once.
//! A schedule that recurs, by a wildcard or a step in its minutes or hours, goes by the clock as it stands, and fires by
//! elapsed time: `*/15 2 * * *` twice as often in an hour that comes twice, and not in one that is left out.

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::fields::{self, BadCron};
use super::pattern::Pattern;
use crate::limits::{CRON_HORIZON_S_MAX, CRON_SLOTS_MAX};

/// A schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    pattern: Pattern,
    zone: TimeZone,
}

impl Cron {
    /// Reads five fields, or six with seconds first, or a name such as `@daily`, by a zone of the IANA database.
    ///
    /// # Errors
    /// [`BadCron`], which names the place.
    pub fn parse(expr: &str, tz: &str) -> Result<Self, BadCron> {
        let pattern = fields::parse(expr)?;
        let zone = TimeZoneDatabase::bundled().get(tz).ok().filter(|zone| !zone.is_unknown());
        Ok(Self { pattern, zone: zone.ok_or_else(|| BadCron::Zone(fields::clipped(tz)))? })
    }

    /// The first slot later than `after_s`. There is one, unless the calendar ends.
    pub fn next_after(&self, after_s: i64) -> Option<i64> {
        let mut from = after_s.checked_add(1)?;
        let until = from.saturating_add(CRON_HORIZON_S_MAX);
        while from <= until {
            let span = Span::around(&self.zone, from)?;
            if let Some(slot) = self.first_in(&span, from, until) {
                return Some(slot);
            }
            from = span.end?;
        }
        None
    }

    /// The last slots, `max` and [`CRON_SLOTS_MAX`] at most, of those later than `after_s` and not later than `until_s`, in
    /// their order. What lies between is not walked through.
    pub fn last_between(&self, after_s: i64, until_s: i64, max: usize) -> Vec<i64> {
        let after = after_s.max(until_s.saturating_sub(CRON_HORIZON_S_MAX));
        let (mut slots, mut until) = (Vec::new(), until_s);
        while slots.len() < max.min(CRON_SLOTS_MAX)
            && until > after
            && let Some(span) = Span::around(&self.zone, until)
        {
            let Some(slot) = self.last_in(&span, after, until) else {
                let Some(start) = span.start else { break };
                until = start - 1;
                continue;
            };
            slots.push(slot);
            until = slot - 1;
        }
        slots.reverse();
        slots
    }

    fn first_in(&self, span: &Span, from: i64, until: i64) -> Option<i64> {
        let low = self.window_start(span, from);
        let end = span.end.map_or(until, |end| until.min(end - 1));
        let local = self.pattern.first(low, end + span.offset)?;
        Some(span.instant(local))
    }

    fn last_in(&self, span: &Span, after: i64, until: i64) -> Option<i64> {
        let local = self.pattern.last(self.window_start(span, after + 1), until + span.offset)?;
        Some(span.instant(local))
    }

    /// The first time of the window whose instant is not earlier than `from`.
    fn window_start(&self, span: &Span, from: i64) -> i64 {
        let Some(start) = span.start else { return from + span.offset };
        let window = start + if self.pattern.recurs { span.offset } else { span.before };
        if from > start { window.max(from + span.offset) } else { window }
    }
}

/// Instants during which a zone's offset does not change.
struct Span {
    /// The transition that begins it, if one does.
    start: Option<i64>,
    /// The transition that ends it, and is not part of it.
    end: Option<i64>,
    /// What the clock on the wall is ahead of UTC.
    offset: i64,
    /// What it was ahead before.
    before: i64,
}

impl Span {
    fn around(zone: &TimeZone, instant_s: i64) -> Option<Self> {
        let offset = |instant: Timestamp| i64::from(zone.to_offset(instant).seconds());
        let instant = Timestamp::from_second(instant_s).ok()?;
        let after = Timestamp::from_second(instant_s.checked_add(1)?).ok()?;
        let start = zone.preceding(after).next().map(|transition| transition.timestamp().as_second());
        let before = start.and_then(|start| Timestamp::from_second(start - 1).ok());
        let end = zone.following(instant).next().map(|transition| transition.timestamp().as_second());
        let here = offset(instant);
        Some(Self { start, end, offset: here, before: before.map_or(here, offset) })
    }

    /// When it is that time; a time that was left out is the transition.
    fn instant(&self, local: i64) -> i64 {
        let instant = local - self.offset;
        self.start.map_or(instant, |start| instant.max(start))
    }
}
