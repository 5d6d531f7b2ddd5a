//! Names and permissions as they are written.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Key of the object that carries bytes which are no text.
const BASE64: &str = "base64";

/// A path, or a name, of any bytes: as JSON it is a string where it is UTF-8, and `{"base64": …}` where it is not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FilePath(pub Vec<u8>);

impl FilePath {
    /// For people: what is not UTF-8, or not printable, is escaped.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.0).escape_debug().to_string()
    }
}

impl From<&str> for FilePath {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl Serialize for FilePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Ok(text) = std::str::from_utf8(&self.0) {
            return serializer.serialize_str(text);
        }
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(BASE64, &STANDARD.encode(&self.0))?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PathVisitor)
    }
}

struct PathVisitor;

impl<'de> Visitor<'de> for PathVisitor {
    type Value = FilePath;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path, or its bytes as {\"base64\": …}")
    }

    fn visit_str<E>(self, text: &str) -> Result<FilePath, E> {
        Ok(text.into())
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<FilePath, E> {
        Ok(FilePath(bytes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FilePath, A::Error> {
        let entry: Option<(String, String)> = map.next_entry()?;
        let text = entry.filter(|(key, _)| key == BASE64).map(|(_, text)| text);
        let bytes = STANDARD.decode(text.ok_or_else(|| A::Error::missing_field(BASE64))?).map_err(A::Error::custom)?;
        match map.next_key::<String>()? {
            Some(key) => Err(A::Error::unknown_field(&key, &[BASE64])),
            None => Ok(FilePath(bytes)),
        }
    }
}

/// Permissions; its text is octal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileMode(pub u32);

/// A text that is no [`FileMode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected: permissions in octal, 0 to 7777")]
pub struct NotAMode;

impl FromStr for FileMode {
    type Err = NotAMode;

    fn from_str(text: &str) -> Result<Self, NotAMode> {
        let octal = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        let mode = octal.then(|| u32::from_str_radix(text, 8).ok()).flatten();
        mode.filter(|mode| *mode <= 0o7777).map(Self).ok_or(NotAMode)
    }
}

impl fmt::Display for FileMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(path: &[u8], json: &str) {
        let path = FilePath(path.to_vec());
        assert_eq!(serde_json::to_string(&path).unwrap(), json);
        assert_eq!(serde_json::from_str::<FilePath>(json).unwrap(), path);
    }

    #[test]
    fn a_path_is_a_string_and_bytes_that_are_none_are_base64() {
        check(b"a/b", r#""a/b""#);
        check("ü".as_bytes(), r#""ü""#);
        check(b"\xff/", r#"{"base64":"/y8="}"#);
        for json in ["1", "null", "{}", r#"{"base64":"*"}"#, r#"{"base65":"/w=="}"#, r#"{"base64":"/w==","x":"y"}"#] {
            assert!(serde_json::from_str::<FilePath>(json).is_err(), "{json}");
        }
    }

    #[test]
    fn a_mode_is_octal() {
        for (text, mode) in [("0", 0), ("644", 0o644), ("0755", 0o755), ("07777", 0o7777)] {
            assert_eq!(text.parse(), Ok(FileMode(mode)), "{text}");
        }
        for text in ["", "8", "+1", "-1", "0x1", "10000", "000644"] {
            assert_eq!(text.parse::<FileMode>(), Err(NotAMode), "{text}");
        }
        assert_eq!(FileMode(0o644).to_string(), "0644");
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_come_back_from_json(bytes: Vec<u8>) {
            let path = FilePath(bytes);
            let json = serde_json::to_string(&path).unwrap();
            prop_assert_eq!(serde_json::from_str::<FilePath>(&json).unwrap(), path);
        }
    }
}
