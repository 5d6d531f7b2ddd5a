//! What an expression comes to. Always something: there are no errors here.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::Number;

use super::{Comparison, Expression, Node, Part};
use crate::workflow::value::Value;

/// Who knows what paths stand for.
pub trait Scope {
    /// The value at this path; null where there is none.
    fn value(&self, path: &[Part]) -> Cow<'_, Value>;
}

impl Expression {
    /// Its value.
    pub fn value<'a>(&'a self, scope: &'a dyn Scope) -> Cow<'a, Value> {
        self.0.value(scope)
    }

    /// Whether it holds.
    pub fn holds(&self, scope: &dyn Scope) -> bool {
        self.value(scope).is_true()
    }
}

impl Node {
    fn value<'a>(&'a self, scope: &'a dyn Scope) -> Cow<'a, Value> {
        match self {
            Self::Literal(value) => Cow::Borrowed(value),
            Self::Path(path) => scope.value(&path.parts),
            Self::Not(node) => told(!node.value(scope).is_true()),
            Self::All(nodes) => decided(nodes, scope, false),
            Self::Any(nodes) => decided(nodes, scope, true),
            Self::Compare(comparison, nodes) => {
                let [left, right] = nodes.as_ref();
                told(comparison.holds(&left.value(scope), &right.value(scope)))
            }
            Self::Contains(nodes) => {
                let [within, one] = nodes.as_ref();
                told(contains(&within.value(scope), &one.value(scope)))
            }
        }
    }
}

fn told<'a>(value: bool) -> Cow<'a, Value> {
    Cow::Owned(Value::Bool(value))
}

/// The first value that is yes, or no, as asked; else the last.
fn decided<'a>(nodes: &'a [Node], scope: &'a dyn Scope, by: bool) -> Cow<'a, Value> {
    let mut last = Cow::Owned(Value::Null);
    for node in nodes {
        last = node.value(scope);
        if last.is_true() == by {
            break;
        }
    }
    last
}

impl Comparison {
    fn holds(self, left: &Value, right: &Value) -> bool {
        let order = || order(left, right);
        match self {
            Self::Equal => equal(left, right),
            Self::Unequal => !equal(left, right),
            Self::Less => order().is_some_and(Ordering::is_lt),
            Self::LessOrEqual => order().is_some_and(Ordering::is_le),
            Self::Greater => order().is_some_and(Ordering::is_gt),
            Self::GreaterOrEqual => order().is_some_and(Ordering::is_ge),
        }
    }
}

fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Number(left), Value::Number(right)) => amounts(left, right).is_some_and(Ordering::is_eq),
        (Value::Text(left), Value::Text(right)) => left == right,
        (Value::List(left), Value::List(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            let same = |((left_name, left), (right_name, right))| left_name == right_name && equal(left, right);
            left.len() == right.len() && left.iter().zip(right).all(same)
        }
        (
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Object(_),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Object(_),
        ) => false,
    }
}

/// How two values are ordered, where they are.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => amounts(left, right),
        (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
        (
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Object(_),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Object(_),
        ) => None,
    }
}

fn amounts(left: &Number, right: &Number) -> Option<Ordering> {
    match (whole(left), whole(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        (Some(_) | None, Some(_) | None) => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn whole(number: &Number) -> Option<i128> {
    number.as_u64().map(i128::from).or_else(|| number.as_i64().map(i128::from))
}

fn contains(within: &Value, one: &Value) -> bool {
    match (within, one) {
        (Value::Text(text), Value::Text(part)) => text.contains(part.as_str()),
        (Value::List(items), one) => items.iter().any(|item| equal(item, one)),
        (Value::Object(values), Value::Text(name)) => values.contains_key(name),
        (
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::Object(_),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) | Value::Object(_),
        ) => false,
    }
}
