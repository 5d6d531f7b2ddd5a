//! Why something is not done with a file.

use std::fmt;

use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};

/// Why a request is refused, beside [`SidecarRefusal`](crate::exec::SidecarRefusal): the `code` of an
/// [`ErrorBody`](crate::http::ErrorBody).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilesRefusal {
    /// The path is empty where a name is needed, holds a NUL, or ends in `.` or `..` where a name is needed. 400
    BadPath,
    /// The path, or a name in it, is longer than a file system takes. 400
    NameTooLong,
    /// The path leads out of workspace and home, through `..`, a link, or because it begins elsewhere. 403
    Outside,
    /// The agent may not. 403
    Denied,
    /// There is no such file or directory. 404
    NoSuchFile,
    /// There is something of that name already. 409
    Exists,
    /// A directory, where something else is needed. 409
    IsDirectory,
    /// Something other than a directory, where one is needed. 409
    NotDirectory,
    /// A fifo, socket or device: it has no content to read or write. 409
    NotRegular,
    /// The directory is not empty. 409
    NotEmpty,
    /// More links than are followed, on the way. 409
    TooManyLinks,
    /// The workspace or the home itself, which stay. 409
    IsRoot,
    /// A directory cannot be moved into itself, nor anything between workspace and home where they are two disks. 409
    CannotMove,
    /// The offset lies beyond the file's end. 409
    BeyondEnd,
    /// More directories than one watch sees into. 409
    TooManyDirectories,
    /// `If-Match` or `If-None-Match` do not hold. 412
    Changed,
    /// The range lies beyond the file's end. 416
    NoSuchRange,
    /// As much was done as one request does; the same request goes on. 503
    Unfinished,
    /// The worker that had the request in hand was ended, by the sandbox's own processes or for want of memory. What was
    /// asked for may have been done. 503
    WorkerLost,
    /// The disk, or the agent's part of it, is full. 507
    DiskFull,
}

impl FilesRefusal {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::BadPath,
        Self::NameTooLong,
        Self::Outside,
        Self::Denied,
        Self::NoSuchFile,
        Self::Exists,
        Self::IsDirectory,
        Self::NotDirectory,
        Self::NotRegular,
        Self::NotEmpty,
        Self::TooManyLinks,
        Self::IsRoot,
        Self::CannotMove,
        Self::BeyondEnd,
        Self::TooManyDirectories,
        Self::Changed,
        Self::NoSuchRange,
        Self::Unfinished,
        Self::WorkerLost,
        Self::DiskFull,
    ];

    /// The refusal of a code; `None` for one of another version, or of [`SidecarRefusal`](crate::exec::SidecarRefusal).
    pub fn from_code(code: &str) -> Option<Self> {
        Self::deserialize(code.into_deserializer()).map_err(drop::<serde::de::value::Error>).ok()
    }

    /// Status code of the answer.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadPath | Self::NameTooLong => 400,
            Self::Outside | Self::Denied => 403,
            Self::NoSuchFile => 404,
            Self::Exists
            | Self::IsDirectory
            | Self::NotDirectory
            | Self::NotRegular
            | Self::NotEmpty
            | Self::TooManyLinks
            | Self::IsRoot
            | Self::CannotMove
            | Self::BeyondEnd
            | Self::TooManyDirectories => 409,
            Self::Changed => 412,
            Self::NoSuchRange => 416,
            Self::Unfinished | Self::WorkerLost => 503,
            Self::DiskFull => 507,
        }
    }

    /// Whether the same request may succeed later.
    pub const fn retryable(self) -> bool {
        matches!(self, Self::Unfinished | Self::WorkerLost | Self::DiskFull)
    }
}

impl fmt::Display for FilesRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Serialize::serialize(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_known_by_its_code_and_the_retryable_ones_are_server_errors() {
        for refusal in FilesRefusal::ALL {
            assert_eq!(FilesRefusal::from_code(&refusal.to_string()), Some(refusal));
            assert_eq!(refusal.retryable(), refusal.status() >= 500, "{refusal}");
        }
        assert_eq!(FilesRefusal::from_code("busy"), None);
    }
}
