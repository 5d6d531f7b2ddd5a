//! The envelope as bytes: taken apart and put together, nothing opened.

use super::key::{CONTENT_KEY_BYTES, ContentKey, Enclosed, SealKey};
use super::{BOUND_BYTES, OpenError};
use crate::limits::SEALED_RECIPIENTS_MAX;

/// First bytes of a recipient's key, by which it finds its entry.
pub(super) const KEY_ID_BYTES: usize = 8;
/// An encapsulated key of X25519.
pub(super) const ENCAPSULATED_BYTES: usize = 32;
/// What authenticates a sealed text.
const TAG_BYTES: usize = 16;
/// A content key, sealed.
pub(super) const ENCLOSED_BYTES: usize = CONTENT_KEY_BYTES + TAG_BYTES;
/// A recipient's entry.
const ENTRY_BYTES: usize = KEY_ID_BYTES + ENCAPSULATED_BYTES + ENCLOSED_BYTES;

/// An envelope whose parts are found.
pub(super) struct Envelope<'a> {
    /// Everything before the body.
    pub(super) header: &'a [u8],
    pub(super) body: &'a [u8],
}

impl<'a> Envelope<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, OpenError> {
        let recipients = usize::from(*bytes.first().ok_or(OpenError::Malformed("empty"))?);
        if recipients == 0 || recipients > SEALED_RECIPIENTS_MAX {
            return Err(OpenError::Malformed("no recipient, or too many"));
        }
        let parts = bytes.split_at_checked(1 + recipients * ENTRY_BYTES);
        let (header, body) = parts.ok_or(OpenError::Malformed("shorter than its recipients"))?;
        if body.len() < BOUND_BYTES + TAG_BYTES {
            return Err(OpenError::Malformed("the body is too short"));
        }
        Ok(Self { header, body })
    }

    /// Whether one of the keys is a recipient's.
    pub(super) fn names(&self, keys: &[SealKey]) -> bool {
        self.entries().any(|entry| keys.iter().any(|key| is_of(entry, key)))
    }

    /// The content key, as the first of the keys opens it that can.
    pub(super) fn content_key(&self, keys: &[SealKey]) -> Result<ContentKey, OpenError> {
        let ours =
            self.entries().flat_map(|entry| keys.iter().filter(|key| is_of(entry, key)).map(move |key| (entry, key)));
        let mut refused = OpenError::NotForUs;
        for (entry, key) in ours {
            let (encapsulated, enclosed) = entry[KEY_ID_BYTES..].split_at(ENCAPSULATED_BYTES);
            match key.disclose(encapsulated, enclosed) {
                Some(content_key) => return Ok(content_key),
                None => refused = OpenError::Damaged,
            }
        }
        Err(refused)
    }

    fn entries(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.header[1..].chunks_exact(ENTRY_BYTES)
    }
}

/// What stands before the body.
pub(super) fn header(entries: &[Enclosed]) -> Vec<u8> {
    // The number of entries was checked to be far below 256.
    let mut header = vec![u8::try_from(entries.len()).unwrap_or(u8::MAX)];
    for entry in entries {
        header.extend_from_slice(&entry.recipient[..KEY_ID_BYTES]);
        header.extend_from_slice(&entry.encapsulated);
        header.extend_from_slice(&entry.enclosed);
    }
    header
}

fn is_of(entry: &[u8], key: &SealKey) -> bool {
    entry[..KEY_ID_BYTES] == key.public()[..KEY_ID_BYTES]
}
