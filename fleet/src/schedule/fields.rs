//! The text of an expression. `croner` reads it; what it would let pass by mistake is refused before: a name in a field
//! that has none, an empty item of a list, a year.

use std::fmt;

use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use croner::{CronPattern, Weekday};

use super::pattern::{Days, Pattern, SHORTEST_MONTH_DAYS};

/// A part of an expression, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// Of a minute: 0 to 59. It may be left out, and is 0 then.
    Second,
    /// Of an hour: 0 to 59.
    Minute,
    /// Of a day: 0 to 23.
    Hour,
    /// Of a month: 1 to 31, `L`, `LW`, `15W`.
    Day,
    /// Of a year: 1 to 12, or names.
    Month,
    /// From Sunday, 0, to Saturday, or names; 7 is Sunday too. `5L` is the last Friday, `5#2` the second one.
    Weekday,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day of month",
            Self::Month => "month",
            Self::Weekday => "day of week",
        })
    }
}

/// Why there is no schedule.
#[derive(Debug, thiserror::Error)]
pub enum BadCron {
    /// The database has no such zone.
    #[error("trigger_config: tz: no such zone {0:?}")]
    Zone(String),
    /// Of so many fields.
    #[error("trigger_config: cron: {0} fields: there are 5, or 6 with seconds first")]
    Fields(usize),
    /// A name that stands for no expression.
    #[error("trigger_config: cron: no such name {0:?}: @yearly, @monthly, @weekly, @daily or @hourly")]
    Name(String),
    /// A field does not have its form.
    #[error("trigger_config: cron: {field}: not in its form: {text:?}")]
    Form {
        /// Which.
        field: Field,
        /// As it was written.
        text: String,
    },
    /// A field has its form, and what it says is out of bounds.
    #[error("trigger_config: cron: {field}: out of bounds: {text:?}")]
    Bounds {
        /// Which.
        field: Field,
        /// As it was written.
        text: String,
        /// What is wrong with it.
        source: CronError,
    },
    /// Each field is good, and the whole is not.
    #[error("trigger_config: cron: not an expression")]
    Expression(#[source] CronError),
    /// No day of any year is meant, as of 30 February.
    #[error("trigger_config: cron: it never fires: {0:?}")]
    Never(String),
}

const FIELDS: [Field; 6] = [Field::Second, Field::Minute, Field::Hour, Field::Day, Field::Month, Field::Weekday];
const MONTHS: [&str; 12] = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
/// A month of each length, from the shortest.
const MONTHS_BY_LENGTH: [(i32, u32); 4] = [(2023, 2), (2024, 2), (2024, 4), (2024, 1)];
/// What an error repeats of what was written.
const REPEATED_CHARS: usize = 40;

/// Reads an expression.
pub(super) fn parse(expression: &str) -> Result<Pattern, BadCron> {
    let upper = expression.trim().to_ascii_uppercase();
    let spelled_out = if upper.starts_with('@') { named(&upper)? } else { upper.as_str() };
    let fields: Vec<&str> = spelled_out.split_whitespace().collect();
    let fields = match fields[..] {
        [minute, hour, day, month, weekday] => ["0", minute, hour, day, month, weekday],
        [second, minute, hour, day, month, weekday] => [second, minute, hour, day, month, weekday],
        _ => return Err(BadCron::Fields(fields.len())),
    };
    if let Some((field, text)) = FIELDS.into_iter().zip(fields).find(|(field, text)| !field.has_form(text)) {
        return Err(BadCron::Form { field, text: clipped(text) });
    }
    let pattern = pattern(&fields)?;
    if pattern.is_never() { Err(BadCron::Never(clipped(expression.trim()))) } else { Ok(pattern) }
}

fn named(name: &str) -> Result<&'static str, BadCron> {
    match name {
        "@YEARLY" | "@ANNUALLY" => Ok("0 0 1 1 *"),
        "@MONTHLY" => Ok("0 0 1 * *"),
        "@WEEKLY" => Ok("0 0 * * 0"),
        "@DAILY" | "@MIDNIGHT" => Ok("0 0 * * *"),
        "@HOURLY" => Ok("0 * * * *"),
        _ => Err(BadCron::Name(clipped(name))),
    }
}

pub(super) fn clipped(text: &str) -> String {
    text.chars().take(REPEATED_CHARS).collect()
}

impl Field {
    fn has_form(self, text: &str) -> bool {
        text.split(',').all(|item| item.split(['-', '/', '#']).all(|word| self.takes(word)))
    }

    fn takes(self, word: &str) -> bool {
        is_number(word)
            || match self {
                Self::Second | Self::Minute | Self::Hour => word == "*",
                Self::Day => matches!(word, "*" | "?" | "L" | "LW") || word.strip_suffix('W').is_some_and(is_number),
                Self::Month => word == "*" || MONTHS.contains(&word),
                Self::Weekday => {
                    let day = word.strip_suffix('L').unwrap_or(word);
                    matches!(word, "*" | "?") || WEEKDAYS.contains(&day) || is_number(day)
                }
            }
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn pattern(fields: &[&str; 6]) -> Result<Pattern, BadCron> {
    let [_, minute, hour, day, _, weekday] = *fields;
    // As Vixie's cron has it: days are those of either field, unless one of them begins with a star.
    let both = day.starts_with('*') || weekday.starts_with('*');
    let read = read(&fields.join(" "), both).map_err(|source| blame(fields, source))?;
    let bits = |values: Vec<u16>| values.into_iter().fold(0_u64, |bits, value| bits | 1 << value);
    Ok(Pattern {
        seconds: bits(read.seconds.values()),
        minutes: bits(read.minutes.values()),
        hours: bits(read.hours.values()),
        months: bits(read.months.values()),
        days: days(&read),
        recurs: [minute, hour].iter().any(|field| field.contains(['*', '/'])),
    })
}

fn read(expression: &str, both: bool) -> Result<CronPattern, CronError> {
    let parser = CronParser::builder().seconds(Seconds::Required).year(Year::Disallowed).dom_and_dow(both).build();
    parser.parse(expression).map(|cron| cron.pattern)
}

/// Finds the field that is to blame: the one that is refused alone.
fn blame(fields: &[&str; 6], source: CronError) -> BadCron {
    for (place, (field, text)) in FIELDS.into_iter().zip(fields).enumerate() {
        let mut alone = ["*"; 6];
        alone[place] = text;
        if let Err(source) = read(&alone.join(" "), false) {
            return BadCron::Bounds { field, text: clipped(text), source };
        }
    }
    BadCron::Expression(source)
}

/// A month's days that are meant depend on its length and its first weekday alone: each of the 28 kinds is found out once.
fn days(read: &CronPattern) -> Days {
    let mut days = Days::default();
    for ((year, month), (length, kinds)) in MONTHS_BY_LENGTH.into_iter().zip((SHORTEST_MONTH_DAYS..).zip(&mut days)) {
        for (first, bits) in (0..).zip(kinds) {
            for day in 1..=length {
                let weekday = Weekday::from_days_from_sunday(first + day - 1);
                let is_meant = read.day_match(year, month, day, weekday).unwrap_or(false);
                *bits |= u32::from(is_meant) << day;
            }
        }
    }
    days
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(expression: &str) -> String {
        parse(expression).unwrap_err().to_string()
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        for (expression, place) in [
            ("60 * * * *", "minute: out of bounds: \"60\""),
            ("* 24 * * *", "hour: out of bounds: \"24\""),
            ("* * 0 * *", "day of month: out of bounds: \"0\""),
            ("* * * 13 *", "month: out of bounds: \"13\""),
            ("* * * * 8", "day of week: out of bounds: \"8\""),
            ("60 * * * * *", "second: out of bounds: \"60\""),
            ("5-1 * * * *", "minute: out of bounds: \"5-1\""),
            ("*/0 * * * *", "minute: out of bounds: \"*/0\""),
            ("5/10 * * * *", "minute: out of bounds: \"5/10\""),
            ("* * * * 1#6", "day of week: out of bounds: \"1#6\""),
        ] {
            assert_eq!(refused(expression), format!("trigger_config: cron: {place}"));
        }
    }

    #[test]
    fn a_word_stands_in_its_own_field_alone() {
        for (expression, field) in [
            ("MON * * * *", "minute"),
            ("* 1JAN * * *", "hour"),
            ("* * WED * *", "day of month"),
            ("* * * MON *", "month"),
            ("* * * * JAN", "day of week"),
            ("* * * * L", "day of week"),
            ("* * * * +1", "day of week"),
            ("1,,2 * * * *", "minute"),
            (", * * * *", "minute"),
            ("* * * * MÖN", "day of week"),
        ] {
            assert!(refused(expression).starts_with(&format!("trigger_config: cron: {field}: not in its form")));
        }
        assert!(parse("0 9 ? jan-Mar,12 Mon-FRI").is_ok());
        assert!(parse("0 9 L,15W * 5L,MON#1,sunL").is_ok());
    }

    #[test]
    fn five_fields_are_read_or_six_or_a_name() {
        for (expression, fields) in [("", 0), ("* * * *", 4), ("* * * * * * 2030", 7)] {
            let said = format!("trigger_config: cron: {fields} fields: there are 5, or 6 with seconds first");
            assert_eq!(refused(expression), said);
        }
        for name in ["@yearly", "@annually", "@monthly", "@weekly", "@Daily", "@midnight", "@hourly"] {
            assert!(parse(name).is_ok(), "{name}");
        }
        assert!(refused("@reboot").contains("no such name \"@REBOOT\""));
    }

    #[test]
    fn what_never_comes_is_refused() {
        assert_eq!(refused("0 0 30 2 *"), "trigger_config: cron: it never fires: \"0 0 30 2 *\"");
        assert!(refused("0 0 31 2,4,6,9,11 ?").contains("it never fires"));
        assert!(parse("0 0 29 2 *").is_ok());
        assert!(parse("0 0 * 2 1#5").is_ok(), "a leap day may be a fifth Monday");
        assert!(parse("0 0 */30 2 1").is_ok(), "the first is a Monday at times");
        assert!(parse("0 0 30 2 1").is_ok(), "on Mondays");
    }

    #[test]
    fn an_error_repeats_only_so_much_of_what_was_written() {
        assert!(refused(&format!("{} * * * *", "x".repeat(150))).len() < 100);
    }
}
