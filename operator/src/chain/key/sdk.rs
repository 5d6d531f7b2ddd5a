//! The Blueprint SDK's keystore: a file per key, in plaintext.

use std::path::{Path, PathBuf};

use alloy::signers::k256::ecdsa::SigningKey;
use alloy::signers::local::PrivateKeySigner;
use blueprint_sdk::crypto::k256::{K256Ecdsa, K256SigningKey};
use blueprint_sdk::keystore::backends::Backend;
use blueprint_sdk::keystore::{Keystore, KeystoreConfig};

use super::KeyError;

/// Where the SDK keeps keys of this kind.
const ECDSA_DIR: &str = "Ecdsa";

/// Whether there is a key.
pub(super) fn is_there(root: &Path) -> bool {
    !files(root).is_empty()
}

/// The files that hold keys.
pub(super) fn files(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root.join(ECDSA_DIR)) else { return Vec::new() };
    entries.flatten().map(|entry| entry.path()).collect()
}

/// The one key.
pub(super) fn load(uri: &str, root: &Path) -> Result<PrivateKeySigner, KeyError> {
    let keystore = open(uri, root)?;
    let not_one = |source| KeyError::NotOne { uri: uri.into(), source };
    let public = keystore.sole_local::<K256Ecdsa>().map_err(not_one)?;
    let secret = keystore.get_secret::<K256Ecdsa>(&public).map_err(not_one)?;
    Ok(PrivateKeySigner::from_signing_key(SigningKey::clone(&secret.0)))
}

/// Puts a key in. It is for its owner's eyes only.
pub(super) fn insert(uri: &str, root: &Path, key: &PrivateKeySigner) -> Result<(), KeyError> {
    use std::os::unix::fs::PermissionsExt as _;

    let secret = K256SigningKey(key.credential().clone());
    open(uri, root)?.insert::<K256Ecdsa>(&secret).map_err(|source| KeyError::Keystore { uri: uri.into(), source })?;
    for path in files(root) {
        let closed = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600));
        closed.map_err(|source| KeyError::File { path, source })?;
    }
    Ok(())
}

/// Overwrites and removes every key.
pub(super) fn remove(root: &Path) -> Result<(), KeyError> {
    for path in files(root) {
        let removed = overwrite(&path).and_then(|()| std::fs::remove_file(&path));
        removed.map_err(|source| KeyError::File { path, source })?;
    }
    Ok(())
}

fn overwrite(path: &Path) -> std::io::Result<()> {
    use std::io::Write as _;

    let mut file = std::fs::File::options().write(true).open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    file.write_all(&vec![0; length])?;
    file.sync_all()
}

fn open(uri: &str, root: &Path) -> Result<Keystore, KeyError> {
    let keystore = Keystore::new(KeystoreConfig::new().fs_root(root));
    keystore.map_err(|source| KeyError::Keystore { uri: uri.into(), source })
}
