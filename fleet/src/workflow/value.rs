//! What expressions are about: JSON in a type of our own, no deeper and no longer than is kept.

use std::collections::BTreeMap;
use std::fmt;

use sandbox_protocol::limits::HOOK_BODY_BYTES_MAX;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Number;

use crate::limits::VALUE_DEPTH_MAX;

/// What a step leaves, by name.
pub type Outputs = BTreeMap<String, Value>;

/// A value.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// Nothing, and whatever is missing.
    #[default]
    Null,
    /// Yes or no.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
    /// Values by place.
    List(Vec<Value>),
    /// Values by name.
    Object(BTreeMap<String, Value>),
}

/// What is missing, for those that lend it.
pub(super) const NULL: Value = Value::Null;

impl Value {
    /// What somebody sent: JSON where it is JSON that can be kept, else its text, cut at the length of a webhook's body.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::of_json(bytes, HOOK_BODY_BYTES_MAX).unwrap_or_else(|| Self::of_text(bytes, HOOK_BODY_BYTES_MAX).0)
    }

    /// Of anything that can be written as JSON; null where that is deeper than is kept.
    pub fn of(value: &impl Serialize) -> Self {
        let written = serde_json::to_value(value).and_then(serde_json::from_value);
        written.ok().filter(Self::is_shallow).unwrap_or_default()
    }

    /// JSON of at most so many bytes, where it is that and can be kept.
    pub(super) fn of_json(bytes: &[u8], bytes_max: usize) -> Option<Self> {
        let trimmed = bytes.trim_ascii();
        let read = (trimmed.len() <= bytes_max).then(|| serde_json::from_slice(trimmed).ok()).flatten();
        read.filter(Self::is_shallow)
    }

    /// A text of at most so many bytes, and whether it was cut. Bytes that are no text are replaced.
    pub(super) fn of_text(bytes: &[u8], bytes_max: usize) -> (Self, bool) {
        // What is replaced grows, so what is cut once may have to be cut again; what is cut in a letter is no letter.
        let kept = &bytes[..bytes.len().min(bytes_max)];
        let mut text = String::from_utf8_lossy(kept).into_owned();
        let is_cut = kept.len() < bytes.len() || text.len() > bytes_max;
        if is_cut {
            let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER).len();
            text.truncate(text.floor_char_boundary(whole.min(bytes_max)));
        }
        (Self::Text(text), is_cut)
    }

    /// As it is read where a condition is asked for: null, `false`, 0 and the empty text are no, all else is yes.
    pub fn is_true(&self) -> bool {
        match self {
            Self::Null => false,
            Self::Bool(value) => *value,
            Self::Number(number) => number.as_f64() != Some(0.0),
            Self::Text(text) => !text.is_empty(),
            Self::List(_) | Self::Object(_) => true,
        }
    }

    /// The value of this name within it, or null.
    pub fn key(&self, name: &str) -> &Self {
        match self {
            Self::Object(values) => values.get(name).unwrap_or(&NULL),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::List(_) => &NULL,
        }
    }

    /// The value at this place within it, or null.
    pub fn item(&self, place: usize) -> &Self {
        match self {
            Self::List(values) => values.get(place).unwrap_or(&NULL),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) | Self::Object(_) => &NULL,
        }
    }

    /// Lists and objects within one another.
    pub fn depth(&self) -> usize {
        let within = match self {
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => return 0,
            Self::List(values) => values.iter().map(Self::depth).max(),
            Self::Object(values) => values.values().map(Self::depth).max(),
        };
        within.unwrap_or_default() + 1
    }

    fn is_shallow(&self) -> bool {
        self.depth() <= VALUE_DEPTH_MAX
    }

    /// About as many bytes as it has as JSON.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) => 5,
            Self::Number(_) => 20,
            Self::Text(text) => text.len() + 2,
            Self::List(values) => 2 + values.iter().map(|value| value.size_bytes() + 1).sum::<usize>(),
            Self::Object(values) => {
                2 + values.iter().map(|(name, value)| name.len() + value.size_bytes() + 4).sum::<usize>()
            }
        }
    }

    /// As it stands in a text: a text as it is, all else as JSON.
    pub fn shown(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Text(text) => text.into(),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::List(_) | Self::Object(_) => self.json().into(),
        }
    }

    /// As JSON.
    pub fn json(&self) -> String {
        // Writing what has nothing but texts for keys into memory does not fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number.into())
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(rounded(number)).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element()? {
            values.push(value);
        }
        Ok(Value::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut values = BTreeMap::new();
        while let Some((name, value)) = entries.next_entry()? {
            values.insert(name, value);
        }
        Ok(Value::Object(values))
    }
}

/// To 15 digits: as many as survive a reader that is one unit off in the last place, as ours may be. So a value that was written
/// to disk is the same when it is read again, and an attempt asks for the same when it is taken up again.
fn rounded(number: f64) -> f64 {
    if number.abs() < SMALLEST {
        return 0.0;
    }
    let digits = format!("{number:.14e}").parse().unwrap_or(number);
    if f64::is_finite(digits) { digits } else { number }
}

/// What is smaller loses digits.
const SMALLEST: f64 = 1e-290;

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn a_value_is_written_as_it_was_read() {
        let text = r#"{"a":[1,-2,2.5,18446744073709551615,null,true,"x"],"b":{}}"#;
        let value = Value::of_bytes(text.as_bytes());
        assert_eq!(value.json(), text);
        assert_eq!(serde_json::from_str::<Value>(&value.json()).unwrap(), value);
        assert_eq!(value.key("a").item(3).json(), u64::MAX.to_string());
        assert_eq!(value.key("c").key("d").item(1), &Value::Null);
        assert_eq!(value.depth(), 2);
    }

    #[test]
    fn fractions_keep_15_digits() {
        let read = |text: &str| Value::of_bytes(text.as_bytes()).json();
        assert_eq!(read("0.30000000000000004"), "0.3");
        assert_eq!(read("0.123456789012345"), "0.123456789012345");
        assert_eq!((read("-1e-300"), read("1.7976931348623157e308")), ("0.0".into(), "1.7976931348623157e+308".into()));
    }

    #[test]
    fn what_is_deeper_than_is_kept_is_text_and_no_value() {
        let deepest = nested(VALUE_DEPTH_MAX);
        assert_eq!(Value::of_bytes(deepest.as_bytes()).depth(), VALUE_DEPTH_MAX);
        for depth in [VALUE_DEPTH_MAX + 1, 127, 128, 100_000] {
            let text = nested(depth);
            assert_eq!(Value::of_bytes(text.as_bytes()), Value::Text(text));
        }
        let deeper = serde_json::from_str::<Value>(&nested(VALUE_DEPTH_MAX + 1)).unwrap();
        assert_eq!(Value::of(&deeper), Value::Null);
    }

    #[test]
    fn what_is_longer_than_is_kept_is_cut_between_letters() {
        assert_eq!(Value::of_text(b"abc", 3), ("abc".into(), false));
        assert_eq!(Value::of_text(b"abcd", 3), ("abc".into(), true));
        assert_eq!(Value::of_text("aäb".as_bytes(), 2), ("a".into(), true));
        assert_eq!(Value::of_text(b"a\xff\xffb", 4), ("a\u{fffd}".into(), true));
        assert_eq!(Value::of_text(b"\xff", 3), ("\u{fffd}".into(), false));
        assert_eq!(Value::of_json(b" [1] ", 3), Some(Value::List(vec![1.into()])));
        assert_eq!(Value::of_json(b"[12]", 3), None);
    }

    #[test]
    fn nothing_zero_and_the_empty_text_are_no() {
        for (text, expected) in [
            ("null", false),
            ("false", false),
            ("0", false),
            ("-0.0", false),
            ("\"\"", false),
            ("true", true),
            ("-1", true),
            ("0.5", true),
            ("\"false\"", true),
            ("[]", true),
            ("{}", true),
        ] {
            assert_eq!(Value::of_bytes(text.as_bytes()).is_true(), expected, "{text}");
        }
    }
}
