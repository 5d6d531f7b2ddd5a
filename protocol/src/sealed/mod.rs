//! Sealed fields: text of a request that only named operators can read, though a job's inputs are public.
//!
//! A field of a request may be `sealed:v1:` and the base64 (standard alphabet, padded) of an envelope:
//!
//! | Bytes         | What                                                                                         |
//! |---------------|----------------------------------------------------------------------------------------------|
//! | 0             | number of recipients R, 1 to 32                                                              |
//! | 1 + 88·i, 8   | of each recipient: the first bytes of its seal key, as the operator's profile publishes it   |
//! | 9 + 88·i, 32  | its encapsulated key (`enc` of RFC 9180)                                                     |
//! | 41 + 88·i, 48 | the content key, 32 random bytes, sealed to it                                               |
//! | 1 + 88·R, …   | the body, sealed by the content key; its last 16 bytes are the tag                           |
//!
//! The content key is sealed by HPKE (RFC 9180) in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and
//! ChaCha20Poly1305 (0x0020, 0x0001, 0x0003), `info` = `agent-sandbox sealed:v1`, no `aad`. The body is sealed by
//! ChaCha20-Poly1305 (RFC 8439) with the nonce zero, since a content key seals one body, and with `sealed:v1:` and all bytes
//! before the body as additional data. Opened, it is:
//!
//! | Bytes  | What                                   |
//! |--------|----------------------------------------|
//! | 0, 8   | chain id, big-endian as all numbers    |
//! | 8, 20  | address of the core                    |
//! | 28, 8  | service id                             |
//! | 36, 20 | address of the caller                  |
//! | 56     | job id                                 |
//! | 57     | number of the field, see [`Field`]     |
//! | 58, …  | the text, in UTF-8                     |
//!
//! Anybody can copy a sealed field out of the chain into a call of his own. So the text is opened only where it was written
//! for: another caller, service, job or field gets a refusal. What everybody sees is for whom it is, and how long.
//!
//! Randomness and keys come as arguments. The texts of sealed fields appear in no error.

mod fields;
mod key;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;

use alloy_primitives::{Address, B256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _, Nonce};
use hpke::rand_core::CryptoRng;

pub use fields::Sealable;
pub use key::SealKey;

use crate::limits::{JOB_INPUT_BYTES_MAX, SEALED_RECIPIENTS_MAX};
use key::{CONTENT_KEY_BYTES, ContentKey};
use wire::Envelope;

/// What a sealed field begins with.
pub const PREFIX: &str = "sealed:v1:";

/// Bytes of a body before its text.
const BOUND_BYTES: usize = 58;

/// A field of a request that may be sealed. Its number stands in the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // the names are those of the fields
pub enum Field {
    EnvJson = 1,
    Command = 2,
    Stdin = 3,
    Prompt = 4,
    ContextJson = 5,
    SandboxConfigJson = 6,
}

impl Field {
    /// Every field.
    pub const ALL: [Self; 6] =
        [Self::EnvJson, Self::Command, Self::Stdin, Self::Prompt, Self::ContextJson, Self::SandboxConfigJson];

    /// Its name in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EnvJson => "env_json",
            Self::Command => "command",
            Self::Stdin => "stdin",
            Self::Prompt => "prompt",
            Self::ContextJson => "context_json",
            Self::SandboxConfigJson => "sandbox_config_json",
        }
    }

    /// Whether it is sealed unless its customer says otherwise: what holds keys and confidences as a rule.
    pub const fn is_secret(self) -> bool {
        match self {
            Self::EnvJson | Self::Prompt | Self::ContextJson | Self::SandboxConfigJson => true,
            Self::Command | Self::Stdin => false,
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The calls that a sealed field is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// The chain.
    pub chain_id: u64,
    /// The Tangle core.
    pub core: Address,
    /// The service.
    pub service: u64,
    /// Who submits the call.
    pub caller: Address,
    /// The job's id.
    pub job: u8,
}

/// What a sealed field was bound to that its place is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it
pub enum Bound {
    Chain,
    Core,
    Service,
    Caller,
    Job,
    Field,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chain => "chain",
            Self::Core => "core",
            Self::Service => "service",
            Self::Caller => "caller",
            Self::Job => "job",
            Self::Field => "field",
        })
    }
}

/// Why a field was not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Nobody, or too many, to seal it to.
    #[error("{0} recipients, a sealed field has 1 to {SEALED_RECIPIENTS_MAX}")]
    Recipients(usize),
    /// No key of X25519 that anything could be sealed to.
    #[error("{0} is no seal key")]
    NotAKey(B256),
    /// It would not fit into a job's inputs.
    #[error("sealed it is {0} bytes long, at most {JOB_INPUT_BYTES_MAX}")]
    TooLong(usize),
}

/// Why a sealed field was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Longer than a job's inputs.
    #[error("{0} bytes long, at most {JOB_INPUT_BYTES_MAX}")]
    TooLong(usize),
    /// Not of the form that version 1 has.
    #[error("malformed: {0}")]
    Malformed(&'static str),
    /// No key of this operator is among the recipients'.
    #[error("not sealed to a key of this operator")]
    NotForUs,
    /// Not what its sender sealed.
    #[error("it was changed after it was sealed")]
    Damaged,
    /// Written for another place.
    #[error("sealed for another {0}")]
    Elsewhere(Bound),
}

/// Whether a field is sealed, by a version that may be unknown here.
pub fn is_sealed(text: &str) -> bool {
    let version = text.strip_prefix("sealed:v").and_then(|rest| rest.split_once(':'));
    version.is_some_and(|(version, _)| !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether inputs hold something sealed: what is made of them is then not for a log.
pub fn is_in(inputs: &[u8]) -> bool {
    inputs.windows(PREFIX.len()).any(|window| window == PREFIX.as_bytes())
}

/// Seals `text` to each of the `recipients`, by the keys that their profiles publish.
///
/// # Errors
/// [`SealError`].
pub fn seal(
    text: &str,
    recipients: &[B256],
    (binding, field): (&Binding, Field),
    random: &mut impl CryptoRng,
) -> Result<String, SealError> {
    if recipients.is_empty() || recipients.len() > SEALED_RECIPIENTS_MAX {
        return Err(SealError::Recipients(recipients.len()));
    }
    let mut content_key = ContentKey::new([0; CONTENT_KEY_BYTES]);
    random.fill_bytes(content_key.as_mut_slice());
    let keys = recipients.iter().map(|recipient| key::enclose(&content_key, *recipient, random));
    let header = wire::header(&keys.collect::<Result<Vec<_>, _>>()?);
    let bound = [bound(binding, field).as_slice(), text.as_bytes()].concat();
    let payload = Payload { msg: &bound, aad: &additional(&header) };
    let body = ChaCha20Poly1305::new(content_key.as_slice().into()).encrypt(&Nonce::default(), payload);
    let body = body.map_err(|_| SealError::TooLong(text.len()))?;
    let sealed = format!("{PREFIX}{}", STANDARD.encode([header, body].concat()));
    if sealed.len() > JOB_INPUT_BYTES_MAX { Err(SealError::TooLong(sealed.len())) } else { Ok(sealed) }
}

/// The text of a sealed field that stands at `field` of a call as `binding` says. The first of the `keys` that fits opens it.
///
/// # Errors
/// [`OpenError`].
pub fn open(sealed: &str, keys: &[SealKey], (binding, field): (&Binding, Field)) -> Result<String, OpenError> {
    let bytes = decode(sealed)?;
    let envelope = Envelope::parse(&bytes)?;
    let content_key = envelope.content_key(keys)?;
    let payload = Payload { msg: envelope.body, aad: &additional(envelope.header) };
    let body = ChaCha20Poly1305::new(content_key.as_slice().into()).decrypt(&Nonce::default(), payload);
    let body = body.map_err(|_| OpenError::Damaged)?;
    let (found, text) = body.split_at_checked(BOUND_BYTES).ok_or(OpenError::Malformed("bound to nothing"))?;
    if let Some(other) = difference(found, &bound(binding, field)) {
        return Err(OpenError::Elsewhere(other));
    }
    String::from_utf8(text.to_vec()).map_err(|_| OpenError::Malformed("the text is not UTF-8"))
}

/// Checks what can be checked without opening: the form, and that one of the `keys` is among the recipients'.
///
/// # Errors
/// [`OpenError::TooLong`], [`OpenError::Malformed`], [`OpenError::NotForUs`].
pub fn check(sealed: &str, keys: &[SealKey]) -> Result<(), OpenError> {
    let bytes = decode(sealed)?;
    if Envelope::parse(&bytes)?.names(keys) { Ok(()) } else { Err(OpenError::NotForUs) }
}

fn decode(sealed: &str) -> Result<Vec<u8>, OpenError> {
    if sealed.len() > JOB_INPUT_BYTES_MAX {
        return Err(OpenError::TooLong(sealed.len()));
    }
    let encoded = sealed.strip_prefix(PREFIX).ok_or(OpenError::Malformed("it does not begin with sealed:v1:"))?;
    STANDARD.decode(encoded).map_err(|_| OpenError::Malformed("not base64"))
}

fn additional(header: &[u8]) -> Vec<u8> {
    [PREFIX.as_bytes(), header].concat()
}

fn bound(binding: &Binding, field: Field) -> [u8; BOUND_BYTES] {
    let Binding { chain_id, core, service, caller, job } = binding;
    let mut bytes = [0; BOUND_BYTES];
    bytes[..8].copy_from_slice(&chain_id.to_be_bytes());
    bytes[8..28].copy_from_slice(core.as_slice());
    bytes[28..36].copy_from_slice(&service.to_be_bytes());
    bytes[36..56].copy_from_slice(caller.as_slice());
    bytes[56] = *job;
    bytes[57] = field as u8;
    bytes
}

/// The first thing that differs.
fn difference(found: &[u8], expected: &[u8; BOUND_BYTES]) -> Option<Bound> {
    let parts = [
        (0..8, Bound::Chain),
        (8..28, Bound::Core),
        (28..36, Bound::Service),
        (36..56, Bound::Caller),
        (56..57, Bound::Job),
        (57..58, Bound::Field),
    ];
    parts.into_iter().find(|(part, _)| found.get(part.clone()) != expected.get(part.clone())).map(|(_, bound)| bound)
}
