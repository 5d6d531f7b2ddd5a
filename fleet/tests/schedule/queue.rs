//! Who is due: promises of the queue, and properties over any schedule, policy and order of looks.

use proptest::prelude::*;
use sandbox_fleet::limits::CRON_LATE_S_MAX;
use sandbox_fleet::schedule::{Due, DueQueue, Entry};
use sandbox_protocol::CallKey;
use sandbox_protocol::limits::{WORKFLOW_CATCH_UP_MAX, WORKFLOW_JITTER_S_MAX};
use sandbox_protocol::workflow::CatchUp;

use super::{at, cron};

fn key(call: u64) -> CallKey {
    CallKey { service: 1, call }
}

fn entry(expression: &str, policy: CatchUp, since_s: i64) -> Entry {
    Entry { cron: cron(expression, "UTC"), policy, jitter_s: 0, last_slot_s: None, since_s }
}

fn start() -> i64 {
    at("2026-01-01T00:00Z")
}

/// A queue with one workflow that nobody fired for some time.
fn after_downtime(expression: &str, policy: CatchUp, downtime_s: i64) -> Vec<i64> {
    let mut queue = DueQueue::default();
    let entry = Entry { last_slot_s: Some(start()), ..entry(expression, policy, start()) };
    queue.enter(key(1), entry, start() + downtime_s);
    let pending = queue.next_at(key(1));
    let due = queue.due(start() + downtime_s);
    let slots = due.into_iter().flat_map(|due| due.slots).collect::<Vec<_>>();
    assert!(slots.is_empty() || slots.first().copied() == pending, "the slot that comes next is told");
    assert_eq!(queue.due(start() + downtime_s), [], "nothing is left");
    slots
}

#[test]
fn a_workflow_is_due_at_its_slot_and_again_at_the_next() {
    let mut queue = DueQueue::default();
    queue.enter(key(1), entry("*/5 * * * *", CatchUp::Latest, start() + 1), start() + 1);
    assert_eq!((queue.next_due(), queue.next_at(key(1))), (Some(start() + 300), Some(start() + 300)));
    assert_eq!(queue.due(start() + 299), []);
    assert_eq!(queue.due(start() + 300), [Due { key: key(1), slots: vec![start() + 300] }]);
    assert_eq!(queue.due(start() + 300), []);
    assert_eq!(queue.next_at(key(1)), Some(start() + 600));
}

#[test]
fn a_slot_at_the_very_beginning_is_fired_and_none_before() {
    let mut queue = DueQueue::default();
    queue.enter(key(1), entry("* * * * *", CatchUp::All, start()), start() + 60);
    assert_eq!(queue.due(start() + 60), [Due { key: key(1), slots: vec![start(), start() + 60] }]);
    queue.enter(key(2), entry("* * * * *", CatchUp::All, start() + 1), start() + 60);
    assert_eq!(queue.due(start() + 60), [Due { key: key(2), slots: vec![start() + 60] }]);
}

#[test]
fn who_leaves_or_is_replaced_is_not_fired_as_before() {
    let mut queue = DueQueue::default();
    for call in 1..=3 {
        queue.enter(key(call), entry("* * * * *", CatchUp::Latest, start() + 1), start() + 1);
    }
    queue.leave(key(1));
    queue.leave(key(9));
    queue.enter(key(2), entry("0 * * * *", CatchUp::Latest, start() + 1), start() + 1);
    assert_eq!(queue.next_at(key(1)), None);
    assert_eq!(queue.due(start() + 60), [Due { key: key(3), slots: vec![start() + 60] }]);
    queue.leave(key(3));
    assert_eq!(queue.next_due(), Some(start() + 3_600));
    queue.leave(key(2));
    assert_eq!((queue.next_due(), queue.due(i64::MAX)), (None, vec![]));
}

#[test]
fn after_downtime_the_latest_slot_is_fired_alone() {
    assert_eq!(after_downtime("* * * * *", CatchUp::Latest, 3_630), [start() + 3_600]);
    assert_eq!(after_downtime("* * * * * *", CatchUp::Latest, 10 * 365 * 86_400), [start() + 10 * 365 * 86_400]);
    assert!(after_downtime("@hourly", CatchUp::Latest, 3_599).is_empty());
}

#[test]
fn after_downtime_all_slots_are_fired_up_to_a_bound_and_in_their_order() {
    let most = i64::try_from(WORKFLOW_CATCH_UP_MAX).unwrap();
    let minutes = |first: i64, last: i64| (first..=last).map(|minute| start() + 60 * minute).collect::<Vec<_>>();
    assert_eq!(after_downtime("* * * * *", CatchUp::All, 60 * most), minutes(1, most));
    assert_eq!(after_downtime("* * * * *", CatchUp::All, 60 * (most + 1)), minutes(2, most + 1));
}

#[test]
fn after_downtime_what_is_skipped_is_skipped_unless_it_is_hardly_late() {
    assert_eq!(after_downtime("@hourly", CatchUp::Skip, 7_200 + CRON_LATE_S_MAX), [start() + 7_200]);
    assert!(after_downtime("@hourly", CatchUp::Skip, 7_200 + CRON_LATE_S_MAX + 1).is_empty());
}

#[test]
fn what_was_skipped_is_not_told_as_what_comes_next() {
    let mut queue = DueQueue::default();
    queue.enter(key(1), entry("@hourly", CatchUp::Skip, start() + 1), start() + 3_600 + CRON_LATE_S_MAX + 1);
    assert_eq!(queue.next_at(key(1)), Some(start() + 7_200));
}

#[test]
fn jitter_puts_off_when_and_not_what() {
    let most = i64::from(WORKFLOW_JITTER_S_MAX);
    let mut seen = Vec::new();
    for call in 0..400 {
        let mut queue = DueQueue::default();
        let entry = Entry { jitter_s: WORKFLOW_JITTER_S_MAX, ..entry("0 12 * * *", CatchUp::Latest, start()) };
        queue.enter(key(call), entry.clone(), start());
        let (slot, at) = (queue.next_at(key(call)).unwrap(), queue.next_due().unwrap());
        assert_eq!(slot, start() + 12 * 3_600);
        assert!((slot..=slot + most).contains(&at));
        assert_eq!(queue.due(at - 1), []);
        let mut again = DueQueue::default();
        again.enter(key(call), entry, slot + 1);
        assert_eq!(again.next_due(), Some(at), "whoever comes later draws the same");
        assert_eq!(queue.due(at), [Due { key: key(call), slots: vec![slot] }]);
        seen.push(at - slot);
    }
    for quarter in 0..4 {
        let within = seen.iter().filter(|at| (quarter * most / 4..(quarter + 1) * most / 4).contains(*at)).count();
        assert!((60..=140).contains(&within), "{within} of 400 in quarter {quarter}");
    }
}

#[test]
fn no_slot_is_put_off_to_the_next() {
    let mut queue = DueQueue::default();
    let often = Entry { jitter_s: WORKFLOW_JITTER_S_MAX, ..entry("* * * * *", CatchUp::Latest, start() + 1) };
    queue.enter(key(1), often, start() + 1);
    for minute in 1..=100 {
        let slot = start() + 60 * minute;
        assert!((slot..slot + 60).contains(&queue.next_due().unwrap()));
        assert_eq!(queue.due(slot + 59), [Due { key: key(1), slots: vec![slot] }]);
    }
}

#[test]
fn among_thousands_those_are_due_whom_a_look_at_each_finds() {
    let expressions = ["*/5 * * * *", "7 * * * *", "0 3 * * *", "*/30 * * * * *", "59 23 31 12 *"];
    let mut queue = DueQueue::default();
    let mut each = Vec::new();
    for call in 0..10_000 {
        let entry = entry(expressions[usize::try_from(call).unwrap() % 5], CatchUp::Latest, start() + 1);
        queue.enter(key(call), entry.clone(), start() + 1);
        if call % 7 == 0 {
            queue.leave(key(call));
        } else {
            each.push((key(call), entry, start()));
        }
    }
    for look in 1..=20 {
        let now = start() + look * 47;
        let mut expected = Vec::new();
        for (key, entry, last) in &mut each {
            if let Some(slot) = entry.cron.last_between(*last, now, 1).last().copied() {
                *last = slot;
                expected.push((*key, vec![slot]));
            }
        }
        let mut due: Vec<_> = queue.due(now).into_iter().map(|due| (due.key, due.slots)).collect();
        due.sort();
        assert_eq!(due, expected);
    }
}

#[derive(Debug, Clone)]
struct Case {
    entry: Entry,
    looks: Vec<i64>,
}

fn case() -> impl Strategy<Value = Case> {
    let expressions = ["* * * * *", "*/7 * * * *", "30 2 * * *", "*/20 * * * * *", "0 0 1 * *", "0 */3 * * 1-5"];
    let zones = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York"];
    let policies = [CatchUp::Latest, CatchUp::All, CatchUp::Skip];
    // Around the transitions of March and April.
    let since = at("2026-02-20T00:00Z")..at("2026-04-20T00:00Z");
    let pause = prop_oneof![1..120_i64, 1..7_200_i64, 1..400_000_i64];
    (
        prop::sample::select(expressions.to_vec()),
        prop::sample::select(zones.to_vec()),
        prop::sample::select(policies.to_vec()),
        prop_oneof![Just(0), 1..=WORKFLOW_JITTER_S_MAX],
        since,
        prop::option::of(-1_000..100_000_i64),
        prop::collection::vec(pause, 1..20),
    )
        .prop_map(|(expression, zone, policy, jitter_s, since_s, last, pauses)| {
            let last_slot_s = last.map(|last| since_s + last);
            let entry = Entry { cron: cron(expression, zone), policy, jitter_s, last_slot_s, since_s };
            let looks = pauses.iter().scan(since_s, |now, pause| {
                *now += pause;
                Some(*now)
            });
            Case { entry, looks: looks.collect() }
        })
}

proptest! {
    #[test]
    fn a_slot_is_fired_once_in_its_order_and_for_what_the_schedule_names(Case { entry, looks } in case()) {
        let mut queue = DueQueue::default();
        queue.enter(key(1), entry.clone(), looks[0]);
        let mut last = entry.last_slot_s.unwrap_or(i64::MIN).max(entry.since_s - 1);
        for now in looks {
            let slots: Vec<i64> = queue.due(now).into_iter().flat_map(|due| due.slots).collect();
            prop_assert!(entry.policy == CatchUp::All || slots.len() <= 1);
            prop_assert!(slots.len() <= WORKFLOW_CATCH_UP_MAX);
            for slot in slots {
                prop_assert!(slot > last && slot <= now);
                prop_assert_eq!(entry.cron.next_after(slot - 1), Some(slot));
                last = slot;
            }
            prop_assert!(queue.next_due().unwrap() > now);
            prop_assert!(queue.next_at(key(1)).unwrap() > last);
        }
    }

    #[test]
    fn a_restart_between_two_looks_changes_nothing(Case { entry, looks } in case()) {
        let (mut lasting, mut last) = (DueQueue::default(), entry.last_slot_s);
        lasting.enter(key(1), entry.clone(), entry.since_s);
        for now in looks {
            let mut fresh = DueQueue::default();
            fresh.enter(key(1), Entry { last_slot_s: last, ..entry.clone() }, now);
            let (slots, again) = (lasting.due(now), fresh.due(now));
            prop_assert_eq!(&slots, &again);
            last = slots.last().and_then(|due| due.slots.last().copied()).or(last);
        }
    }
}
