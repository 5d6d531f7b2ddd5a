//! The few words beside a snapshot that say what it must be.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::error::BlobError;
use super::intake::Flowed;

/// The end of a manifest's name, after the whole name of what it is about.
pub(super) const SUFFIX: &str = ".manifest.json";

const VERSION: u32 = 1;

/// What a reader is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Over all bytes.
    pub sha256: [u8; 32],
    /// All bytes, where a manifest told them.
    pub size_bytes: Option<u64>,
}

/// In the order in which it is written.
#[derive(Serialize, Deserialize)]
struct Manifest {
    created_at: String,
    sha256: String,
    size_bytes: u64,
    version: u32,
}

/// The manifest of what has flowed, written down `now`.
pub(super) fn write(flowed: &Flowed, now: SystemTime) -> Vec<u8> {
    let manifest = Manifest {
        created_at: humantime::format_rfc3339_seconds(now).to_string(),
        sha256: hex::encode(flowed.sha256),
        size_bytes: flowed.size_bytes,
        version: VERSION,
    };
    // Texts and numbers always have a form in JSON.
    serde_json::to_vec(&manifest).unwrap_or_default()
}

/// What a manifest demands.
pub(super) fn read(text: &[u8]) -> Result<Expected, BlobError> {
    let manifest: Manifest = serde_json::from_slice(text).map_err(|_| BlobError::Manifest)?;
    let mut sha256 = [0; 32];
    let readable = manifest.version == VERSION && hex::decode_to_slice(&manifest.sha256, &mut sha256).is_ok();
    let expected = Expected { sha256, size_bytes: Some(manifest.size_bytes) };
    readable.then_some(expected).ok_or(BlobError::Manifest)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let flowed = Flowed { sha256: [0xab; 32], size_bytes: 7 };
        let text = write(&flowed, UNIX_EPOCH + Duration::from_secs(1_800_000_000));
        let sha256 = "ab".repeat(32);
        assert_eq!(
            String::from_utf8_lossy(&text),
            format!(r#"{{"created_at":"2027-01-15T08:00:00Z","sha256":"{sha256}","size_bytes":7,"version":1}}"#)
        );
        assert_eq!(read(&text).unwrap(), Expected { sha256: [0xab; 32], size_bytes: Some(7) });
    }

    #[test]
    fn another_version_or_hash_is_not_read() {
        let text = write(&Flowed { sha256: [0xab; 32], size_bytes: 7 }, UNIX_EPOCH);
        let text = String::from_utf8(text).unwrap();
        for spoilt in [text.replace(":1}", ":2}"), text.replace("abab", "ab"), text.replace("abab", "xyxy")] {
            assert!(matches!(read(spoilt.as_bytes()), Err(BlobError::Manifest)), "{spoilt}");
        }
    }
}
