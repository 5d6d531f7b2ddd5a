//! What operator and sidecar say to each other about snapshots: `GET /snapshot`, `PUT /snapshot`.
//!
//! A snapshot is a tar archive in one zstd stream. Its first folders are [`WORKSPACE`] and [`STATE`]; it may lack
//! either.

use std::fmt;
use std::str::FromStr;

use alloy_primitives::hex;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::http::ErrorBody;

/// Path of both routes.
pub const ROUTE: &str = "/snapshot";
/// Media type of a snapshot.
pub const MEDIA_TYPE: &str = "application/zstd";
/// Folder of the archive that holds the workspace.
pub const WORKSPACE: &str = "workspace";
/// Folder of the archive that holds the agent's home.
pub const STATE: &str = "state";
/// Trailer that ends a complete export: an [`ExportReport`] as JSON. It is sent to those who ask by `TE: trailers`.
pub const REPORT_TRAILER: &str = "sandbox-snapshot-report";

/// Query of `GET /snapshot`; at least one of the two must be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportQuery {
    /// The workspace.
    #[serde(default)]
    pub workspace: bool,
    /// The agent's home.
    #[serde(default)]
    pub state: bool,
}

/// Query of `PUT /snapshot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreQuery {
    /// SHA-256 of the whole body.
    pub sha256: Sha256,
}

/// What an export holds, and what it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExportReport {
    /// Files, directories and links in the archive.
    pub entries: u64,
    /// Bytes of file content in the archive, before compression; holes of sparse files count nothing.
    pub bytes: u64,
    /// Sockets, devices, fifos, and what is nested or named longer than a restore takes: left out.
    pub skipped: u64,
    /// What the agent may not read: left out, or filled with zeros from where reading failed.
    pub unreadable: u64,
    /// Files that changed or vanished while they were read: in the archive at the size that they had at first.
    pub changed: u64,
}

/// Answer to `PUT /snapshot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RestoreReply {
    /// Files, directories and links that were made.
    pub entries: u64,
    /// Bytes of file content that were written; holes of sparse files count nothing.
    pub bytes: u64,
    /// Records of the archive that stand for nothing on disk: volume labels and global headers.
    pub skipped: u64,
}

/// Why no snapshot is made or taken, beside [`SidecarRefusal`](crate::exec::SidecarRefusal): the `code` of a
/// [`SnapshotErrorBody`]. Nothing on disk has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotRefusal {
    /// The archive is not one that is taken; an [`ArchiveFault`] says why.
    ArchiveRefused,
    /// The body does not have the hash that the query names.
    HashMismatch,
    /// The sandbox's disk does not hold the archive's content beside the present one.
    DiskFull,
    /// The body broke off before its end.
    CutOff,
    /// It took longer than [`SNAPSHOT_S_MAX`](crate::limits::SNAPSHOT_S_MAX).
    TooSlow,
    /// The workspace or the home is not there, lies within the other, or is closed to the agent.
    Unavailable,
}

/// Why an archive is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArchiveFault {
    /// No zstd stream, or one that needs more memory than there is for it.
    Compression,
    /// It ends before its end.
    Truncated,
    /// No tar archive: a header does not add up.
    Malformed,
    /// An extended header is longer than any that is needed.
    HeaderTooLong,
    /// Something other than zeros follows the archive's end.
    TrailingData,
    /// A path begins at the root of the file system.
    AbsolutePath,
    /// A path climbs with `..`.
    ParentPath,
    /// A path is in none of the folders that an archive has.
    OutsideRoots,
    /// A path has the name under which archives are unpacked.
    ReservedName,
    /// A path, or a part of it, is longer than a file system takes, or too deep.
    NameTooLong,
    /// A path or a link's target holds a NUL, or is empty.
    BadName,
    /// A path leads through something that is no directory.
    ThroughLink,
    /// A hard link leads out of its folder.
    LinkOutside,
    /// A hard link leads to no file of the archive.
    LinkMissing,
    /// A device.
    Device,
    /// A fifo.
    Fifo,
    /// An entry of a type that is not known.
    UnknownType,
    /// A second entry of the same path.
    Duplicate,
    /// More entries than may be.
    TooManyEntries,
    /// More bytes than may be.
    TooManyBytes,
    /// The map of a sparse file does not add up, or is too large.
    SparseMap,
}

/// Every error of the two routes: an [`ErrorBody`] with the fault of a refused archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotErrorBody {
    /// Code, message, and whether the same request may succeed later.
    #[serde(flatten)]
    pub error: ErrorBody,
    /// Why the archive is refused, for [`SnapshotRefusal::ArchiveRefused`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<ArchiveFault>,
}

impl SnapshotRefusal {
    /// The refusal of a code; `None` for one of another version, or of [`SidecarRefusal`](crate::exec::SidecarRefusal).
    pub fn from_code(code: &str) -> Option<Self> {
        Self::deserialize(code.into_deserializer()).map_err(drop::<serde::de::value::Error>).ok()
    }

    /// Whether the same request may succeed later.
    pub const fn retryable(self) -> bool {
        match self {
            Self::DiskFull | Self::CutOff | Self::TooSlow => true,
            Self::ArchiveRefused | Self::HashMismatch | Self::Unavailable => false,
        }
    }
}

impl fmt::Display for SnapshotRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Serialize::serialize(self, f)
    }
}

impl fmt::Display for ArchiveFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Serialize::serialize(self, f)
    }
}

/// A SHA-256 sum; its text is 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sha256(pub [u8; 32]);

/// A text that is no [`Sha256`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected: 64 hexadecimal digits")]
pub struct NotASha256;

impl FromStr for Sha256 {
    type Err = NotASha256;

    fn from_str(text: &str) -> Result<Self, NotASha256> {
        if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotASha256);
        }
        hex::decode_to_array(text).map(Self).map_err(|_| NotASha256)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl Serialize for Sha256 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_64_digits_of_either_case_and_nothing_else() {
        let text = "00ff".repeat(16);
        let sum: Sha256 = text.parse().unwrap();
        assert_eq!(sum.to_string(), text);
        assert_eq!(text.to_uppercase().parse(), Ok(sum));
        for wrong in ["", "00", &format!("0x{text}"), &"0".repeat(63), &"0".repeat(65), &"g".repeat(64)] {
            assert_eq!(wrong.parse::<Sha256>(), Err(NotASha256), "{wrong:?}");
        }
    }

    #[test]
    fn an_error_of_a_snapshot_is_an_error_like_all_others() {
        let error = ErrorBody { code: "archive_refused".into(), message: "m".into(), retryable: false };
        let body = SnapshotErrorBody { error: error.clone(), fault: Some(ArchiveFault::LinkOutside) };
        let text = serde_json::to_string(&body).unwrap();
        assert_eq!(text, r#"{"code":"archive_refused","message":"m","retryable":false,"fault":"link_outside"}"#);
        assert_eq!(serde_json::from_str::<ErrorBody>(&text).unwrap(), error);
        assert_eq!(SnapshotRefusal::from_code(&error.code), Some(SnapshotRefusal::ArchiveRefused));
        assert_eq!(SnapshotRefusal::from_code("busy"), None);
    }
}
