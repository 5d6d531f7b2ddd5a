//! The keys that customers seal fields to: derived from the operator's key, so that there is no second secret to keep.
//!
//! They are numbered by generations, see [`SealKey::derive`]; a file beside the key says which is published, and until when
//! those before it still open. It holds no secret, and is read whenever a key is needed: one that was rotated by command is
//! known to a running node at once.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use alloy::signers::local::PrivateKeySigner;
use sandbox_protocol::sealed::SealKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{KeyError, root};
use crate::config::KeystoreConfig;
use crate::limits::{SEAL_KEY_OVERLAP_S, SEAL_KEYS_OPENING_MAX};

/// What the file is called in a keystore directory.
const FILE: &str = "seal.json";

/// The operator's seal keys. Clones share nothing but the file.
#[derive(Clone)]
pub(crate) struct SealKeys {
    secret: Zeroizing<[u8; 32]>,
    path: PathBuf,
}

/// Which generation is published, and which still open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Generations {
    /// What customers are to seal to.
    pub(crate) current: u32,
    /// Those that still open, the latest first.
    pub(crate) retired: Vec<Retired>,
}

/// A generation that is not published any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retired {
    pub(crate) generation: u32,
    /// Second since 1970 from which on it opens nothing.
    pub(crate) until_s: u64,
}

/// What becomes of the key that is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Former {
    /// It opens what is sealed to it for a while: customers may have read it just before.
    Opens,
    /// It, and those before it, open nothing any more.
    IsDropped,
}

impl SealKeys {
    /// The seal keys that belong to the operator's `key`.
    pub(crate) fn of(keystore: &KeystoreConfig, key: &PrivateKeySigner) -> Self {
        let root = root(&keystore.uri);
        let path = if root.is_file() { root.with_extension(FILE) } else { root.join(FILE) };
        Self { secret: Zeroizing::new(key.to_bytes().0), path }
    }

    /// The one that customers are to seal to.
    pub(crate) fn current(&self) -> Result<SealKey, KeyError> {
        Ok(self.derive(self.generations()?.current))
    }

    /// Those that open now, the current one first.
    pub(crate) fn opening(&self) -> Result<Vec<SealKey>, KeyError> {
        let Generations { current, retired } = self.generations()?;
        let now_s = now_s();
        let still = retired.into_iter().filter(|retired| retired.until_s > now_s).map(|retired| retired.generation);
        Ok(std::iter::once(current).chain(still).map(|generation| self.derive(generation)).collect())
    }

    /// Puts a new key in the place of the current one; it counts for customers once the operator's profile is published.
    pub(crate) fn rotate(&self, former: Former) -> Result<Generations, KeyError> {
        let next = self.generations()?.next(former, now_s())?;
        self.write(&next).map_err(|source| self.failed(source))?;
        Ok(next)
    }

    /// What the file says; the first generation where there is none.
    pub(crate) fn generations(&self) -> Result<Generations, KeyError> {
        match std::fs::read(&self.path) {
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|source| KeyError::NotGenerations { path: self.path.clone(), source }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Generations::default()),
            Err(source) => Err(self.failed(source)),
        }
    }

    fn derive(&self, generation: u32) -> SealKey {
        SealKey::derive(&self.secret, generation)
    }

    /// The file is there whole or not at all.
    fn write(&self, generations: &Generations) -> std::io::Result<()> {
        let new = self.path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(generations)?)?;
        std::fs::File::open(&new)?.sync_all()?;
        std::fs::rename(&new, &self.path)
    }

    fn failed(&self, source: std::io::Error) -> KeyError {
        KeyError::File { path: self.path.clone(), source }
    }
}

impl Generations {
    fn next(self, former: Former, now_s: u64) -> Result<Self, KeyError> {
        let Self { current, mut retired } = self;
        retired.retain(|retired| retired.until_s > now_s);
        match former {
            Former::Opens => retired.insert(0, Retired { generation: current, until_s: now_s + SEAL_KEY_OVERLAP_S }),
            Former::IsDropped => retired.clear(),
        }
        if retired.len() >= SEAL_KEYS_OPENING_MAX {
            return Err(KeyError::TooManySealKeys);
        }
        Ok(Self { current: current.checked_add(1).ok_or(KeyError::TooManySealKeys)?, retired })
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(dir: &std::path::Path) -> SealKeys {
        let keystore = KeystoreConfig { uri: dir.display().to_string(), password_file: None };
        SealKeys::of(&keystore, &PrivateKeySigner::from_slice(&[1; 32]).unwrap())
    }

    fn publics(keys: &SealKeys) -> Vec<alloy::primitives::B256> {
        keys.opening().unwrap().iter().map(SealKey::public).collect()
    }

    #[test]
    fn a_rotated_key_opens_for_a_while_and_is_the_same_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let first = publics(&keys(dir.path()));
        assert_eq!(first.len(), 1);
        assert_eq!(keys(dir.path()).rotate(Former::Opens).unwrap().current, 1);
        let both = publics(&keys(dir.path()));
        assert_eq!((both.len(), both[1]), (2, first[0]));
        assert_ne!(both[0], first[0]);
        assert_eq!(keys(dir.path()).current().unwrap().public(), both[0]);
        keys(dir.path()).rotate(Former::IsDropped).unwrap();
        assert_eq!(publics(&keys(dir.path())).len(), 1);
    }

    #[test]
    fn a_former_key_opens_until_its_time_is_over_and_there_are_not_too_many() {
        let once = Generations::default().next(Former::Opens, 1_000).unwrap();
        assert_eq!(once.retired, [Retired { generation: 0, until_s: 1_000 + SEAL_KEY_OVERLAP_S }]);
        let later = once.clone().next(Former::Opens, 1_000 + SEAL_KEY_OVERLAP_S).unwrap();
        assert_eq!(later.retired.iter().map(|retired| retired.generation).collect::<Vec<_>>(), [1]);
        let mut many = Generations::default();
        for _ in 1..SEAL_KEYS_OPENING_MAX {
            many = many.next(Former::Opens, 1_000).unwrap();
        }
        assert!(matches!(many.clone().next(Former::Opens, 1_000), Err(KeyError::TooManySealKeys)));
        assert!(many.next(Former::IsDropped, 1_000).is_ok());
    }

    #[test]
    fn a_bad_file_is_no_reason_to_begin_anew() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE), "{}").unwrap();
        assert!(matches!(keys(dir.path()).current(), Err(KeyError::NotGenerations { .. })));
    }
}
