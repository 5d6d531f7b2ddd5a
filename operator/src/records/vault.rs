//! Sealed values: what customers say and get is unreadable in the store's files, and in copies of them.
//!
//! A value under one of the [`SECRET`] keys is the byte 1, a random nonce of 24 bytes, and its JSON sealed by
//! XChaCha20-Poly1305. The record's key is bound into the seal, so no value opens in another's place. The sealing key is
//! derived from the operator's by HKDF-SHA256: nothing more has to be kept, and records restored beside the keystore open.
//!
//! JSON never begins with the byte 1: a value of before there were seals is read as it is, and sealed when it is next
//! written. In the open stay what the keys name (ids, callers, blocks), lengths, and what the chain or the operator says:
//! events, hashes of tokens, how far the chain was read.

use alloy::signers::local::PrivateKeySigner;
use chacha20poly1305::aead::{Aead as _, AeadInPlace as _, Payload};
use chacha20poly1305::{Key, KeyInit as _, XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::batches::{ITEMS, PARTS};
use super::forks::FORMER;
use super::moves::MOVES;
use super::workflows;
use super::{CALLS, OWNER_KEY, Records, RecordsError, SANDBOXES, decode, encode};

/// Names the sealing key: it goes into its derivation, and into what every value is bound to.
const KEY_NAME: &[u8] = b"agent-sandbox records v1";
/// A value that tells whether the key is the one of these records.
const KEY_CHECK: &[u8] = b"key_check";
/// What the keys of sealed values begin with: calls with their answers, moves of negotiations, parts of batches with their items,
/// sandboxes with their environment and token, texts, runs and secrets of workflows.
const SECRET: [&[u8]; 11] = [
    CALLS,
    FORMER,
    MOVES,
    PARTS,
    ITEMS,
    SANDBOXES,
    KEY_CHECK,
    workflows::TEXTS,
    workflows::RUNS,
    workflows::RUN_ENTRIES,
    workflows::SECRETS,
];
/// What a sealed value begins with.
const SEALED: u8 = 1;
const NONCE_BYTES: usize = 24;

/// Seals and opens values.
#[derive(Clone)]
pub(crate) struct Vault(Option<XChaCha20Poly1305>);

impl Vault {
    /// Of the operator with this key.
    pub(crate) fn of(key: &PrivateKeySigner) -> Self {
        let secret = Zeroizing::new(key.to_bytes().0);
        let mut sealing = Zeroizing::new([0; 32]);
        match Hkdf::<Sha256>::new(None, secret.as_slice()).expand(KEY_NAME, sealing.as_mut_slice()) {
            Ok(()) => Self(Some(XChaCha20Poly1305::new(Key::from_slice(sealing.as_slice())))),
            Err(_) => unreachable!("32 bytes are one block of the derivation"),
        }
    }

    /// Of who has no key: copies what is sealed, and reads none of it.
    pub(crate) const fn locked() -> Self {
        Self(None)
    }

    /// Whether there is no key.
    pub(super) const fn is_locked(&self) -> bool {
        self.0.is_none()
    }

    /// What is stored of `value` under `key`.
    pub(super) fn encode<T: Serialize>(&self, key: &[u8], value: &T) -> Result<Vec<u8>, RecordsError> {
        if !is_secret(key) {
            return encode(value);
        }
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let mut stored = vec![SEALED];
        stored.extend(nonce);
        serde_json::to_writer(&mut stored, value).map_err(RecordsError::Encoding)?;
        let (_, text) = stored.split_at_mut(1 + NONCE_BYTES);
        let tag = self.cipher()?.encrypt_in_place_detached(XNonce::from_slice(&nonce), &bound(key), text);
        stored.extend(tag.map_err(|_| RecordsError::Seal)?);
        Ok(stored)
    }

    /// The value that is stored under `key`.
    pub(super) fn decode<T: DeserializeOwned>(&self, key: &[u8], stored: &[u8]) -> Result<T, RecordsError> {
        let Some((&SEALED, rest)) = stored.split_first() else { return decode(stored) };
        let (nonce, msg) = rest.split_at_checked(NONCE_BYTES).ok_or(RecordsError::Unseal)?;
        let payload = Payload { msg, aad: &bound(key) };
        let text = self.cipher()?.decrypt(XNonce::from_slice(nonce), payload).map_err(|_| RecordsError::Unseal)?;
        decode(&text)
    }

    fn cipher(&self) -> Result<&XChaCha20Poly1305, RecordsError> {
        self.0.as_ref().ok_or(RecordsError::Locked)
    }
}

impl Records {
    /// Makes sure that the key is the one of these records, as far as they were bound to any.
    pub(super) fn check_key(&self) -> Result<(), RecordsError> {
        match self.read::<bool>(KEY_CHECK) {
            Err(RecordsError::Unseal) => {
                let found = self.read(OWNER_KEY)?.unwrap_or_else(|| "another operator".to_owned());
                Err(RecordsError::WrongKey { found })
            }
            read => read.map(drop),
        }
    }

    /// Binds the records to the key, once they are known to be this operator's.
    pub(super) fn bind_key(&self) -> Result<(), RecordsError> {
        match self.read::<bool>(KEY_CHECK)? {
            Some(_) => Ok(()),
            None => self.write_now(KEY_CHECK, &true),
        }
    }
}

/// Whether this may be written: whatever has a secret key is sealed.
pub(super) fn is_fit(key: &[u8], value: &[u8]) -> bool {
    !is_secret(key) || value.first() == Some(&SEALED)
}

fn is_secret(key: &[u8]) -> bool {
    SECRET.iter().any(|kind| key.starts_with(kind))
}

fn bound(key: &[u8]) -> Vec<u8> {
    [KEY_NAME, key].concat()
}
