//! Queries, whose values are bytes: `path=%ff` names the file of that one byte.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::de::value::{Error, MapDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};

use super::{CONTENT, FILES, FileMode, FilePath, LIST, STAT, WATCH};

/// What a value is written with as it is; everything else is percent-encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

/// A query that is not what its route takes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("query: {0}")]
pub struct BadQuery(Error);

/// The query of a route.
pub trait FilesQuery: DeserializeOwned {
    /// Path of the route.
    const ROUTE: &'static str;

    /// Names and values, without those that are as they would be if they were left out.
    fn pairs(&self) -> Vec<(&'static str, Vec<u8>)>;

    /// Path and query, as a request has them.
    fn target(&self) -> String {
        let written =
            self.pairs().into_iter().map(|(name, value)| format!("{name}={}", percent_encode(&value, ENCODED)));
        format!("{}?{}", Self::ROUTE, written.collect::<Vec<_>>().join("&"))
    }

    /// Reads what follows the `?`; `+` is a space.
    ///
    /// # Errors
    /// [`BadQuery`].
    fn parse(query: &str) -> Result<Self, BadQuery> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (String::from_utf8_lossy(&decoded(name)).into_owned(), Value(decoded(value)))
        });
        Self::deserialize(MapDeserializer::new(pairs)).map_err(BadQuery)
    }
}

fn decoded(text: &str) -> Vec<u8> {
    percent_decode_str(&text.replace('+', " ")).collect()
}

/// Query of `GET /files/content`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadQuery {
    /// The file.
    pub path: FilePath,
}

/// Query of `PUT /files/content`. With neither `offset` nor `append` the body takes the place of the file all at once,
/// or not at all; a link at the end of the path is replaced. With either it is written into the file, which a link may
/// lead to, and what had come stays where the body breaks off.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WriteQuery {
    /// The file.
    pub path: FilePath,
    /// Where in the file the body is written, at most its size.
    pub offset: Option<u64>,
    /// The body is written behind what is there.
    pub append: bool,
    /// Permissions, at most 0777; without, those of the file that is replaced, or 0644.
    pub mode: Option<FileMode>,
    /// Makes the directories that are missing on the way.
    pub parents: bool,
    /// Answers when the content is safe from a crash of the host, too.
    pub sync: bool,
}

/// Query of `GET /files/list`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListQuery {
    /// The directory; the workspace without.
    pub path: FilePath,
    /// Entries of the page.
    pub limit: Option<u64>,
    /// Names up to this one are left out: `next` of the page before.
    pub cursor: Option<FilePath>,
}

/// Query of `GET /files/stat`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatQuery {
    /// The file.
    pub path: FilePath,
}

/// Query of `DELETE /files`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RemoveQuery {
    /// What is removed; a link itself.
    pub path: FilePath,
    /// Removes a directory with all that is in it.
    pub recursive: bool,
}

/// Query of `GET /files/watch`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchQuery {
    /// A directory or a file; the workspace without.
    pub path: FilePath,
    /// Watches directories below, too, also those that are made later.
    pub recursive: bool,
}

impl FilesQuery for ReadQuery {
    const ROUTE: &'static str = CONTENT;

    fn pairs(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![("path", self.path.0.clone())]
    }
}

impl FilesQuery for WriteQuery {
    const ROUTE: &'static str = CONTENT;

    fn pairs(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut pairs = vec![("path", self.path.0.clone())];
        pairs.extend(self.offset.map(|offset| ("offset", offset.to_string().into_bytes())));
        pairs.extend(flag("append", self.append));
        pairs.extend(self.mode.map(|mode| ("mode", mode.to_string().into_bytes())));
        pairs.extend(flag("parents", self.parents));
        pairs.extend(flag("sync", self.sync));
        pairs
    }
}

impl FilesQuery for ListQuery {
    const ROUTE: &'static str = LIST;

    fn pairs(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut pairs = vec![("path", self.path.0.clone())];
        pairs.extend(self.limit.map(|limit| ("limit", limit.to_string().into_bytes())));
        pairs.extend(self.cursor.clone().map(|cursor| ("cursor", cursor.0)));
        pairs
    }
}

impl FilesQuery for StatQuery {
    const ROUTE: &'static str = STAT;

    fn pairs(&self) -> Vec<(&'static str, Vec<u8>)> {
        vec![("path", self.path.0.clone())]
    }
}

impl FilesQuery for RemoveQuery {
    const ROUTE: &'static str = FILES;

    fn pairs(&self) -> Vec<(&'static str, Vec<u8>)> {
        [("path", self.path.0.clone())].into_iter().chain(flag("recursive", self.recursive)).collect()
    }
}

impl FilesQuery for WatchQuery {
    const ROUTE: &'static str = WATCH;

    fn pairs(&self) -> Vec<(&'static str, Vec<u8>)> {
        [("path", self.path.0.clone())].into_iter().chain(flag("recursive", self.recursive)).collect()
    }
}

fn flag(name: &'static str, set: bool) -> Option<(&'static str, Vec<u8>)> {
    set.then(|| (name, b"true".to_vec()))
}

/// The value of a pair: what its field makes of it.
struct Value(Vec<u8>);

impl Value {
    fn text(self) -> Result<String, Error> {
        String::from_utf8(self.0).map_err(|_| Error::custom("a value is no text"))
    }

    fn parsed<T: std::str::FromStr>(self, expected: &str) -> Result<T, Error> {
        let text = self.text()?;
        text.parse().map_err(|_| Error::custom(format_args!("{text:?} is no {expected}")))
    }
}

impl IntoDeserializer<'_> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_byte_buf(self.0)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.parsed("true or false")?)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u64(self.parsed("whole number")?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check<Q: FilesQuery + PartialEq + std::fmt::Debug>(query: Q, target: &str) {
        assert_eq!(query.target(), target);
        assert_eq!(Q::parse(target.split_once('?').unwrap().1).unwrap(), query);
    }

    #[test]
    fn queries_have_these_texts() {
        let path = FilePath(b"a b/\xff&=".to_vec());
        check(ReadQuery { path: path.clone() }, "/files/content?path=a%20b/%FF%26%3D");
        check(StatQuery { path: "x".into() }, "/files/stat?path=x");
        check(RemoveQuery { path: "x".into(), recursive: true }, "/files?path=x&recursive=true");
        check(WatchQuery::default(), "/files/watch?path=");
        check(
            ListQuery { path, limit: Some(7), cursor: Some("c".into()) },
            "/files/list?path=a%20b/%FF%26%3D&limit=7&cursor=c",
        );
        let (offset, mode) = (Some(5), Some(FileMode(0o600)));
        check(
            WriteQuery { path: "x".into(), offset, append: true, mode, parents: true, sync: true },
            "/files/content?path=x&offset=5&append=true&mode=0600&parents=true&sync=true",
        );
    }

    #[test]
    fn a_plus_is_a_space_and_what_is_no_query_is_refused() {
        assert_eq!(ReadQuery::parse("path=a+b%2B").unwrap().path, "a b+".into());
        for (query, error) in [
            ("", "query: missing field `path`"),
            ("path=a&path=b", "query: duplicate field `path`"),
            ("path=a&x=", "query: unknown field `x`, expected `path`"),
        ] {
            assert_eq!(ReadQuery::parse(query).unwrap_err().to_string(), error);
        }
        for query in ["offset=-1", "offset=", "append=yes", "mode=9", "mode=%ff", "offset=18446744073709551616"] {
            assert!(WriteQuery::parse(&format!("path=x&{query}")).is_err(), "{query}");
        }
    }

    proptest! {
        #[test]
        fn a_path_of_any_bytes_comes_back(bytes: Vec<u8>, recursive: bool) {
            let query = RemoveQuery { path: FilePath(bytes), recursive };
            let target = query.target();
            prop_assert!(target.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(RemoveQuery::parse(target.split_once('?').unwrap().1).unwrap(), query);
        }

        #[test]
        fn no_query_makes_it_panic(query: String) {
            prop_assert!(WriteQuery::parse(&query).is_ok() || query.contains(|c: char| c != '&'));
        }
    }
}
