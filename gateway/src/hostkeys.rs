//! The host's own keys: made once, kept in a file that its owner alone reads, replaced with an overlap.
//!
//! The next key is told to customers at once and signs only when the overlap is over, so nobody meets one that was not
//! announced. The file says from when on each signs, and is read whenever a key is needed: one that was made by command is
//! known to a running process at once, and a restart changes nothing.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rand::TryRngCore as _;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use sandbox_protocol::ssh::{KeyError, PublicKey};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

/// What the file is called.
const FILE: &str = "ssh-host-keys.json";

/// The keys of a host. Clones share nothing but the file.
#[derive(Debug, Clone)]
pub struct HostKeys {
    path: PathBuf,
}

/// A key that was made to follow the one that signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotation {
    /// The key.
    pub next: PublicKey,
    /// When it begins to sign.
    pub signs_from: SystemTime,
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// The file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file is not one of ours.
    #[error("{} holds no SSH host keys", path.display())]
    Contents {
        /// Where it is.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The file names no key that signs now.
    #[error("{} holds no SSH host key that signs", path.display())]
    None {
        /// Where it is.
        path: PathBuf,
    },
    /// What the file names is no private key.
    #[error("an SSH host key cannot be read or written")]
    Key(#[source] russh::keys::ssh_key::Error),
    /// Its public half is none that is taken.
    #[error("an SSH host key is of no kind that is taken")]
    Kind(#[source] KeyError),
    /// The system gives no randomness.
    #[error("no randomness for an SSH host key")]
    Random(#[source] rand::rand_core::OsError),
    /// A key was made already that does not sign yet.
    #[error("another SSH host key begins to sign in {left_s} s; one rotation at a time")]
    UnderWay {
        /// Seconds until it signs.
        left_s: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// In the order in which they sign.
    keys: Vec<Entry>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// As OpenSSH writes a private key.
    private: String,
    /// Second since 1970 from which on it signs, until the next one does.
    signs_from_s: u64,
}

impl HostKeys {
    /// The keys that are kept in `dir`; a first one is made where there is none.
    ///
    /// # Errors
    /// [`HostKeyError`].
    pub fn open(dir: &Path) -> Result<Self, HostKeyError> {
        let keys = Self { path: dir.join(FILE) };
        if !keys.path.exists() {
            let first = Kept { keys: vec![Entry::new(0)?] };
            // Whoever else makes one at the same time: the first to write it has made it.
            match keys.written(&first)?.persist_noclobber(&keys.path) {
                Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => return Err(keys.at(error.error)),
                _ => keys.sync_dir()?,
            }
        }
        keys.current(SystemTime::now())?;
        Ok(keys)
    }

    /// Where they are kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the keys in `dir`, where there is one.
    pub fn file_in(dir: &Path) -> Option<PathBuf> {
        Some(dir.join(FILE)).filter(|path| path.exists())
    }

    /// The key that signs at `now`.
    ///
    /// # Errors
    /// [`HostKeyError`].
    pub fn current(&self, now: SystemTime) -> Result<PrivateKey, HostKeyError> {
        let (keys, now_s) = (self.read()?.keys, seconds(now));
        let current = keys.iter().rev().find(|entry| entry.signs_from_s <= now_s);
        current.ok_or_else(|| HostKeyError::None { path: self.path.clone() })?.private()
    }

    /// What customers are to expect at `now`: the key that signs, then the one that is to follow it.
    ///
    /// # Errors
    /// [`HostKeyError`].
    pub fn announced(&self, now: SystemTime) -> Result<Vec<PublicKey>, HostKeyError> {
        self.read()?.since(seconds(now)).iter().map(Entry::public).collect()
    }

    /// Makes the key that is to follow, which signs once `overlap` is over.
    ///
    /// # Errors
    /// [`HostKeyError`]; of another rotation, [`HostKeyError::UnderWay`].
    pub fn rotate(&self, now: SystemTime, overlap: Duration) -> Result<Rotation, HostKeyError> {
        let now_s = seconds(now);
        let mut keys = self.read()?.since(now_s).to_vec();
        if let Some(next) = keys.iter().find(|entry| entry.signs_from_s > now_s) {
            return Err(HostKeyError::UnderWay { left_s: next.signs_from_s - now_s });
        }
        let next = Entry::new(now_s.saturating_add(overlap.as_secs()))?;
        let (public, signs_from_s) = (next.public()?, next.signs_from_s);
        keys.push(next);
        self.written(&Kept { keys })?.persist(&self.path).map_err(|error| self.at(error.error))?;
        self.sync_dir()?;
        Ok(Rotation { next: public, signs_from: UNIX_EPOCH + Duration::from_secs(signs_from_s) })
    }

    fn read(&self) -> Result<Kept, HostKeyError> {
        let text = Zeroizing::new(std::fs::read(&self.path).map_err(|source| self.at(source))?);
        serde_json::from_slice(&text).map_err(|source| HostKeyError::Contents { path: self.path.clone(), source })
    }

    /// The file as it is to be, beside its place: readable for its owner alone, and on disk.
    fn written(&self, kept: &Kept) -> Result<NamedTempFile, HostKeyError> {
        let written = || {
            let mut file = NamedTempFile::new_in(self.dir())?;
            file.write_all(&Zeroizing::new(serde_json::to_vec(kept)?))?;
            file.as_file().sync_all()?;
            Ok(file)
        };
        written().map_err(|source| self.at(source))
    }

    fn sync_dir(&self) -> Result<(), HostKeyError> {
        std::fs::File::open(self.dir()).and_then(|dir| dir.sync_all()).map_err(|source| self.at(source))
    }

    fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    fn at(&self, source: io::Error) -> HostKeyError {
        HostKeyError::File { path: self.path.clone(), source }
    }
}

impl Kept {
    /// The keys that sign at `now_s` or later.
    fn since(&self, now_s: u64) -> &[Entry] {
        let current = self.keys.iter().rposition(|entry| entry.signs_from_s <= now_s);
        self.keys.get(current.unwrap_or(0)..).unwrap_or_default()
    }
}

impl Entry {
    fn new(signs_from_s: u64) -> Result<Self, HostKeyError> {
        let mut seed = [0; 32];
        rand::rngs::OsRng.try_fill_bytes(&mut seed).map_err(HostKeyError::Random)?;
        let pair = KeypairData::from(Ed25519Keypair::from_seed(&seed));
        let key = PrivateKey::new(pair, "").map_err(HostKeyError::Key)?;
        let private = key.to_openssh(LineEnding::LF).map_err(HostKeyError::Key)?.to_string();
        Ok(Self { private, signs_from_s })
    }

    fn private(&self) -> Result<PrivateKey, HostKeyError> {
        PrivateKey::from_openssh(&self.private).map_err(HostKeyError::Key)
    }

    fn public(&self) -> Result<PublicKey, HostKeyError> {
        let wire = self.private()?.public_key().to_bytes().map_err(HostKeyError::Key)?;
        PublicKey::from_wire(&wire).map_err(HostKeyError::Kind)
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(2_000_000_000)
    }

    fn signing(keys: &HostKeys, at: SystemTime) -> PublicKey {
        PublicKey::from_wire(&keys.current(at).unwrap().public_key().to_bytes().unwrap()).unwrap()
    }

    #[test]
    fn a_key_is_made_once_for_its_owners_eyes_and_is_the_same_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let first = HostKeys::open(dir.path()).unwrap();
        let announced = first.announced(now()).unwrap();
        assert_eq!(announced, [signing(&first, now())]);
        assert_eq!(announced[0].kind(), "ssh-ed25519");
        assert_eq!(std::fs::metadata(first.path()).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(HostKeys::open(dir.path()).unwrap().announced(now()).unwrap(), announced);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
        let other = HostKeys::open(tempfile::tempdir().unwrap().path());
        assert!(other.unwrap().announced(now()).is_err(), "its directory is gone");
    }

    #[test]
    fn the_next_key_is_announced_at_once_and_signs_when_the_overlap_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let keys = HostKeys::open(dir.path()).unwrap();
        let old = signing(&keys, now());
        let rotation = keys.rotate(now(), WEEK).unwrap();
        assert_eq!(rotation.signs_from, now() + WEEK);
        let last = now() + WEEK - Duration::from_secs(1);
        for keys in [keys.clone(), HostKeys::open(dir.path()).unwrap()] {
            assert_eq!(signing(&keys, last), old);
            assert_eq!(keys.announced(last).unwrap(), [old.clone(), rotation.next.clone()]);
            assert_eq!(signing(&keys, now() + WEEK), rotation.next);
            assert_eq!(keys.announced(now() + WEEK).unwrap(), std::slice::from_ref(&rotation.next));
        }
        assert!(matches!(keys.rotate(last, WEEK), Err(HostKeyError::UnderWay { left_s: 1 })));
        keys.rotate(now() + WEEK, WEEK).unwrap();
        assert!(!std::fs::read_to_string(keys.path()).unwrap().contains(&old.to_string()));
        assert_eq!(keys.read().unwrap().keys.len(), 2, "the first one is forgotten");
    }

    #[test]
    fn a_file_that_holds_no_keys_is_refused_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        for text in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"private":"x","signs_from_s":0}]}"#] {
            std::fs::write(&path, text).unwrap();
            assert!(HostKeys::open(dir.path()).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
