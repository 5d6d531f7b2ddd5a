//! Keys by which customers come over SSH.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::limits::SSH_KEY_LINE_BYTES_MAX;

/// The kinds of keys that are taken, and the bytes that one of them has on the wire.
const KINDS: [(&str, std::ops::RangeInclusive<usize>); 6] = [
    ("ssh-ed25519", 51..=51),
    ("ecdsa-sha2-nistp256", 104..=104),
    ("ecdsa-sha2-nistp384", 136..=136),
    ("ecdsa-sha2-nistp521", 172..=172),
    ("sk-ssh-ed25519@openssh.com", 70..=512),
    ("sk-ecdsa-sha2-nistp256@openssh.com", 123..=512),
];

/// A public key, as a line of `authorized_keys` has it. Written without its comment.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey {
    wire: Vec<u8>,
}

/// Why a text is no key that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Longer than [`SSH_KEY_LINE_BYTES_MAX`], of several lines, or with no second word.
    #[error("an SSH key is one line, of {SSH_KEY_LINE_BYTES_MAX} bytes at most: its kind, its base64 and a comment")]
    NoLine,
    /// Of another kind.
    #[error("the SSH key is of a kind that is not taken: use ed25519, ECDSA, or one of these on a security key")]
    Kind,
    /// The second word is no key of the first's kind.
    #[error("the SSH key's second word is no key of its kind")]
    Malformed,
}

impl PublicKey {
    /// The key of these bytes, as RFC 4253 section 6.6 has them.
    ///
    /// # Errors
    /// They are none that is taken.
    pub fn from_wire(wire: &[u8]) -> Result<Self, KeyError> {
        let kind = kind_of(wire).ok_or(KeyError::Malformed)?;
        let (_, lengths) = KINDS.iter().find(|(name, _)| name.as_bytes() == kind).ok_or(KeyError::Kind)?;
        if lengths.contains(&wire.len()) { Ok(Self { wire: wire.to_vec() }) } else { Err(KeyError::Malformed) }
    }

    /// Its bytes, as RFC 4253 section 6.6 has them.
    pub fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// Its kind, `ssh-ed25519` say.
    pub fn kind(&self) -> &str {
        kind_of(&self.wire).and_then(|kind| std::str::from_utf8(kind).ok()).unwrap_or_default()
    }

    /// By what people tell it from others: `SHA256:` and 43 characters.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(&self.wire)))
    }
}

/// The first string of a key.
fn kind_of(wire: &[u8]) -> Option<&[u8]> {
    let (length, rest) = wire.split_first_chunk()?;
    rest.get(..u32::from_be_bytes(*length) as usize)
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(line: &str) -> Result<Self, KeyError> {
        let line = line.trim();
        if line.len() > SSH_KEY_LINE_BYTES_MAX || line.contains(['\n', '\r', '\0']) {
            return Err(KeyError::NoLine);
        }
        let mut words = line.split_ascii_whitespace();
        let (Some(kind), Some(encoded)) = (words.next(), words.next()) else { return Err(KeyError::NoLine) };
        if !KINDS.iter().any(|(name, _)| *name == kind) {
            return Err(KeyError::Kind);
        }
        let key = Self::from_wire(&STANDARD.decode(encoded).map_err(|_| KeyError::Malformed)?)?;
        if key.kind() == kind { Ok(key) } else { Err(KeyError::Malformed) }
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), STANDARD.encode(&self.wire))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `ssh-keygen` wrote them, with the fingerprint that it told.
    const ED25519: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOmARhRNpL9AB6pLjv23vuQ7RK+RkhrTjHLMC0muvW93";
    const ED25519_FINGERPRINT: &str = "SHA256:adFd0yC+mLvmJ2lvMBO71tAe/TVqfrQs2u0Xk9VtM3E";
    const P256: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBP2NSB3z87rBo7vr2l4ghoDQ9mevTbua1UJ7kf7zAyGVOO3WcCcmSHfNFgLuvA3j49Z2/bulJ4jf+QZVYhksntY=";
    const P384: &str = "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQAAABhBGOUNkVyif3t35AdCJ5mbzkzJ5wVF0ld91ie3bCLfJvZLV1dlIdx2nK+eJPOBeFKMrhPLfyxnW6WjQgCpzE1qEet4/1bXvmVmntVTuH5KB/JrdjH4e5BDuLuNveZPTZuXA==";
    const P521: &str = "ecdsa-sha2-nistp521 AAAAE2VjZHNhLXNoYTItbmlzdHA1MjEAAAAIbmlzdHA1MjEAAACFBACsNCX/y0sVn4ljrze5NdxhO3TUlwKeeJjEnsWDxjgmN7VsdwV4d0Hda7Jv5SorBD0HrWULfCjByCYlysWNGxAdfQH7Z1VvPnh6yOQCV8Qq8tD4sb63Jb0r6a/3Iq1a2ZL2RRyQz29wkT7RN133My3VbNJ8BG9XRL+7go15IESggbBdjA==";
    const RSA: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDMLpU27MMVsKH+ikcNjijDX3gRKN2cHD8TVgndBvHTNqNjNFNp7gdk2zdZUZM5cxDRIEEeW3TbRqQPlO+BiiL5l2wjrD8/6LtwPO8XI0MDzI/Hp1v237TjnIABkRaf68wiv33QFmkL9YzlJ8nirZnf75AUbqYq723lFGfmwl5dpkW74TIWyWvmhuzwYeeUwvoZTtHye4BNRosb+wSFaxAO8S9XM0yw5sPIqXVnq2YwSuDMPQb6RMfk+WNQhMwTRYUtZskogu7jMGDuO+YIDPB62hXz8gMIlfFO8vFnuFM/Qjk7WfjxUXWPicYWn9S2fCnTJCa8GrqisMRvxL5clWSl";

    #[test]
    fn keys_are_read_and_written_without_their_comment() {
        for line in [ED25519, P256, P384, P521] {
            let key: PublicKey = format!("  {line} somebody@somewhere else\n").parse().unwrap();
            assert_eq!(key.to_string(), line);
            assert_eq!(PublicKey::from_wire(key.wire()).unwrap(), key);
            let json = serde_json::to_string(&key).unwrap();
            assert_eq!(serde_json::from_str::<PublicKey>(&json).unwrap(), key);
        }
        assert_eq!(ED25519.parse::<PublicKey>().unwrap().fingerprint(), ED25519_FINGERPRINT);
    }

    #[test]
    fn what_is_no_key_that_is_taken_is_refused_with_the_reason() {
        let encoded = |line: &'static str| line.split_once(' ').unwrap().1;
        let long = format!("{ED25519} {}", "c".repeat(SSH_KEY_LINE_BYTES_MAX));
        for (line, why) in [
            ("", KeyError::NoLine),
            ("ssh-ed25519", KeyError::NoLine),
            (&long, KeyError::NoLine),
            (&format!("{ED25519}\n{P256}"), KeyError::NoLine),
            (RSA, KeyError::Kind),
            (&format!("command=\"id\" {ED25519}"), KeyError::Kind),
            ("ssh-ed25519 AAAA", KeyError::Malformed),
            ("ssh-ed25519 !", KeyError::Malformed),
            (&format!("ssh-ed25519 {}", encoded(P256)), KeyError::Malformed),
            (&format!("ssh-ed25519 {}", encoded(RSA)), KeyError::Kind),
        ] {
            assert_eq!(line.parse::<PublicKey>(), Err(why), "{line}");
        }
        let most = format!("{ED25519} {}", "c".repeat(SSH_KEY_LINE_BYTES_MAX - ED25519.len() - 1));
        most.parse::<PublicKey>().unwrap();
    }
}
