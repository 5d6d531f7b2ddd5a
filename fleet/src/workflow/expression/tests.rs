//! What expressions come to, how texts that are none are refused, and that nothing makes either of them fall over.

use std::borrow::Cow;

use proptest::prelude::*;
use sandbox_protocol::limits::WORKFLOW_EXPRESSION_BYTES_MAX;

use super::*;
use crate::limits::EXPRESSION_DEPTH_MAX;

/// Paths lead into one value.
struct Within(Value);

impl Scope for Within {
    fn value(&self, path: &[Part]) -> Cow<'_, Value> {
        Cow::Borrowed(path.iter().fold(&self.0, |value, part| match part {
            Part::Name(name) => value.key(name),
            Part::Item(place) => value.item(*place),
        }))
    }
}

fn scope() -> Within {
    Within(Value::of_bytes(
        br#"{"n":3,"f":2.5,"zero":0,"t":"text","e":"","l":[1,"two",null],"o":{"a b":1,"b-c":{"d":[true]}},"yes":true}"#,
    ))
}

#[track_caller]
fn is(text: &str, expected: &str) {
    let expression = Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(expression.value(&scope()).json(), expected, "{text}");
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    assert_eq!(Expression::parse(text).unwrap_err().to_string(), expected, "{text}");
}

#[test]
fn a_literal_is_its_value() {
    for (text, expected) in [
        ("null", "null"),
        ("true", "true"),
        (" false ", "false"),
        ("-12", "-12"),
        ("1.5e3", "1500.0"),
        ("18446744073709551615", "18446744073709551615"),
        ("'it''s'", "\"it's\""),
        ("''", "\"\""),
        ("''''", "\"'\""),
        ("'ä }} \"'", "\"ä }} \\\"\""),
    ] {
        is(text, expected);
    }
}

#[test]
fn a_path_leads_by_names_and_places_or_to_null() {
    for (text, expected) in [
        ("n", "3"),
        ("o.b-c.d[0]", "true"),
        ("o['a b']", "1"),
        ("o [ 'b-c' ] . d", "[true]"),
        ("l[1]", "\"two\""),
        ("l[3]", "null"),
        ("l['1']", "null"),
        ("o[0]", "null"),
        ("t.length", "null"),
        ("nothing.at.all[7]", "null"),
    ] {
        is(text, expected);
    }
}

#[test]
fn signs_bind_as_they_are_used_to() {
    for (text, expected) in [
        ("n == 3 && t == 'text'", "true"),
        ("true || false && false", "true"),
        ("(true || false) && false", "false"),
        ("!yes == false", "true"),
        ("!(n == 4)", "true"),
        ("!!n", "true"),
        ("n<4&&n<=3&&n>2&&n>=3&&n!=4", "true"),
    ] {
        is(text, expected);
    }
}

#[test]
fn what_is_missing_is_filled_in_by_or() {
    for (text, expected) in [
        ("nothing || 'default'", "\"default\""),
        ("e || zero || null", "null"),
        ("t || 'default'", "\"text\""),
        ("yes && n", "3"),
        ("zero && n", "0"),
        ("l || 1", "[1,\"two\",null]"),
    ] {
        is(text, expected);
    }
}

#[test]
fn values_of_two_types_are_neither_equal_nor_ordered() {
    for (text, expected) in [
        ("n == '3'", "false"),
        ("n != '3'", "true"),
        ("n < 'text'", "false"),
        ("n >= 'text'", "false"),
        ("null == false", "false"),
        ("null == nothing", "true"),
        ("nothing < 1", "false"),
        ("nothing >= 1", "false"),
        ("yes > false", "false"),
        ("l < l", "false"),
        ("l == l", "true"),
        ("o == o.b-c", "false"),
        ("o == o", "true"),
        ("'a' < 'b'", "true"),
        ("'B' < 'a'", "true"),
        ("1 == 1.0", "true"),
        ("f > 2", "true"),
        ("-0.0 == 0", "true"),
        ("18446744073709551615 > -9223372036854775808", "true"),
        ("9007199254740993 == 9007199254740992", "false"),
    ] {
        is(text, expected);
    }
}

#[test]
fn contains_looks_into_texts_lists_and_objects() {
    for (text, expected) in [
        ("contains(t, 'ex')", "true"),
        ("contains(t, '')", "true"),
        ("contains(t, 3)", "false"),
        ("contains(l, 'two')", "true"),
        ("contains(l, 1.0)", "true"),
        ("contains(l, null)", "true"),
        ("contains(l, 2)", "false"),
        ("contains(o, 'a b')", "true"),
        ("contains(o, 1)", "false"),
        ("contains(nothing, 'a')", "false"),
        ("contains(n, 3)", "false"),
        ("contains((t), t) && always()", "true"),
    ] {
        is(text, expected);
    }
}

#[test]
fn what_is_no_expression_is_refused_by_its_letter() {
    for (text, expected) in [
        ("", "at letter 1: a value is expected, not the end"),
        ("  ", "at letter 3: a value is expected, not the end"),
        ("a b", "at letter 3: the end is expected, not `b`"),
        ("ä", "at letter 1: 'ä' means nothing here"),
        ("'ä' == ä", "at letter 8: 'ä' means nothing here"),
        ("a = b", "at letter 3: '=' means nothing here"),
        ("a == b == c", "at letter 8: the end is expected, not `==`"),
        ("a &&", "at letter 5: a value is expected, not the end"),
        ("(a", "at letter 3: `)` is expected, not the end"),
        ("a)", "at letter 2: the end is expected, not `)`"),
        ("a.", "at letter 3: a name is expected, not the end"),
        ("a.0", "at letter 3: a name is expected, not `0`"),
        ("a[-1]", "at letter 3: a place or 'name' is expected, not `-1`"),
        ("a[1", "at letter 4: `]` is expected, not the end"),
        ("'a", "at letter 1: the quote is not closed"),
        ("\"a\"", "at letter 1: texts stand between single quotes: 'text'"),
        ("1.", "at letter 1: 1. is no number"),
        ("01", "at letter 1: 01 is no number"),
        ("1e999", "at letter 1: 1e999 is no number"),
        ("size(a)", "at letter 1: no function `size`; there are contains and always"),
        ("always(a)", "at letter 8: `)` is expected, not `a`"),
        ("contains(a)", "at letter 11: `,` is expected, not `)`"),
        ("a }}", "at letter 3: the end is expected, not `}}`"),
        ("${{ a }}", "at letter 1: '$' means nothing here"),
    ] {
        refused(text, expected);
    }
}

#[test]
fn an_expression_is_no_deeper_and_no_longer_than_may_be() {
    let nested = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Expression::parse(&nested(EXPRESSION_DEPTH_MAX)).is_ok());
    let too_deep = "at letter 34: more than 32 within one another";
    refused(&nested(EXPRESSION_DEPTH_MAX + 1), too_deep);
    refused(&format!("{}1", "!".repeat(EXPRESSION_DEPTH_MAX + 1)), too_deep);
    assert!(Expression::parse(&nested(500)).is_err() && Expression::parse(&"contains(".repeat(100_000)).is_err());
    let long = |bytes: usize| format!("'{}'", "x".repeat(bytes - 2));
    assert!(Expression::parse(&long(WORKFLOW_EXPRESSION_BYTES_MAX)).is_ok());
    refused(&long(WORKFLOW_EXPRESSION_BYTES_MAX + 1), "at letter 1: longer than 1024 bytes");
    assert!(Expression::parse(&vec!["1"; 300].join("&&")).is_ok());
}

/// Values as they come from elsewhere.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i32>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| Value::of(&number)),
        "[ab]{0,3}".prop_map(Value::Text),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            proptest::collection::btree_map("[ab]{1,2}", inner, 0..4).prop_map(Value::Object),
        ]
    })
}

/// Texts that look like expressions.
fn wordy() -> impl Strategy<Value = String> {
    let words = [
        "a", "l", "o", ".", "[", "]", "0", "1.5", "-", "'x'", "'", "(", ")", "!", "&&", "||", "==", "!=", "<", ">=",
        ",", "contains", "always", "null", "true", "}}", " ", "ä", "steps",
    ];
    proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..24).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused_and_what_was_read_has_a_value(text in ".{0,80}", wordy in wordy(), value in value()) {
        let scope = Within(value);
        for text in [&text, &wordy] {
            if let Ok(expression) = Expression::parse(text) {
                expression.holds(&scope);
            }
            match Expression::parse_to_braces(text, 0) {
                Ok((expression, end)) => {
                    expression.holds(&scope);
                    prop_assert!(text[..end].ends_with("}}"));
                }
                Err(error) => prop_assert!(error.letter <= text.chars().count() + 1),
            }
        }
    }

    #[test]
    fn comparisons_agree_with_each_other(left in value(), right in value()) {
        let both = Within(Value::Object([("a".to_owned(), left), ("b".to_owned(), right)].into()));
        let holds = |text: &str| Expression::parse(text).unwrap().holds(&both);
        prop_assert!(holds("a == a"));
        prop_assert_eq!(holds("a == b"), holds("b == a"));
        prop_assert_ne!(holds("a == b"), holds("a != b"));
        prop_assert_eq!(holds("a < b"), holds("b > a"));
        prop_assert_eq!(holds("a <= b"), holds("b >= a"));
        prop_assert!(!(holds("a < b") && holds("a > b")));
        if holds("a <= b") && holds("a >= b") {
            prop_assert!(holds("a == b"));
        }
        prop_assert_eq!(holds("!a"), !holds("a"));
    }

    #[test]
    fn a_value_survives_being_written(value in value()) {
        let read: Value = serde_json::from_str(&value.json()).unwrap();
        prop_assert_eq!(read, value);
    }
}
