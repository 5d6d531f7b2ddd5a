//! The operator's key: encrypted in a standard Ethereum JSON keystore, or in the plaintext keystore of the Blueprint SDK.
//!
//! `KEYSTORE_URI` names a directory, in which `key.json` is the encrypted key, or such a file itself. The SDK's directory
//! is still read, with a warning. A key is never printed or logged; what held it in between is overwritten.

mod encrypted;
mod password;
mod sdk;
mod seal;

use std::path::{Path, PathBuf};

use alloy::signers::local::PrivateKeySigner;
use zeroize::Zeroizing;

use crate::config::KeystoreConfig;

pub(crate) use seal::{Former, SealKeys};

/// What the encrypted key is called in a keystore directory.
const ENCRYPTED_FILE: &str = "key.json";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// The keystore cannot be used.
    #[error("cannot use the keystore {uri}")]
    Keystore {
        /// Its location.
        uri: String,
        /// Why.
        source: blueprint_sdk::keystore::Error,
    },
    /// The keystore holds no ECDSA key, or several.
    #[error("the keystore {uri} must hold exactly one ECDSA key; `operator key import` puts one in")]
    NotOne {
        /// Its location.
        uri: String,
        /// Why.
        source: blueprint_sdk::keystore::Error,
    },
    /// There are a plaintext and an encrypted key.
    #[error("the keystore {uri} holds a plaintext and an encrypted key; remove the one that is not used")]
    Both {
        /// Its location.
        uri: String,
    },
    /// There is a key already.
    #[error("the keystore {uri} holds a key already")]
    Occupied {
        /// Its location.
        uri: String,
    },
    /// There is no plaintext key to encrypt.
    #[error("the keystore {uri} holds no plaintext key to encrypt")]
    NothingToEncrypt {
        /// Its location.
        uri: String,
    },
    /// A file of the keystore cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The key does not open.
    #[error("the password does not open {}", path.display())]
    WrongPassword {
        /// The keystore file.
        path: PathBuf,
    },
    /// The file is no Ethereum keystore.
    #[error("{} is not an Ethereum JSON keystore", path.display())]
    NotAKeystore {
        /// The file.
        path: PathBuf,
        /// Why.
        source: alloy::signers::local::LocalSignerError,
    },
    /// Nobody said the password.
    #[error("the key is encrypted: name a file with its password by KEYSTORE_PASSWORD_FILE")]
    NoPassword,
    /// The password was asked for and not given.
    #[error("no password was given")]
    Prompt(#[source] std::io::Error),
    /// The two passwords given are not one.
    #[error("the two passwords differ")]
    Mistyped,
    /// A new password is empty.
    #[error("the password is empty")]
    EmptyPassword,
    /// The file beside the key does not say which seal keys there are.
    #[error("{} does not say which seal keys there are", path.display())]
    NotGenerations {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The seal key was rotated too often lately.
    #[error("too many former seal keys still open; `operator key rotate-seal --drop-former` ends them all")]
    TooManySealKeys,
    /// The text is no private key.
    #[error("not a private key of 32 bytes in hex")]
    NotAKey,
}

/// How a key is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// For anybody who may read the file.
    Plaintext,
    /// Under a password.
    Encrypted,
}

/// How the key of this keystore is kept; `None` where there is none.
pub(crate) fn kept(keystore: &KeystoreConfig) -> Result<Option<Kept>, KeyError> {
    let uri = &keystore.uri;
    match (encrypted_path(uri).exists(), sdk::is_there(root(uri))) {
        (true, true) => Err(KeyError::Both { uri: uri.clone() }),
        (true, false) => Ok(Some(Kept::Encrypted)),
        (false, true) => Ok(Some(Kept::Plaintext)),
        (false, false) => Ok(None),
    }
}

/// The one key of the keystore.
pub(crate) fn load(keystore: &KeystoreConfig) -> Result<PrivateKeySigner, KeyError> {
    if kept(keystore)? == Some(Kept::Encrypted) {
        return encrypted::open(&encrypted_path(&keystore.uri), &password::given(keystore)?);
    }
    let key = sdk::load(&keystore.uri, root(&keystore.uri))?;
    tracing::warn!(
        keystore = keystore.uri,
        "the operator's key is kept in plaintext; `operator key encrypt` puts a password on it"
    );
    Ok(key)
}

/// Puts the key of `text` into the keystore, which is made where it does not exist: encrypted where a password is given.
pub(crate) fn import(keystore: &KeystoreConfig, text: &str) -> Result<PrivateKeySigner, KeyError> {
    let key: PrivateKeySigner = text.trim().parse().map_err(|_| KeyError::NotAKey)?;
    if kept(keystore)?.is_some() {
        return Err(KeyError::Occupied { uri: keystore.uri.clone() });
    }
    match &keystore.password_file {
        Some(_) => encrypted::seal(&encrypted_path(&keystore.uri), &key, &password::chosen(keystore)?)?,
        None => sdk::insert(&keystore.uri, root(&keystore.uri), &key)?,
    }
    Ok(key)
}

/// Makes a key, encrypted.
pub(crate) fn create(keystore: &KeystoreConfig) -> Result<PrivateKeySigner, KeyError> {
    if kept(keystore)?.is_some() {
        return Err(KeyError::Occupied { uri: keystore.uri.clone() });
    }
    let key = PrivateKeySigner::random();
    encrypted::seal(&encrypted_path(&keystore.uri), &key, &password::chosen(keystore)?)?;
    Ok(key)
}

/// Puts a password on a plaintext key. The plaintext goes once the encrypted key was seen to open.
pub(crate) fn encrypt(keystore: &KeystoreConfig) -> Result<PrivateKeySigner, KeyError> {
    if kept(keystore)? != Some(Kept::Plaintext) {
        return Err(KeyError::NothingToEncrypt { uri: keystore.uri.clone() });
    }
    let root = root(&keystore.uri);
    let key = sdk::load(&keystore.uri, root)?;
    let password = password::chosen(keystore)?;
    let path = encrypted_path(&keystore.uri);
    encrypted::seal(&path, &key, &password)?;
    encrypted::open(&path, &password)?;
    sdk::remove(root)?;
    Ok(key)
}

/// A key's text, read from a file. It is overwritten when it is dropped.
pub(crate) fn text_of(path: &Path) -> Result<Zeroizing<String>, KeyError> {
    let text = std::fs::read_to_string(path);
    text.map(Zeroizing::new).map_err(|source| KeyError::File { path: path.into(), source })
}

/// The file by which processes that share the key take turns.
pub(crate) fn lock_path(keystore: &KeystoreConfig) -> PathBuf {
    let root = root(&keystore.uri);
    if root.is_file() { root.with_extension("lock") } else { root.join("sender.lock") }
}

/// The files of the keystore that hold a key.
pub(crate) fn files(keystore: &KeystoreConfig) -> Vec<PathBuf> {
    let root = root(&keystore.uri);
    let mut files: Vec<PathBuf> = sdk::files(root);
    files.extend(Some(encrypted_path(&keystore.uri)).filter(|path| path.exists()));
    files.sort();
    files
}

fn encrypted_path(uri: &str) -> PathBuf {
    let root = root(uri);
    if root.is_file() { root.into() } else { root.join(ENCRYPTED_FILE) }
}

fn root(uri: &str) -> &Path {
    Path::new(uri.strip_prefix("file://").unwrap_or(uri))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::*;

    /// A known key, of nobody.
    const KEY: &str = "0x0101010101010101010101010101010101010101010101010101010101010101";

    fn keystore(dir: &TempDir, password: Option<&str>) -> KeystoreConfig {
        let file = dir.path().join("password");
        if let Some(password) = password {
            std::fs::write(&file, password).unwrap();
        }
        KeystoreConfig { uri: dir.path().join("keystore").display().to_string(), password_file: password.map(|_| file) }
    }

    fn holds_key(path: &Path) -> bool {
        let bytes: Vec<String> = vec!["1"; 32].into_iter().map(str::to_owned).collect();
        let text = std::fs::read_to_string(path).unwrap();
        text.contains(&bytes.join(",")) || text.contains(&KEY[2..])
    }

    #[test]
    fn an_encrypted_key_opens_with_its_password_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let place = keystore(&dir, Some("correct horse\n"));
        let key = import(&place, KEY).unwrap();
        assert_eq!(load(&place).unwrap(), key);
        assert_eq!(kept(&place).unwrap(), Some(Kept::Encrypted));
        let file = encrypted_path(&place.uri);
        assert!(!holds_key(&file));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let as_file = KeystoreConfig { uri: file.display().to_string(), ..place.clone() };
        assert_eq!(load(&as_file).unwrap(), key, "the file itself may be named too");
        let wrong = keystore(&dir, Some("wrong"));
        assert!(matches!(load(&wrong), Err(KeyError::WrongPassword { .. })));
        let none = KeystoreConfig { password_file: None, ..place };
        assert!(matches!(load(&none), Err(KeyError::NoPassword)));
    }

    #[test]
    fn encrypting_leaves_the_same_key_and_no_plaintext() {
        let dir = tempfile::tempdir().unwrap();
        let key = import(&keystore(&dir, None), KEY).unwrap();
        let plaintext = files(&keystore(&dir, None));
        assert!(plaintext.len() == 1 && holds_key(&plaintext[0]), "the test can see a key");
        let place = keystore(&dir, Some("secret"));
        assert_eq!(encrypt(&place).unwrap(), key);
        assert_eq!(files(&place), [encrypted_path(&place.uri)]);
        assert_eq!(load(&place).unwrap(), key);
        assert!(matches!(encrypt(&place), Err(KeyError::NothingToEncrypt { .. })));
    }

    #[test]
    fn no_key_takes_the_place_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let place = keystore(&dir, Some("secret"));
        let first = create(&place).unwrap();
        assert!(matches!(create(&place), Err(KeyError::Occupied { .. })));
        assert!(matches!(import(&place, KEY), Err(KeyError::Occupied { .. })));
        assert_eq!(load(&place).unwrap(), first);
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let refused = import(&keystore(&dir, None), "0xsecret").unwrap_err();
        assert_eq!(crate::error_chain(&refused), "not a private key of 32 bytes in hex");
        let file = dir.path().join("other.json");
        std::fs::write(&file, "{}").unwrap();
        let place = KeystoreConfig { uri: file.display().to_string(), ..keystore(&dir, Some("p")) };
        assert!(matches!(load(&place), Err(KeyError::NotAKeystore { .. })));
    }
}
