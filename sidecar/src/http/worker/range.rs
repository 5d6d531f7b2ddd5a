//! `Range`, `If-Match` and their like (RFC 9110): what of a file is asked for, and whether at all.

use axum::http::HeaderMap;
use axum::http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE};

/// What of a file is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// All of it; also where the range is none, or several.
    Whole,
    /// So many bytes from there on.
    Part { start: u64, bytes: u64 },
    /// Nothing that the file has.
    Beyond,
}

impl Asked {
    /// What `headers` ask of a file of `size` bytes whose `ETag` is `etag`.
    pub(super) fn of(headers: &HeaderMap, size: u64, etag: &str) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        if text(IF_RANGE).is_some_and(|expected| expected != etag) {
            return Self::Whole;
        }
        text(RANGE).and_then(|range| part(range, size)).unwrap_or(Self::Whole)
    }
}

/// The one range that `text` names, or `None`.
fn part(text: &str, size: u64) -> Option<Asked> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (start, end) = match (first, last) {
        ("", count) => (size.saturating_sub(number(count)?), size),
        (first, "") => (number(first)?, size),
        (first, last) if number(first)? <= number(last)? => (number(first)?, number(last)?.saturating_add(1).min(size)),
        _ => return None,
    };
    Some(if start < end { Asked::Part { start, bytes: end - start } } else { Asked::Beyond })
}

/// Whether `If-Match` holds for a file of this `etag`; it does where there is none.
pub(super) fn matches(headers: &HeaderMap, etag: &str) -> bool {
    !headers.contains_key(IF_MATCH) || names(headers, IF_MATCH, |given| given == etag)
}

/// Whether `If-None-Match` says that the caller has this file already.
pub(super) fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    names(headers, IF_NONE_MATCH, |given| given.strip_prefix("W/").unwrap_or(given) == etag)
}

fn names(headers: &HeaderMap, header: HeaderName, is: impl Fn(&str) -> bool) -> bool {
    let lists = headers.get_all(header).into_iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(str::trim).any(|given| given == "*" || is(given))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: &str = "\"e\"";

    fn check(headers: &[(HeaderName, &str)], expected: Asked) {
        let map: HeaderMap = headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        assert_eq!(Asked::of(&map, 10, ETAG), expected, "{headers:?}");
    }

    #[test]
    fn one_range_is_a_part() {
        for (text, start, bytes) in [
            ("bytes=0-0", 0, 1),
            ("bytes=0-9", 0, 10),
            ("bytes=3-", 3, 7),
            ("bytes=9-", 9, 1),
            ("bytes=5-99", 5, 5),
            ("bytes=5-18446744073709551615", 5, 5),
            ("bytes=-1", 9, 1),
            ("bytes=-99", 0, 10),
        ] {
            check(&[(RANGE, text)], Asked::Part { start, bytes });
        }
    }

    #[test]
    fn a_range_beyond_the_end_is_told_from_one_that_is_none() {
        for text in ["bytes=10-", "bytes=10-11", "bytes=-0", "bytes=99-100"] {
            check(&[(RANGE, text)], Asked::Beyond);
        }
        for text in ["bytes=", "bytes=-", "bytes=5-3", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4", "bytes=+1-2", "0-1"] {
            check(&[(RANGE, text)], Asked::Whole);
        }
        check(&[], Asked::Whole);
    }

    #[test]
    fn a_range_of_another_version_is_the_whole() {
        check(&[(RANGE, "bytes=1-2"), (IF_RANGE, ETAG)], Asked::Part { start: 1, bytes: 2 });
        check(&[(RANGE, "bytes=1-2"), (IF_RANGE, "\"f\"")], Asked::Whole);
    }

    #[test]
    fn conditions_name_versions_in_lists() {
        let map = |name: HeaderName, value: &str| HeaderMap::from_iter([(name, value.parse().unwrap())]);
        for value in [ETAG, "*", "\"x\", \"e\""] {
            assert!(matches(&map(IF_MATCH, value), ETAG) && is_known(&map(IF_NONE_MATCH, value), ETAG), "{value}");
        }
        for value in ["\"x\"", "e", ""] {
            assert!(!matches(&map(IF_MATCH, value), ETAG) && !is_known(&map(IF_NONE_MATCH, value), ETAG), "{value}");
        }
        assert!(matches(&HeaderMap::new(), ETAG) && !is_known(&HeaderMap::new(), ETAG));
        assert!(is_known(&map(IF_NONE_MATCH, "W/\"e\""), ETAG) && !matches(&map(IF_MATCH, "W/\"e\""), ETAG));
    }
}
