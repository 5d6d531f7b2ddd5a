//! Calls of tools, put together from the pieces that OpenAI and those that follow it send.
//!
//! genai names a piece without an id `call_<index>`. Followers of the protocol differ: some repeat id and name with every
//! piece, some give every call the index 0, some give no id at all.

use std::collections::BTreeSet;

use serde_json::Value;

use super::failure::Failure;
use crate::limits::ANSWER_CALLS_MAX;
use crate::model::ToolCall;

/// Calls of which not all has come.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pieces: Vec<Pieces>,
}

#[derive(Debug)]
struct Pieces {
    id: String,
    name: String,
    arguments: String,
}

impl Calls {
    /// Takes a piece.
    ///
    /// # Errors
    /// It belongs to no call, or there are too many.
    pub(super) fn take(&mut self, id: &str, name: &str, arguments: &str) -> Result<(), Failure> {
        if let Some(at) = self.place(id, name) {
            self.pieces[at].arguments.push_str(arguments);
            return Ok(());
        }
        if name.is_empty() {
            return Err(Failure::malformed("a piece of a call that has not begun"));
        }
        if self.pieces.len() == ANSWER_CALLS_MAX {
            return Err(Failure::malformed("more calls of tools than an answer may have"));
        }
        let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
        self.pieces.push(Pieces { id, name, arguments });
        Ok(())
    }

    /// The call that a piece continues.
    fn place(&self, id: &str, name: &str) -> Option<usize> {
        let by_id = self.pieces.iter().rposition(|call| call.id == id);
        if name.is_empty() {
            let index = || id.strip_prefix("call_")?.parse().ok().filter(|index| *index < self.pieces.len());
            return by_id.or_else(index);
        }
        // One that is named again and whole already is another call.
        by_id.filter(|at| serde_json::from_str::<Value>(&self.pieces[*at].arguments).is_err())
    }

    /// All calls, now that nothing follows.
    pub(super) fn finish(self) -> Vec<ToolCall> {
        let call = |call: Pieces| (call.id, call.name, Value::String(call.arguments));
        finished(self.pieces.into_iter().map(call))
    }
}

/// Calls with ids that are there and differ, and arguments that are parsed where they can be.
pub(super) fn finished(calls: impl Iterator<Item = (String, String, Value)>) -> Vec<ToolCall> {
    let mut ids = BTreeSet::new();
    let mut finished = Vec::new();
    for (at, (mut id, name, arguments)) in calls.enumerate() {
        if id.is_empty() {
            id = format!("call_{at}");
        }
        while !ids.insert(id.clone()) {
            id = format!("{id}_{at}");
        }
        finished.push(ToolCall { id, name, arguments: parsed(arguments) });
    }
    finished
}

/// The arguments as JSON; nothing is an object without fields; what is no JSON stays text.
fn parsed(arguments: Value) -> Value {
    match arguments {
        Value::String(text) if text.trim().is_empty() => Value::Object(serde_json::Map::new()),
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        Value::Null => Value::Object(serde_json::Map::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pieces: &[(&str, &str, &str)], expected: &[(&str, &str, &str)]) {
        let mut calls = Calls::default();
        pieces.iter().for_each(|(id, name, arguments)| calls.take(id, name, arguments).unwrap());
        let calls = calls.finish();
        let shown: Vec<_> =
            calls.iter().map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.to_string())).collect();
        let expected: Vec<_> =
            expected.iter().map(|(id, name, arguments)| (*id, *name, (*arguments).to_owned())).collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn pieces_are_put_together_however_they_are_told_apart() {
        let whole = [("a", "sh", r#"{"x":1}"#), ("b", "ls", "{}")];
        // As OpenAI does.
        check(
            &[("a", "sh", ""), ("call_0", "", r#"{"x""#), ("b", "ls", ""), ("call_0", "", ":1}"), ("call_1", "", "{}")],
            &whole,
        );
        // Id and name with every piece.
        check(&[("a", "sh", r#"{"x""#), ("a", "sh", ":1}"), ("b", "ls", "{}")], &whole);
        // No ids at all.
        check(&[("call_0", "sh", r#"{"x""#), ("call_0", "", ":1}")], &[("call_0", "sh", r#"{"x":1}"#)]);
        // The same id for two whole calls.
        check(&[("a", "sh", "{}"), ("a", "ls", "{}")], &[("a", "sh", "{}"), ("a_1", "ls", "{}")]);
        check(&[("", "sh", "{}"), ("", "ls", "{}")], &[("call_0", "sh", "{}"), ("call_1", "ls", "{}")]);
    }

    #[test]
    fn arguments_that_are_no_json_stay_text() {
        check(&[("a", "sh", "ls -l")], &[("a", "sh", "\"ls -l\"")]);
        check(&[("a", "sh", "")], &[("a", "sh", "{}")]);
    }

    #[test]
    fn a_piece_of_no_call_and_a_call_too_many_are_refused() {
        let mut calls = Calls::default();
        assert!(calls.take("call_4000000000", "", "x").is_err());
        (0..ANSWER_CALLS_MAX).for_each(|at| calls.take(&format!("c{at}"), "sh", "{}").unwrap());
        assert!(calls.take("one more", "sh", "").is_err());
    }
}
