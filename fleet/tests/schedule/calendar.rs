//! Which days come, and what is refused.

use proptest::prelude::*;
use sandbox_fleet::limits::{CRON_HORIZON_S_MAX, CRON_SLOTS_MAX};
use sandbox_fleet::schedule::{BadCron, Cron};

use super::{at, check, cron};

const UTC: &str = "UTC";

fn days(expression: &str, after: &str, expected: &[&str]) {
    let midnights: Vec<String> = expected.iter().map(|day| format!("{day}T00:00:00+00:00")).collect();
    check(expression, UTC, after, &midnights.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn months_end_when_they_end() {
    days("0 0 31 * *", "2026-01-31T00:00Z", &["2026-03-31", "2026-05-31", "2026-07-31", "2026-08-31"]);
    days("0 0 L * *", "2028-01-31T00:00Z", &["2028-02-29", "2028-03-31", "2028-04-30"]);
    days("0 0 LW * *", "2026-01-01T00:00Z", &["2026-01-30", "2026-02-27", "2026-03-31"]);
    days("0 0 15W * *", "2026-02-01T00:00Z", &["2026-02-16", "2026-03-16", "2026-04-15"]);
    days("0 0 1W * *", "2026-07-31T00:00Z", &["2026-08-03", "2026-09-01"]);
}

#[test]
fn leap_days_come_when_they_come() {
    days("0 0 29 2 *", "2026-01-01T00:00Z", &["2028-02-29", "2032-02-29"]);
    days("0 0 29 2 *", "2096-02-29T00:00Z", &["2104-02-29"]);
    days("0 0 29 2 */7", "2032-03-01T00:00Z", &["2060-02-29"]);
    days("0 0 29 2 */7", "2088-02-29T00:00Z", &["2128-02-29"]);
}

#[test]
fn days_of_either_field_are_meant_unless_one_begins_with_a_star() {
    days("0 0 13 * 5", "2026-04-09T12:00Z", &["2026-04-10", "2026-04-13", "2026-04-17"]);
    days("0 0 */2 * 5", "2026-04-09T12:00Z", &["2026-04-17", "2026-05-01"]);
    days("0 0 * * 5", "2026-04-09T12:00Z", &["2026-04-10", "2026-04-17"]);
    days("0 0 13 * ?", "2026-04-09T12:00Z", &["2026-04-13", "2026-05-13"]);
    days("0 0 * * 7", "2026-04-09T12:00Z", &["2026-04-12", "2026-04-19"]);
    days("0 0 * * fri-sun", "2026-04-09T12:00Z", &["2026-04-10", "2026-04-11", "2026-04-12", "2026-04-17"]);
    days("0 0 * * 5L", "2026-01-01T00:00Z", &["2026-01-30", "2026-02-27"]);
    days("0 0 * * mon#2", "2026-01-01T00:00Z", &["2026-01-12", "2026-02-09"]);
}

#[test]
fn a_step_begins_again_with_each_hour() {
    let slots = ["2026-01-01T00:56:00+00:00", "2026-01-01T01:00:00+00:00", "2026-01-01T01:07:00+00:00"];
    check("*/7 * * * *", UTC, "2026-01-01T00:49Z", &slots);
    let slots = ["2025-12-31T23:59:50+00:00", "2026-01-01T00:00:00+00:00", "2026-01-01T00:00:25+00:00"];
    check("*/25 * * * * *", UTC, "2025-12-31T23:59:25Z", &slots);
    check("10-40/15 9 * * *", UTC, "2026-01-01T00:00Z", &["2026-01-01T09:10:00+00:00", "2026-01-01T09:25:00+00:00"]);
}

#[test]
fn an_unknown_zone_is_named() {
    for zone in ["Mars/Base", "", "Etc/Unknown", "+02:00", "../UTC"] {
        let bad = Cron::parse("@daily", zone).unwrap_err();
        assert_eq!(bad.to_string(), format!("trigger_config: tz: no such zone {zone:?}"));
        assert!(matches!(bad, BadCron::Zone(_)));
    }
    assert_eq!(cron("@daily", "europe/berlin"), cron("0 0 * * *", "Europe/Berlin"));
}

#[test]
fn a_slot_is_looked_for_only_so_far() {
    let yearly = cron("0 0 1 1 *", UTC);
    let until = at("2026-01-01T00:00Z");
    let slots = yearly.last_between(i64::MIN, until, usize::MAX);
    assert_eq!(slots.first().copied(), yearly.next_after(until - CRON_HORIZON_S_MAX));
    assert_eq!((slots.len(), slots.last()), (42, Some(&until)));
    assert_eq!(cron("* * * * * *", UTC).last_between(0, until, usize::MAX).len(), CRON_SLOTS_MAX);
    assert_eq!(cron("* * * * * *", UTC).last_between(0, until, CRON_SLOTS_MAX - 1).len(), CRON_SLOTS_MAX - 1);
    for end in [i64::MAX, i64::MAX - 1, 253_402_300_799, i64::MIN] {
        assert_eq!(yearly.next_after(end), None);
        assert!(yearly.last_between(end, end, 1).is_empty());
    }
}

proptest! {
    #[test]
    fn slots_are_found_back_as_they_were_found_ahead(
        expression in prop::sample::select(vec![
            "* * * * *", "*/7 */3 * * *", "30 2 * * *", "15 0,1,2,3 * * *", "0 0 1 */6 *", "*/10 59 1 * * 0", "0 12 L * 1#1",
        ]),
        name in prop::sample::select(vec![
            "UTC", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Gaza", "America/Santiago",
        ]),
        start in 1_500_000_000_i64..2_000_000_000,
        count in 1..60_usize,
    ) {
        let cron = cron(expression, name);
        let mut slots = Vec::new();
        let mut slot = start;
        for _ in 0..count {
            let next = cron.next_after(slot).unwrap();
            prop_assert!(next > slot);
            prop_assert_eq!(cron.next_after(next - 1), Some(next));
            slot = next;
            slots.push(slot);
        }
        prop_assert_eq!(&cron.last_between(start, slot, count), &slots);
        prop_assert_eq!(&cron.last_between(start, slot, count + 1), &slots);
        prop_assert_eq!(cron.last_between(start, slot - 1, 1), slots[..count - 1].iter().rev().take(1).copied().collect::<Vec<_>>());
        prop_assert_eq!(cron.last_between(start, slots[0] - 1, 1), Vec::<i64>::new());
    }
}
