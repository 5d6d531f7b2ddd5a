//! What most items of a batch answered.
//!
//! Answers are compared as they are meant and not as they are laid out: white space counts as one blank, an object or array of
//! JSON as its content. A bare number or text stays text, since `1.10` may be a version and no number.

use std::collections::BTreeMap;
use std::fmt;

use sandbox_protocol::batch::Majority;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::JSON_EXACT_MAX;

/// The answer that most items gave, by item; `None` where there are none. Of answers given equally often it is the one whose
/// first item comes first.
pub fn majority<'a>(answers: impl Iterator<Item = (u32, &'a str)>) -> Option<Majority> {
    let mut camps: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut of = 0;
    for (item, answer) in answers {
        camps.entry(normalised(answer)).or_default().push(item);
        of += 1;
    }
    for items in camps.values_mut() {
        items.sort_unstable();
    }
    let most = camps.values().map(Vec::len).max()?;
    let tied = camps.values().filter(|items| items.len() == most).count() > 1;
    let largest = camps.into_iter().filter(|(_, items)| items.len() == most);
    let (answer, items) = largest.min_by_key(|(_, items)| items.first().copied())?;
    Some(Majority { answer, items, of, tied })
}

/// The form in which answers are compared.
fn normalised(answer: &str) -> String {
    let is_json = answer.trim_start().starts_with(['{', '[']);
    let parsed = is_json.then(|| serde_json::from_str::<Json>(answer.trim()).ok()).flatten();
    let canonical = parsed.and_then(|json| serde_json::to_string(&json).ok());
    canonical.unwrap_or_else(|| answer.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// JSON whose objects are in the order of their names. What is nested deeper than the parser goes is no JSON here.
#[derive(Serialize)]
#[serde(untagged)]
enum Json {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Unsigned(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Signed(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Json, E> {
        let is_whole = value.fract() == 0.0 && value.abs() < JSON_EXACT_MAX;
        #[allow(clippy::cast_possible_truncation)] // it is whole, and not too large
        Ok(if is_whole { Json::Signed(value as i64) } else { Json::Float(value) })
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut object = BTreeMap::new();
        while let Some((name, value)) = entries.next_entry()? {
            object.insert(name, value);
        }
        Ok(Json::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answers: &[&str], answer: &str, items: &[u32], tied: bool) {
        let found = majority((0..).zip(answers.iter().copied())).unwrap();
        let of = u32::try_from(answers.len()).unwrap();
        assert_eq!(found, Majority { answer: answer.into(), items: items.to_vec(), of, tied });
    }

    #[test]
    fn most_items_have_it() {
        check(&["a", "b", "b"], "b", &[1, 2], false);
        check(&["a"], "a", &[0], false);
        assert_eq!(majority([].into_iter()), None);
    }

    #[test]
    fn a_tie_is_the_first_items_and_told() {
        check(&["b", "a"], "b", &[0], true);
        check(&["c", "b", "a", "a", "b"], "b", &[1, 4], true);
        check(&["c", "a", "a"], "a", &[1, 2], false);
        let out_of_order = majority([(7, "late"), (2, "early")].into_iter()).unwrap();
        assert_eq!((out_of_order.answer.as_str(), out_of_order.items, out_of_order.tied), ("early", vec![2], true));
    }

    #[test]
    fn white_space_makes_no_difference_and_letters_do() {
        check(&[" four\u{a0}\u{2003}two\r\n", "four two", "Four two"], "four two", &[0, 1], false);
        check(&["", " \n"], "", &[0, 1], false);
    }

    #[test]
    fn json_is_compared_by_what_it_holds() {
        let laid_out = "{\n  \"b\": [1, 2.0, null],\n  \"a\": {\"y\": true, \"x\": \"a  b\"}\n}\n";
        let packed = r#"{"a":{"x":"a  b","y":true},"b":[1.0,2,null]}"#;
        check(&[laid_out, "{}", packed], r#"{"a":{"x":"a  b","y":true},"b":[1,2,null]}"#, &[0, 2], false);
        check(&[r#"{"a":"x y"}"#, r#"{"a":"x  y"}"#], r#"{"a":"x y"}"#, &[0], true);
        check(&["[-1, 0.5, 18446744073709551615]"], "[-1,0.5,18446744073709551615]", &[0], false);
    }

    #[test]
    fn what_only_looks_like_json_is_text() {
        check(&["1.10", "1.1"], "1.10", &[0], true);
        check(&["{a:  1}", "{a: 1}"], "{a: 1}", &[0, 1], false);
        let deep = "[".repeat(10_000);
        check(&[&deep], &deep, &[0], false);
    }
}
