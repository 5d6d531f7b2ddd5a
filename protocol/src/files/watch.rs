//! What `GET /files/watch` tells, as server-sent events: `ready` once, then `change` and `overflow`. Ids count up from 1
//! within one watch. A watch that is opened anew with `Last-Event-ID` tells `overflow` right after `ready`: what
//! happened in between is known to nobody.

use serde::{Deserialize, Serialize};

use super::FilePath;

/// Event whose data is a [`WatchReady`]: what happens from now on is told.
pub const WATCH_READY: &str = "ready";
/// Event whose data is a [`FileChange`].
pub const WATCH_CHANGE: &str = "change";
/// Event without data (`{}`): changes were lost; look anew. The watch goes on, where not more directories are there than
/// it may watch.
pub const WATCH_OVERFLOW: &str = "overflow";

/// Data of `ready`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchReady {
    /// Directories that are watched.
    pub directories: u64,
}

/// Data of `change`. Paths are relative to what is watched; of itself, empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FileChange {
    /// It was made, or moved here from elsewhere.
    Created {
        /// Where.
        path: FilePath,
    },
    /// Its content was changed. A writer that goes on writing is told of many times.
    Modified {
        /// Where.
        path: FilePath,
    },
    /// One who wrote to it has closed it.
    Written {
        /// Where.
        path: FilePath,
    },
    /// Its permissions, owner or times were changed.
    Attributes {
        /// Where.
        path: FilePath,
    },
    /// It was removed, or moved elsewhere.
    Removed {
        /// Where.
        path: FilePath,
    },
    /// It was moved within what is watched.
    Moved {
        /// Its path before.
        from: FilePath,
        /// Its path now.
        to: FilePath,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_these_texts() {
        let moved = FileChange::Moved { from: "a".into(), to: FilePath(b"\xff".to_vec()) };
        let text = r#"{"kind":"moved","from":"a","to":{"base64":"/w=="}}"#;
        assert_eq!(serde_json::to_string(&moved).unwrap(), text);
        assert_eq!(serde_json::from_str::<FileChange>(text).unwrap(), moved);
        let created = serde_json::to_string(&FileChange::Created { path: "d/x".into() }).unwrap();
        assert_eq!(created, r#"{"kind":"created","path":"d/x"}"#);
    }
}
