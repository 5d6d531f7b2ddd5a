//! Workflows and their runs in words. What operators and owners chose of them may not steer the terminal.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use sandbox_protocol::workflow::{Cause, EventSource, RunEntry, RunStatus, StepBody, Trigger};
use serde::Deserialize;

use crate::commands::agents::shown;
use crate::output::harmless;

/// By which instants are told.
#[derive(Debug, Clone)]
pub(super) struct Clock {
    zone: TimeZone,
    now_ms: u64,
}

impl Clock {
    /// This machine's.
    pub(super) fn here() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        Self { zone: TimeZone::system(), now_ms: u64::try_from(since).unwrap_or(u64::MAX) }
    }

    /// A second since 1970, here and in UTC.
    pub(super) fn instant(&self, second: i64) -> String {
        const TIME: &str = "%H:%M:%S";
        let Ok(instant) = Timestamp::from_second(second) else { return format!("second {second}") };
        let (here, utc) = (instant.to_zoned(self.zone.clone()), instant.to_zoned(TimeZone::UTC));
        if here.offset() == utc.offset() {
            return utc.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
        }
        let there = if here.date() == utc.date() { utc.strftime(TIME) } else { utc.strftime("%Y-%m-%d %H:%M:%S") };
        format!("{} ({there} UTC)", here.strftime("%Y-%m-%d %H:%M:%S %Z"))
    }

    /// The same of milliseconds.
    pub(super) fn instant_ms(&self, ms: u64) -> String {
        self.instant(i64::try_from(ms / 1_000).unwrap_or(i64::MAX))
    }

    /// How long something takes or took; nothing where it has not begun.
    pub(super) fn took(&self, started_ms: Option<u64>, ended_ms: Option<u64>) -> Option<String> {
        Some(seconds(ended_ms.unwrap_or(self.now_ms).saturating_sub(started_ms?)))
    }
}

fn seconds(ms: u64) -> String {
    let (s, tenth) = (ms / 1_000, ms % 1_000 / 100);
    match s {
        0..60 => format!("{s}.{tenth} s"),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3_600, s % 3_600 / 60),
    }
}

/// A text of somebody else's in one line.
pub(super) fn line(text: &str) -> String {
    shown(text)
}

/// What fires a workflow.
pub(super) fn trigger(kind: &str, config: &str) -> String {
    match Trigger::parse(kind, config) {
        Ok(Trigger::Cron(cron)) => format!("cron {} {}", line(&cron.cron), line(&cron.tz)),
        Ok(Trigger::Event(event)) => match event.source {
            EventSource::Lifecycle(event) => {
                let of = event.sandbox.map(|id| format!(" of {id}")).unwrap_or_default();
                format!("event {}{of}", line(&event.name))
            }
            EventSource::Log(filter) => format!("event {} of {}", line(&signature(config)), filter.address),
        },
        Ok(Trigger::Manual(_) | Trigger::Webhook(_)) => kind.to_owned(),
        Err(_) => line(&format!("{kind} {config}")),
    }
}

/// The event's, which a filter has only the hash of.
fn signature(config: &str) -> String {
    #[derive(Default, Deserialize)]
    struct Named {
        event: String,
    }
    serde_json::from_str::<Named>(config).unwrap_or_default().event
}

/// What fired a run.
pub(super) fn cause(cause: &Cause, clock: &Clock) -> String {
    match cause {
        Cause::Manual { call } => format!("by call {call}"),
        Cause::Cron { slot_s } => format!("for {}", clock.instant(*slot_s)),
        Cause::Webhook { delivery } => format!("by delivery {}", line(delivery)),
        Cause::Event { event } => format!("by event {}", line(event)),
    }
}

/// A run in one line.
pub(super) fn run(run: &RunEntry, clock: &Clock) -> Vec<String> {
    let since = |status: RunStatus| if status.is_final() { "took" } else { "for" };
    let took = clock.took(run.started_ms, run.ended_ms);
    let took = took.map(|took| format!("{} {took}", since(run.status))).unwrap_or_default();
    let reason = run.reason.as_deref().map(line).unwrap_or_default();
    vec![run.number.to_string(), run.status.name().to_owned(), cause(&run.cause, clock), took, reason]
}

/// A step in one line.
pub(super) fn step(step: &StepBody, clock: &Clock) -> Vec<String> {
    let attempt = if step.attempts > 1 { format!("attempt {}", step.attempts) } else { String::new() };
    let took = if step.status.is_final() { clock.took(step.started_ms, step.ended_ms) } else { None };
    let why = step.failure.as_ref().map(|failure| line(&failure.to_string())).unwrap_or_default();
    let state = step.status.name().to_owned();
    vec![harmless(&step.id), harmless(&step.kind), state, took.unwrap_or_default(), attempt, why]
}

/// Rows with their columns below each other.
pub(super) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        // A column in which nothing stands takes no room.
        let cells = row.iter().zip(&widths).filter(|(_, width)| **width > 0);
        let padded: Vec<_> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use sandbox_protocol::workflow::StepStatus;
    use sandbox_protocol::{Failure, FailureCode};

    use super::*;

    pub(in crate::commands::workflows) fn clock(zone: &str) -> Clock {
        Clock { zone: TimeZone::get(zone).unwrap(), now_ms: 100_000 }
    }

    #[test]
    fn an_instant_is_told_here_and_in_utc() {
        let second = 1_761_436_800; // 2025-10-26 00:00:00 UTC
        assert_eq!(clock("UTC").instant(second), "2025-10-26 00:00:00 UTC");
        assert_eq!(clock("Europe/Berlin").instant(second), "2025-10-26 02:00:00 CEST (00:00:00 UTC)");
        assert_eq!(clock("America/New_York").instant(second), "2025-10-25 20:00:00 EDT (2025-10-26 00:00:00 UTC)");
        assert_eq!(clock("Europe/London").instant(1_764_547_200), "2025-12-01 00:00:00 UTC", "as UTC in winter");
        assert_eq!(clock("UTC").instant(i64::MAX), "second 9223372036854775807");
    }

    #[test]
    fn a_trigger_is_told_in_words_and_a_bad_one_as_it_is() {
        assert_eq!(trigger("cron", "0 9 * * 1-5"), "cron 0 9 * * 1-5 UTC");
        assert_eq!(trigger("cron", r#"{"cron":"@daily","tz":"Asia/Tokyo"}"#), "cron @daily Asia/Tokyo");
        assert_eq!((trigger("webhook", ""), trigger("manual", "")), ("webhook".into(), "manual".into()));
        let stopped = trigger("event", r#"{"event":"sandbox.stopped","sandbox":"sbx-1-2-0"}"#);
        assert_eq!(stopped, "event sandbox.stopped of sbx-1-2-0");
        let log = r#"{"event":"Paid(uint256)","address":"0x5FbDB2315678afecb367f032d93F642f64180aa3"}"#;
        assert_eq!(trigger("event", log), "event Paid(uint256) of 0x5FbDB2315678afecb367f032d93F642f64180aa3");
        assert_eq!(trigger("cron", "{\u{1b}[2J"), "cron {[2J");
    }

    #[test]
    fn columns_stand_below_each_other_and_empty_ones_take_no_room() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["a", "", "x"]), row(["long", "", ""])]), ["a     x", "long"]);
        assert_eq!(table(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_step_says_how_it_went() {
        let body = StepBody {
            id: "build".into(),
            kind: "exec".into(),
            status: StepStatus::Failed,
            attempts: 2,
            started_ms: Some(1_000),
            ended_ms: Some(62_500),
            failure: Some(Failure::new(FailureCode::Timeout, "too\u{7} late")),
            outputs: Default::default(),
            artifacts: Vec::new(),
        };
        let said = step(&body, &clock("UTC"));
        assert_eq!(said, ["build", "exec", "failed", "1 min 1 s", "attempt 2", "timeout: too late"]);
        assert_eq!(seconds(59_999), "59.9 s");
        assert_eq!(seconds(3_600_000 + 120_000), "1 h 2 min");
    }
}
