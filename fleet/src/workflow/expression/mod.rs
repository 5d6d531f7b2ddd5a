//! Expressions: what stands between `${{` and `}}`, and in `when`.
//!
//! ```text
//! any        = all { "||" all }
//! all        = comparison { "&&" comparison }
//! comparison = negation [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) negation ]
//! negation   = "!" negation | primary
//! primary    = "(" any ")" | call | literal | path
//! call       = "contains(" any "," any ")" | "always()"
//! literal    = "null" | "true" | "false" | number as in JSON | "'" text with '' for ' "'"
//! path       = name { "." name | "[" place from 0 "]" | "[" text "]" }
//! ```
//!
//! Every expression has a value, whatever it meets:
//!
//! * What a path does not find is null.
//! * Null, `false`, 0 and the empty text are no; all else is yes. `a && b` is `a` where that is no, else `b`; `a || b` is `a` where
//!   that is yes, else `b`; so `path || 'default'` fills in what is missing.
//! * Values of two types are never equal; numbers are equal by what they amount to, lists and objects by what is in them.
//! * `<` and the like hold of two numbers, or of two texts by the order of their letters' codes, and of nothing else.
//! * `contains(a, b)`: text `b` is within text `a`, `b` is an item of list `a`, or a name of object `a`. `always()` is true: with it
//!   a step runs whatever became of its needs.

mod evaluate;
mod lexer;
mod parser;

use super::value::Value;

pub use self::evaluate::Scope;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression(Node);

/// A text that is no expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at letter {letter}: {message}")]
pub struct BadExpression {
    /// Where, from 1 on.
    pub letter: usize,
    /// What is wrong there.
    pub message: String,
}

/// A path, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// Its first byte in the text.
    pub at: usize,
    /// Its parts; the first is a name.
    pub parts: Vec<Part>,
}

/// A part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// By name.
    Name(String),
    /// By place in a list.
    Item(usize),
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Literal(Value),
    Path(Path),
    Not(Box<Node>),
    /// Two or more.
    All(Vec<Node>),
    /// Two or more.
    Any(Vec<Node>),
    Compare(Comparison, Box<[Node; 2]>),
    Contains(Box<[Node; 2]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl BadExpression {
    /// A complaint about what stands at this byte of a text.
    pub fn new(text: &str, at: usize, message: impl Into<String>) -> Self {
        Self { letter: text[..at].chars().count() + 1, message: message.into() }
    }
}

impl Expression {
    /// Reads all of a text.
    ///
    /// # Errors
    /// [`BadExpression`] with the letter.
    pub fn parse(text: &str) -> Result<Self, BadExpression> {
        parser::whole(text).map(Self)
    }

    /// Reads a text from its letter at byte `start` to the first `}}` that is in no literal, and tells the byte behind that.
    ///
    /// # Errors
    /// [`BadExpression`] with the letter, counted from the text's beginning.
    pub fn parse_to_braces(text: &str, start: usize) -> Result<(Self, usize), BadExpression> {
        parser::to_braces(text, start).map(|(node, end)| (Self(node), end))
    }

    /// Every path in it.
    pub fn paths(&self) -> Vec<&Path> {
        let mut paths = Vec::new();
        self.0.add_paths(&mut paths);
        paths
    }
}

impl Node {
    fn add_paths<'a>(&'a self, paths: &mut Vec<&'a Path>) {
        match self {
            Self::Literal(_) => (),
            Self::Path(path) => paths.push(path),
            Self::Not(node) => node.add_paths(paths),
            Self::All(nodes) | Self::Any(nodes) => nodes.iter().for_each(|node| node.add_paths(paths)),
            Self::Compare(_, nodes) | Self::Contains(nodes) => nodes.iter().for_each(|node| node.add_paths(paths)),
        }
    }
}

#[cfg(test)]
mod tests;
