//! A second opinion on what expressions mean, in UTC: by the crate `cronexpr`, which shares no code with ours.
//!
//! It looks only four years ahead, and sees no last day of a December, so `L` is left to the tables.

use cronexpr::MakeTimestamp;
use proptest::prelude::*;
use sandbox_fleet::schedule::{BadCron, Cron};

/// Four years.
const THEIR_HORIZON_S: i64 = (4 * 365 + 1) * 86_400;

/// A field: values, ranges, steps and lists of them.
fn field(low: u32, high: u32) -> impl Strategy<Value = String> {
    let range = (low..=high, low..=high).prop_map(|(one, other)| (one.min(other), one.max(other)));
    let item = prop_oneof![
        (low..=high).prop_map(|value| value.to_string()),
        range.clone().prop_map(|(first, last)| format!("{first}-{last}")),
        (range, 1..=high).prop_map(|((first, last), step)| format!("{first}-{last}/{step}")),
    ];
    prop_oneof![
        3 => Just("*".to_owned()),
        1 => (1..=high).prop_map(|step| format!("*/{step}")),
        3 => prop::collection::vec(item, 1..4).prop_map(|items| items.join(",")),
    ]
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_or_refused(
        garbage in ".{0,60}",
        nearly in "[0-9*,/#?LW@ A-Zmj-]{0,40}",
        fields in prop::collection::vec("[0-9*,/#?LW-]{1,6}", 5..=6),
        zone in "[A-Za-z/_+-]{0,20}",
        after in any::<i64>(),
    ) {
        for expression in [garbage, nearly, fields.join(" ")] {
            if let Err(bad) = Cron::parse(&expression, &zone) {
                prop_assert!(bad.to_string().starts_with("trigger_config: "));
            }
            if let Ok(cron) = Cron::parse(&expression, "Europe/Berlin") {
                prop_assert!(cron.next_after(after).is_none_or(|slot| slot > after));
                prop_assert!(cron.next_after(0).is_some(), "{} never fires", expression);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn two_readers_agree_on_an_expression(
        minute in field(0, 59),
        hour in field(0, 23),
        day in prop_oneof![4 => field(1, 28), 1 => (1..=28_u32).prop_map(|day| format!("{day}W"))],
        month in field(1, 12),
        weekday in prop_oneof![4 => field(0, 7), 1 => (1..=6_u32, 1..=4_u32).prop_map(|(day, nth)| format!("{day}#{nth}"))],
        start in 1_600_000_000_i64..1_900_000_000,
    ) {
        let expression = format!("{minute} {hour} {day} {month} {weekday}");
        let theirs = cronexpr::parse_crontab(&format!("{expression} UTC")).unwrap();
        let their_next = |slot| theirs.find_next(MakeTimestamp::from_second(slot).unwrap()).ok().map(|next| next.timestamp().as_second());
        let ours = match Cron::parse(&expression, "UTC") {
            Ok(ours) => ours,
            Err(bad) => {
                prop_assert!(matches!(bad, BadCron::Never(_)), "{}: {}", expression, bad);
                prop_assert_eq!(their_next(start), None, "{}", expression);
                return Ok(());
            }
        };
        let mut slot = start;
        for _ in 0..20 {
            let next = ours.next_after(slot).unwrap();
            let Some(said) = their_next(slot) else {
                prop_assert!(next - slot >= THEIR_HORIZON_S, "{}", expression);
                break;
            };
            prop_assert_eq!(next, said, "{}", expression);
            slot = next;
        }
    }
}
