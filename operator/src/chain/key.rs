//! The operator's key, in the keystore of the Blueprint SDK.

use std::path::{Path, PathBuf};

use alloy::signers::k256::ecdsa::SigningKey;
use alloy::signers::local::PrivateKeySigner;
use blueprint_sdk::crypto::k256::{K256Ecdsa, K256SigningKey};
use blueprint_sdk::keystore::backends::Backend;
use blueprint_sdk::keystore::{Keystore, KeystoreConfig};

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
    /// The text is no private key.
    #[error("not a private key of 32 bytes in hex")]
    NotAKey,
}

/// The one ECDSA key of the keystore.
pub(crate) fn load(uri: &str) -> Result<PrivateKeySigner, KeyError> {
    let keystore = open(uri)?;
    let not_one = |source| KeyError::NotOne { uri: uri.into(), source };
    let public = keystore.sole_local::<K256Ecdsa>().map_err(not_one)?;
    let secret = keystore.get_secret::<K256Ecdsa>(&public).map_err(not_one)?;
    Ok(PrivateKeySigner::from_signing_key(SigningKey::clone(&secret.0)))
}

/// Puts a key into the keystore, which is made where it does not exist.
pub(crate) fn import(uri: &str, text: &str) -> Result<PrivateKeySigner, KeyError> {
    let signer: PrivateKeySigner = text.trim().parse().map_err(|_| KeyError::NotAKey)?;
    let secret = K256SigningKey(signer.credential().clone());
    open(uri)?.insert::<K256Ecdsa>(&secret).map_err(|source| KeyError::Keystore { uri: uri.into(), source })?;
    Ok(signer)
}

/// The file by which processes that share the key take turns.
pub(crate) fn lock_path(uri: &str) -> PathBuf {
    root(uri).join("sender.lock")
}

fn root(uri: &str) -> &Path {
    Path::new(uri.strip_prefix("file://").unwrap_or(uri))
}

fn open(uri: &str) -> Result<Keystore, KeyError> {
    let keystore = Keystore::new(KeystoreConfig::new().fs_root(root(uri)));
    keystore.map_err(|source| KeyError::Keystore { uri: uri.into(), source })
}
