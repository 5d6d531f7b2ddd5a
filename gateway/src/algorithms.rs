//! What is spoken: modern algorithms only, and strict key exchange.

use std::borrow::Cow;

use russh::keys::Algorithm;
use russh::{Preferred, cipher, compression, kex, mac};

const KEX: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::EXTENSION_SUPPORT_AS_SERVER,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
];
/// The last, with a code of the encrypted bytes, is for clients that have none of the others: those of Paramiko before
/// its version 3.5.
const CIPHERS: &[cipher::Name] =
    &[cipher::CHACHA20_POLY1305, cipher::AES_256_GCM, cipher::AES_128_GCM, cipher::AES_256_CTR];
/// Of encrypted bytes only, for the cipher that has no integrity of its own.
const MACS: &[mac::Name] = &[mac::HMAC_SHA256_ETM, mac::HMAC_SHA512_ETM];

/// What is offered to clients, whose order decides.
pub(crate) const PREFERRED: Preferred = Preferred {
    kex: Cow::Borrowed(KEX),
    key: Cow::Borrowed(&[Algorithm::Ed25519]),
    host_key_certificates: Cow::Borrowed(&[]),
    cipher: Cow::Borrowed(CIPHERS),
    mac: Cow::Borrowed(MACS),
    // Bytes that come compressed may be many when they are not.
    compression: Cow::Borrowed(&[compression::NONE]),
};
