//! Keys that fields are sealed to, and what is sealed to them: one content key.

use std::fmt;

use alloy_primitives::B256;
use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::rand_core::CryptoRng;
use hpke::{Deserializable as _, Kem, OpModeR, OpModeS, Serializable as _, single_shot_open, single_shot_seal};
use zeroize::Zeroizing;

use super::SealError;

/// Ties the content key's seal to this use.
const INFO: &[u8] = b"agent-sandbox sealed:v1";
/// Ties what a seal key is derived from to this use.
const DERIVATION: &[u8] = b"agent-sandbox seal key v1";

pub(super) const CONTENT_KEY_BYTES: usize = 32;

/// What a body is sealed by.
pub(super) type ContentKey = Zeroizing<[u8; CONTENT_KEY_BYTES]>;

/// A secret key that opens what was sealed to its public half.
#[derive(Clone)]
pub struct SealKey {
    secret: <X25519HkdfSha256 as Kem>::PrivateKey,
    public: B256,
}

/// A content key, sealed to a recipient.
pub(super) struct Enclosed {
    pub(super) recipient: B256,
    pub(super) encapsulated: Vec<u8>,
    pub(super) enclosed: Vec<u8>,
}

impl SealKey {
    /// The key of a `generation` that belongs to a secret of 32 bytes: `DeriveKeyPair` of RFC 9180, 7.1.3, over
    /// `agent-sandbox seal key v1`, the secret, and the generation as four bytes. So it needs no keeping of its own, and who
    /// has the secret has every generation.
    pub fn derive(secret: &[u8; 32], generation: u32) -> Self {
        let material = Zeroizing::new([DERIVATION, secret, &generation.to_be_bytes()].concat());
        let (secret, public) = X25519HkdfSha256::derive_keypair(&material);
        Self { secret, public: B256::from_slice(&public.to_bytes()) }
    }

    /// What the operator's profile publishes.
    pub const fn public(&self) -> B256 {
        self.public
    }

    /// The content key that was sealed to this key; `None` where it was not, or was changed.
    pub(super) fn disclose(&self, encapsulated: &[u8], enclosed: &[u8]) -> Option<ContentKey> {
        let encapsulated = <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(encapsulated).ok()?;
        let mode = OpModeR::Base;
        let opened = single_shot_open::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
            &mode,
            &self.secret,
            &encapsulated,
            INFO,
            enclosed,
            b"",
        );
        let opened = Zeroizing::new(opened.ok()?);
        opened.as_slice().try_into().ok().map(ContentKey::new)
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SealKey").field(&self.public).finish()
    }
}

/// Seals a content key to a recipient.
pub(super) fn enclose(
    content_key: &ContentKey,
    recipient: B256,
    random: &mut impl CryptoRng,
) -> Result<Enclosed, SealError> {
    let not_a_key = |_| SealError::NotAKey(recipient);
    let public = <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(recipient.as_slice()).map_err(not_a_key)?;
    let mode = OpModeS::Base;
    let sealed = single_shot_seal::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256, _>(
        &mode,
        &public,
        INFO,
        content_key.as_slice(),
        b"",
        random,
    );
    // Refused is the zero key, and any other with which every sender would agree on the same secret.
    let (encapsulated, enclosed) = sealed.map_err(not_a_key)?;
    Ok(Enclosed { recipient, encapsulated: encapsulated.to_bytes().to_vec(), enclosed })
}
