//! What is answered to a call.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::limits::PIECES_MAX;

/// A reply; without anything said of it, an empty text that comes at once.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// The words.
    pub text: String,
    /// How the words are streamed; at their spaces if empty.
    pub pieces: Vec<String>,
    /// Thoughts, told before the words.
    pub reasoning: String,
    /// Calls of tools, told after the words.
    pub tool_calls: Vec<Call>,
    /// What is counted; the lengths of what was said divided by four if `None`.
    pub usage: Option<Tokens>,
    /// Whether nothing is said of what was counted.
    pub without_usage: bool,
    /// Time before the first byte, in milliseconds.
    pub delay_ms: u64,
    /// Time before each further piece, in milliseconds.
    pub piece_delay_ms: u64,
    /// How it ends.
    pub ending: Ending,
    /// Why there is no answer at all.
    pub failure: Option<Failure>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Its id; left out on the wire if `None`, where the protocol lets it.
    #[serde(default)]
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// Its arguments, as text: JSON, or what a confused model writes instead.
    pub arguments: String,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Tokens of the request.
    pub input: u64,
    /// Tokens of the reply.
    pub output: u64,
}

/// How a reply ends. `after` counts the frames on the wire that come before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// As it should.
    #[default]
    Whole,
    /// A frame is no JSON.
    Malformed {
        /// Frames before it.
        after: usize,
    },
    /// The connection breaks.
    Broken {
        /// Frames before that.
        after: usize,
    },
    /// The body ends properly, but too early.
    Early {
        /// Frames before that.
        after: usize,
    },
    /// An error is told in the middle of the stream.
    Error {
        /// Frames before it.
        after: usize,
    },
    /// Nothing more comes, for ever.
    Hangs {
        /// Frames before that.
        after: usize,
    },
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// 429.
    RateLimited {
        /// When to come back, in milliseconds: `Retry-After` in seconds, and `retry-after-ms` where that is not exact.
        #[serde(default)]
        retry_after_ms: Option<u64>,
    },
    /// 401; the words hold the key, as some providers' do.
    Unauthorized,
    /// 400, since the conversation is too long.
    ContextOverflow,
    /// Any other status, in the protocol's words.
    Status {
        /// The status.
        status: u16,
        /// The words.
        message: String,
    },
    /// Anything at all.
    Raw {
        /// The status.
        status: u16,
        /// `Content-Type`.
        content_type: String,
        /// The body.
        body: String,
    },
    /// Not even a status comes.
    Silence,
}

impl Reply {
    /// These words.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Words in these pieces.
    pub fn pieces<const N: usize>(pieces: [&str; N]) -> Self {
        Self { text: pieces.concat(), pieces: pieces.map(str::to_owned).to_vec(), ..Self::default() }
    }

    /// One call of a tool, its arguments as text.
    pub fn call(id: &str, name: &str, arguments: impl Into<String>) -> Self {
        Self::default().and_call(id, name, arguments)
    }

    /// No answer.
    pub fn failure(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::default() }
    }

    /// A status other than 200, in the protocol's words.
    pub fn status(status: u16, message: impl Into<String>) -> Self {
        Self::failure(Failure::Status { status, message: message.into() })
    }

    /// 429.
    pub fn rate_limited(retry_after: Option<Duration>) -> Self {
        Self::failure(Failure::RateLimited { retry_after_ms: retry_after.map(milliseconds) })
    }

    /// The same, with one call more; an empty id is left out.
    #[must_use]
    pub fn and_call(mut self, id: &str, name: &str, arguments: impl Into<String>) -> Self {
        let id = (!id.is_empty()).then(|| id.to_owned());
        self.tool_calls.push(Call { id, name: name.to_owned(), arguments: arguments.into() });
        self
    }

    /// The same after these thoughts.
    #[must_use]
    pub fn reasoning(mut self, reasoning: &str) -> Self {
        reasoning.clone_into(&mut self.reasoning);
        self
    }

    /// The same with these counts.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64) -> Self {
        self.usage = Some(Tokens { input, output });
        self
    }

    /// The same, later.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay_ms = milliseconds(delay);
        self
    }

    /// The same, with this long between pieces.
    #[must_use]
    pub fn piece_delay(mut self, delay: Duration) -> Self {
        self.piece_delay_ms = milliseconds(delay);
        self
    }

    /// The same, ended so.
    #[must_use]
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// The words as they are streamed.
    pub(crate) fn text_pieces(&self) -> Vec<&str> {
        if !self.pieces.is_empty() {
            return self.pieces.iter().map(String::as_str).collect();
        }
        let mut pieces = Vec::new();
        let (piece_bytes, mut rest) = (self.text.len().div_ceil(PIECES_MAX), self.text.as_str());
        while !rest.is_empty() {
            let from = rest.ceil_char_boundary(piece_bytes);
            let cut = rest[from..].find(' ').map_or(rest.len(), |at| from + at + 1);
            let (piece, behind) = rest.split_at(cut);
            pieces.push(piece);
            rest = behind;
        }
        pieces
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_its_spaces_and_nothing_is_lost() {
        assert_eq!(Reply::text("a bc d").text_pieces(), ["a ", "bc ", "d"]);
        assert_eq!(Reply::text("").text_pieces(), Vec::<&str>::new());
        let long = "wörd ".repeat(1_000);
        let pieces = Reply::text(long.clone());
        let pieces = pieces.text_pieces();
        assert!(pieces.len() <= PIECES_MAX && pieces.len() > 1);
        assert_eq!(pieces.concat(), long);
    }
}
