//! What a terminal's viewers and a sidecar say to each other: `GET /pty`, `GET /pty/{id}`, `GET /ptys`,
//! `DELETE /pty/{id}`.
//!
//! Over the WebSocket binary messages are the terminal's bytes, in both directions; text messages are JSON: a
//! [`ViewerMessage`] one way, a [`ServerMessage`] the other. A terminal numbers the bytes that it shows from 0, and an
//! *offset* is such a number. The first message of a sidecar is always `hello`; the first byte that follows has its
//! `offset`, and what comes is contiguous but for what a `gap` announces.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use crate::fsp::Signal;

/// Path of a new terminal, and with `/{id}` behind it of an old one.
pub const ROUTE: &str = "/pty";
/// Path of the list.
pub const LIST_ROUTE: &str = "/ptys";
/// Columns of a terminal whose client names none.
pub const COLS_DEFAULT: u16 = 80;
/// Rows of a terminal whose client names none.
pub const ROWS_DEFAULT: u16 = 24;
/// `TERM` of a terminal whose client names none.
pub const TERM_DEFAULT: &str = "xterm-256color";

/// Query of `GET /pty`: a new terminal, whose first viewer, and writer, the client is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OpenQuery {
    /// Columns, 1 to [`PTY_COLS_MAX`](crate::limits::PTY_COLS_MAX).
    pub cols: u16,
    /// Rows, 1 to [`PTY_ROWS_MAX`](crate::limits::PTY_ROWS_MAX).
    pub rows: u16,
    /// Given to the shell instead of letting it ask for commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Working directory; the workspace where empty, relative paths start there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cwd: String,
    /// Added to the clean environment.
    #[serde(skip_serializing_if = "EnvText::is_empty")]
    pub env: EnvText,
    /// `TERM`: the terminal that the client is.
    pub term: String,
}

impl Default for OpenQuery {
    fn default() -> Self {
        Self {
            cols: COLS_DEFAULT,
            rows: ROWS_DEFAULT,
            command: None,
            cwd: String::new(),
            env: EnvText::default(),
            term: TERM_DEFAULT.to_owned(),
        }
    }
}

/// Environment variables as a query holds them: one JSON object as text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvText(pub BTreeMap<String, String>);

impl EnvText {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for EnvText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&serde_json::to_string(&self.0).map_err(S::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for EnvText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde_json::from_str(&String::deserialize(deserializer)?).map(Self).map_err(D::Error::custom)
    }
}

/// Query of `GET /pty/{id}`: one more viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AttachQuery {
    /// Offset from which the terminal's bytes are sent: one more than that of the last byte that the client has, or 0
    /// for all that is kept. Without it, only what is shown from now on. One that has not been reached is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Whether the client is to be the one who types.
    pub writer: WriterWish,
}

/// Whether a viewer is to be the terminal's writer: the one whose input, sizes and signals are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriterWish {
    /// Where there is no writer.
    #[default]
    Free,
    /// In any case; who was it is told.
    Take,
    /// No.
    No,
}

/// What a viewer says besides bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ViewerMessage {
    /// The terminal is to have this size. Writer only.
    Resize {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
    /// Send this to the process group in the foreground. Writer only.
    Signal {
        /// Which.
        signal: Signal,
    },
    /// Make me the writer.
    TakeWriter,
    /// I am done with all bytes before this offset. From a viewer's first `ack` on it is sent no more than
    /// [`PTY_WINDOW_BYTES`](crate::limits::PTY_WINDOW_BYTES) beyond its last one.
    Ack {
        /// One more than that of the last byte that the viewer is done with.
        offset: u64,
    },
}

/// What a sidecar says besides bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ServerMessage {
    /// You view this terminal.
    Hello {
        /// Its id, for other viewers and for coming back.
        id: String,
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
        /// Of the next byte.
        offset: u64,
        /// Whether you are the writer.
        writer: bool,
    },
    /// The terminal has this size now.
    Resized {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
    /// You have become the writer, or are it no more.
    Writer {
        /// Whether you are the writer.
        yours: bool,
    },
    /// Something that you sent had no effect. Told once for all that was sent until you are told.
    Refused {
        /// Why.
        code: ViewerRefusal,
    },
    /// The bytes of these offsets are not kept any more: you were too slow, or come back too late.
    Gap {
        /// The first that is missing.
        from: u64,
        /// The first that is not.
        to: u64,
    },
    /// The terminal has ended; nothing but the WebSocket's end follows.
    Exit {
        /// The shell's exit code, where it ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// The signal that ended the shell, as a number: the kernel has more than have names here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
}

/// Why something that a viewer sent had no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViewerRefusal {
    /// It is not the writer.
    NotWriter,
    /// No message of its kind.
    BadMessage,
    /// No size that a terminal can have, or no offset that it was sent.
    OutOfBounds,
}

/// Why a sidecar ends a viewer's WebSocket.
pub mod close {
    /// The terminal has ended by itself; an `exit` has said how.
    pub const ENDED: u16 = 1000;
    /// The sidecar ends.
    pub const GOING_AWAY: u16 = 1001;
    /// A message is longer than [`PTY_INPUT_BYTES_MAX`](crate::limits::PTY_INPUT_BYTES_MAX).
    pub const TOO_LONG: u16 = 1009;
    /// The terminal was deleted.
    pub const DELETED: u16 = 4000;
    /// Nothing was heard, also no answer to a ping.
    pub const SILENT: u16 = 4001;
}

/// Answer to `GET /ptys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtyList {
    /// The oldest first.
    pub ptys: Vec<PtyBody>,
}

/// A terminal in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtyBody {
    /// Its id.
    pub id: String,
    /// What it was opened with; nothing for a shell that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
    /// Of the first byte that is kept.
    pub kept_from: u64,
    /// Of the next byte.
    pub offset: u64,
    /// How many view it.
    pub viewers: usize,
    /// Whether one of them is the writer.
    pub writer: bool,
    /// How it ended; nothing while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<PtyEnd>,
}

/// How a terminal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PtyEnd {
    /// Why.
    pub cause: PtyCause,
    /// The shell's exit code, where it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended the shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// Why a terminal ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PtyCause {
    /// Its shell did.
    Exited,
    /// It was deleted.
    Deleted,
    /// Nobody viewed it for [`PTY_KEEP_S`](crate::limits::PTY_KEEP_S).
    Abandoned,
    /// The sidecar ends.
    Stopped,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_str, json, to_value};

    use super::*;

    #[test]
    fn what_viewers_say_is_written_so() {
        for (text, message) in [
            (r#"{"type":"resize","cols":100,"rows":40}"#, ViewerMessage::Resize { cols: 100, rows: 40 }),
            (r#"{"type":"signal","signal":"INT"}"#, ViewerMessage::Signal { signal: Signal::Int }),
            (r#"{"type":"take_writer"}"#, ViewerMessage::TakeWriter),
            (r#"{"type":"ack","offset":4096}"#, ViewerMessage::Ack { offset: 4096 }),
        ] {
            assert_eq!(from_str::<ViewerMessage>(text).unwrap(), message);
        }
        for text in ["", "[]", r#"{"type":"resize","cols":-1,"rows":1}"#, r#"{"type":"ack","offset":1,"more":2}"#] {
            from_str::<ViewerMessage>(text).unwrap_err();
        }
    }

    #[test]
    fn what_a_sidecar_says_is_written_so() {
        let hello = ServerMessage::Hello { id: "p".to_owned(), cols: 80, rows: 24, offset: 7, writer: true };
        let written = json!({"type": "hello", "id": "p", "cols": 80, "rows": 24, "offset": 7, "writer": true});
        assert_eq!(to_value(hello).unwrap(), written);
        let exit = ServerMessage::Exit { exit_code: None, signal: Some(9) };
        assert_eq!(to_value(exit).unwrap(), json!({"type": "exit", "signal": 9}));
        let refused = ServerMessage::Refused { code: ViewerRefusal::NotWriter };
        assert_eq!(to_value(refused).unwrap(), json!({"type": "refused", "code": "not_writer"}));
    }

    #[test]
    fn an_environment_is_one_text_of_a_query() {
        let env = EnvText(BTreeMap::from([("A".to_owned(), "b c".to_owned())]));
        let query = OpenQuery { env, ..OpenQuery::default() };
        assert_eq!(to_value(&query).unwrap()["env"], json!(r#"{"A":"b c"}"#));
        assert_eq!(serde_json::from_value::<OpenQuery>(to_value(&query).unwrap()).unwrap(), query);
    }
}
