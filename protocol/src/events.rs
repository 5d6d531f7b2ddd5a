//! What happens inside a sandbox: `GET /events` of a sidecar, as server-sent events.
//!
//! The stream's event names are [`Happening::name`], `gap` and `dropped`; an event's data is an [`Event`], a [`Gap`] or a
//! [`Dropped`]. The operator's own events, of sandboxes as a whole, are in [`crate::holdings`].

use serde::{Deserialize, Serialize};

use crate::pty::PtyEnd;

/// Path of the stream.
pub const ROUTE: &str = "/events";
/// Name of the event whose data is a [`Gap`].
pub const GAP: &str = "gap";
/// Name of the event whose data is a [`Dropped`].
pub const DROPPED: &str = "dropped";

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Also the stream's event id. Each is one more than that before; a sidecar that is started again begins with one
    /// larger than all it had, so a reader that comes back is told of a [`Gap`].
    pub seq: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// What.
    #[serde(flatten)]
    pub happening: Happening,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind")]
pub enum Happening {
    /// The sidecar started: whatever ran before it is gone.
    #[serde(rename = "sidecar.started")]
    SidecarStarted {
        /// Its version.
        version: String,
    },
    /// An execution started.
    #[serde(rename = "exec.started")]
    ExecStarted {
        /// Of the execution.
        id: String,
    },
    /// An execution ended.
    #[serde(rename = "exec.ended")]
    ExecEnded {
        /// Of the execution.
        id: String,
        /// The word of its ending, as in its result.
        ended: String,
        /// Its exit code, where it ended by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_code: Option<i32>,
        /// Wall-clock time in milliseconds.
        duration_ms: u64,
    },
    /// A terminal was opened.
    #[serde(rename = "pty.opened")]
    PtyOpened {
        /// Of the terminal.
        id: String,
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
    },
    /// A terminal ended.
    #[serde(rename = "pty.closed")]
    PtyClosed {
        /// Of the terminal.
        id: String,
        /// How.
        #[serde(flatten)]
        end: PtyEnd,
    },
}

impl Happening {
    /// The event's name in the stream, and `kind` in its data.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SidecarStarted { .. } => "sidecar.started",
            Self::ExecStarted { .. } => "exec.started",
            Self::ExecEnded { .. } => "exec.ended",
            Self::PtyOpened { .. } => "pty.opened",
            Self::PtyClosed { .. } => "pty.closed",
        }
    }
}

/// What happened between these two ids is not known any more; look at what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last id that the reader has.
    pub after: u64,
    /// The last id that is missing. Less than `after` where the reader names an id that was never given.
    pub until: u64,
}

/// The stream ends, and why. Who comes back with the last id loses nothing that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Why.
    pub reason: DropReason,
}

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropReason {
    /// The reader was so slow that events it had not read are not kept any more.
    TooSlow,
    /// The sidecar ends.
    Stopping,
}

/// Query of `GET /events`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsQuery {
    /// The last id that the reader has; 0 for everything that is kept. Without it, and without a `Last-Event-ID`, only what
    /// happens from now on. The header wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;
    use crate::pty::PtyCause;

    #[test]
    fn an_event_is_one_flat_object_and_its_kind_is_its_name() {
        let end = PtyEnd { cause: PtyCause::Exited, exit_code: Some(0), signal: None };
        let all = [
            (Happening::SidecarStarted { version: "1".to_owned() }, json!({"version": "1"})),
            (Happening::ExecStarted { id: "a".to_owned() }, json!({"id": "a"})),
            (
                Happening::ExecEnded {
                    id: "a".to_owned(),
                    ended: "exited".to_owned(),
                    exit_code: Some(0),
                    duration_ms: 5,
                },
                json!({"id": "a", "ended": "exited", "exit_code": 0, "duration_ms": 5}),
            ),
            (
                Happening::PtyOpened { id: "p".to_owned(), cols: 80, rows: 24 },
                json!({"id": "p", "cols": 80, "rows": 24}),
            ),
            (Happening::PtyClosed { id: "p".to_owned(), end }, json!({"id": "p", "cause": "exited", "exit_code": 0})),
        ];
        for (happening, mut expected) in all {
            expected["kind"] = json!(happening.name());
            expected["seq"] = json!(3);
            expected["time_ms"] = json!(9);
            let event = Event { seq: 3, time_ms: 9, happening };
            assert_eq!(to_value(&event).unwrap(), expected);
            assert_eq!(from_value::<Event>(expected).unwrap(), event);
        }
    }
}
