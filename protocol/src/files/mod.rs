//! What is said about files of a sandbox: `/files`.
//!
//! A path is relative to the workspace, or absolute and within the workspace or the agent's home. It is resolved by the
//! sandbox's kernel beneath one of the two: links are followed as long as they stay within, absolute links never. All
//! that is done is done as the agent.

mod path;
mod query;
mod refusal;
mod watch;

use serde::{Deserialize, Serialize};

use crate::snapshot::Sha256;

pub use self::path::{FileMode, FilePath, NotAMode};
pub use self::query::{BadQuery, FilesQuery, ListQuery, ReadQuery, RemoveQuery, StatQuery, WatchQuery, WriteQuery};
pub use self::refusal::FilesRefusal;
pub use self::watch::{FileChange, WATCH_CHANGE, WATCH_OVERFLOW, WATCH_READY, WatchReady};

/// `DELETE` removes what the query names; all other routes begin with it.
pub const FILES: &str = "/files";
/// `GET` answers with the content of a file, or one range of it; `PUT` writes.
pub const CONTENT: &str = "/files/content";
/// `GET` answers with a page of a directory: [`ListReply`].
pub const LIST: &str = "/files/list";
/// `GET` answers with what is known of a file: [`FileEntry`].
pub const STAT: &str = "/files/stat";
/// `POST` of a [`MoveBody`]; 204.
pub const MOVE: &str = "/files/move";
/// `POST` of a [`MkdirBody`]; 204.
pub const MKDIR: &str = "/files/mkdir";
/// `GET` answers with server-sent events: what changes in a directory or a file.
pub const WATCH: &str = "/files/watch";

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A file with content.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, which is not followed here.
    Symlink,
    /// A fifo, a socket or a device.
    Other,
}

/// What is known of a file. Of a link it is the link's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name in its directory; of a root, the root's path.
    pub name: FilePath,
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes.
    pub bytes: u64,
    /// Its permissions.
    pub mode: FileMode,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Names that it has.
    pub links: u64,
    /// When its content was changed last, in milliseconds since 1970.
    pub modified_ms: i64,
    /// What `ETag` of its content is, for a file: another one after every change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Where a link leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<FilePath>,
}

/// Answer to `GET /files/list`. Names are in the order of their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListReply {
    /// This page.
    pub entries: Vec<FileEntry>,
    /// `cursor` of the next page, where there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<FilePath>,
}

/// Answer to `PUT /files/content`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteReply {
    /// Size of the file afterwards, in bytes.
    pub bytes: u64,
    /// Bytes that the request wrote.
    pub written: u64,
    /// SHA-256 of the bytes that the request wrote.
    pub sha256: Sha256,
    /// `ETag` of the file afterwards.
    pub etag: String,
    /// There was no such file before.
    pub created: bool,
}

/// Answer to `DELETE /files`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveReply {
    /// Files, links and directories that were removed.
    pub removed: u64,
}

/// Body of `POST /files/move`. Links at the end of either path are moved or replaced, not followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveBody {
    /// What is moved.
    pub from: FilePath,
    /// Its path afterwards.
    pub to: FilePath,
    /// Whether a file, or an empty directory, of that path may be replaced.
    #[serde(default)]
    pub overwrite: bool,
}

/// Body of `POST /files/mkdir`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MkdirBody {
    /// The directory.
    pub path: FilePath,
    /// Makes those that are missing on the way, and is content with one that is there.
    #[serde(default)]
    pub parents: bool,
    /// Its permissions; 0755 without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
}
