//! The standard Ethereum JSON keystore (Web3 Secret Storage, scrypt), as geth, clef and cast write and read it.

use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use alloy::signers::k256::elliptic_curve::rand_core::OsRng;
use alloy::signers::local::{LocalSignerError, PrivateKeySigner};
use zeroize::Zeroizing;

use super::KeyError;

/// The key in the file at `path`.
pub(super) fn open(path: &Path, password: &Zeroizing<String>) -> Result<PrivateKeySigner, KeyError> {
    PrivateKeySigner::decrypt_keystore(path, password.as_bytes()).map_err(|error| refused(path, error))
}

/// Writes the key to the file at `path`, which is there whole or not at all, and for its owner only.
pub(super) fn seal(path: &Path, key: &PrivateKeySigner, password: &Zeroizing<String>) -> Result<(), KeyError> {
    let failed = |source| KeyError::File { path: path.into(), source };
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    let secret = Zeroizing::new(key.to_bytes().0);
    let name = format!(".{}.new", path.file_name().unwrap_or_default().to_string_lossy());
    PrivateKeySigner::encrypt_keystore(dir, &mut OsRng, *secret, password.as_bytes(), Some(&name))
        .map_err(|error| refused(path, error))?;
    let new = dir.join(name);
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    std::fs::File::open(&new).and_then(|file| file.sync_all()).map_err(failed)?;
    std::fs::rename(&new, path).map_err(failed)
}

/// The library has one error for everything; a wrong password is told by the words that it has for it.
fn refused(path: &Path, error: LocalSignerError) -> KeyError {
    let path = path.into();
    if error.to_string() == "Mac Mismatch" {
        return KeyError::WrongPassword { path };
    }
    KeyError::NotAKeystore { path, source: error }
}
