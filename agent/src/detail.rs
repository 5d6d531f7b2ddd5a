//! What an error tells of its circumstances: values in the order they were given, bounded and without secrets as they
//! are written.

use std::fmt;

use serde_json::{Number, Value};

use crate::limits::{CONTEXT_ENTRIES_MAX, CONTEXT_LEVELS_MAX, CONTEXT_TEXT_BYTES_MAX};
use crate::redact::{REDACTED, cleaned, names_a_secret};

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Detail {
    /// None.
    Nil,
    /// Yes or no.
    Flag(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
    /// Several.
    List(Vec<Self>),
    /// Several with names.
    Map(Vec<(String, Self)>),
}

impl Detail {
    /// A map of what has names.
    pub fn map<'a>(entries: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(name, detail)| (name.to_owned(), detail)).collect())
    }

    pub(crate) fn write(&self, f: &mut impl fmt::Write, levels: usize) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{:?}", cleaned(text, CONTEXT_TEXT_BYTES_MAX)),
            Self::List(_) | Self::Map(_) if levels == 0 => f.write_str("..."),
            Self::List(details) => {
                f.write_str("[")?;
                separated(f, details, |f, detail| detail.write(f, levels - 1))?;
                f.write_str("]")
            }
            Self::Map(entries) => {
                f.write_str("%{")?;
                separated(f, entries, |f, (name, detail)| {
                    if is_word(name) {
                        write!(f, "{name}: ")?
                    } else {
                        write!(f, "{name:?} => ")?
                    }
                    detail.write_as(name, f, levels - 1)
                })?;
                f.write_str("}")
            }
        }
    }

    /// Writes the value of `name`: what is a secret by its name is not shown, whatever it looks like.
    pub(crate) fn write_as(&self, name: &str, f: &mut impl fmt::Write, levels: usize) -> fmt::Result {
        match self {
            Self::Text(_) | Self::Number(_) | Self::List(_) if names_a_secret(name) => write!(f, "{REDACTED:?}"),
            detail => detail.write(f, levels),
        }
    }
}

/// As it is shown to a model: the notation of the documents that this follows, with `nil` and `%{name: value}`.
impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, CONTEXT_LEVELS_MAX)
    }
}

fn separated<W: fmt::Write, T>(
    f: &mut W,
    items: &[T],
    mut write: impl FnMut(&mut W, &T) -> fmt::Result,
) -> fmt::Result {
    for (at, item) in items.iter().take(CONTEXT_ENTRIES_MAX).enumerate() {
        if at > 0 {
            f.write_str(", ")?;
        }
        write(f, item)?;
    }
    if items.len() > CONTEXT_ENTRIES_MAX { f.write_str(", ...") } else { Ok(()) }
}

fn is_word(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}

impl From<&Value> for Detail {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Nil,
            Value::Bool(flag) => Self::Flag(*flag),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(values) => Self::List(values.iter().map(Self::from).collect()),
            Value::Object(fields) => {
                Self::Map(fields.iter().map(|(name, value)| (name.clone(), Self::from(value))).collect())
            }
        }
    }
}

impl From<&str> for Detail {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Detail {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Detail {
    fn from(number: u64) -> Self {
        Self::Number(number.into())
    }
}

impl From<i64> for Detail {
    fn from(number: i64) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Detail {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(value: Value, shown: &str) {
        assert_eq!(Detail::from(&value).to_string(), shown);
    }

    #[test]
    fn values_are_shown_in_one_notation() {
        check(json!(null), "nil");
        check(json!([1, -2.5, true, "a \"b\"\n"]), r#"[1, -2.5, true, "a \"b\"\n"]"#);
        check(json!({"Content-Type": {}, "path": null}), r#"%{"Content-Type" => %{}, path: nil}"#);
    }

    #[test]
    fn what_is_secret_by_name_or_shape_is_not_shown() {
        check(json!({"api_key": "x", "password": 1234}), r#"%{api_key: "[redacted]", password: "[redacted]"}"#);
        check(json!({"note": "sk-abcdefghijklmnopqrstuv", "token": null}), r#"%{note: "[redacted]", token: nil}"#);
        check(json!({"max_tokens": 7}), "%{max_tokens: 7}");
    }

    #[test]
    fn depth_breadth_and_length_are_bounded() {
        let deep = (0..CONTEXT_LEVELS_MAX).fold(json!(1), |inner, _| json!([inner]));
        assert!(!Detail::from(&deep).to_string().contains("..."));
        assert!(Detail::from(&json!([deep])).to_string().contains("..."));
        let broad = |entries| Detail::from(&json!(vec![0; entries])).to_string();
        assert!(!broad(CONTEXT_ENTRIES_MAX).contains("...") && broad(CONTEXT_ENTRIES_MAX + 1).contains("..."));
        let long = |bytes| Detail::from("x".repeat(bytes)).to_string();
        assert!(!long(CONTEXT_TEXT_BYTES_MAX).contains("more") && long(CONTEXT_TEXT_BYTES_MAX + 1).contains("1 more"));
    }
}
