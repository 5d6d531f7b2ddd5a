//! Nonces that need no memory until they are used: each carries its end and a seal that only this process can make.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use alloy::primitives::keccak256;

use crate::limits::{NONCE_LIFE_S, NONCES_USED_MAX};

const END_BYTES: usize = 8;
const SALT_BYTES: usize = 8;
const SEAL_BYTES: usize = 16;

/// Gives nonces out, and takes each back once.
pub(super) struct Nonces {
    /// Random, and gone with the process: nonces do not outlive it.
    secret: [u8; 32],
    /// Those that were used and would still be good, with their ends.
    used: Mutex<HashMap<String, u64>>,
}

/// Why a nonce is not taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It was not given out here, is void, or was used.
    Void,
    /// So many were used lately that no more can be remembered.
    TooMany,
}

impl Nonces {
    /// None is used.
    pub(super) fn new() -> Self {
        Self { secret: rand::random(), used: Mutex::default() }
    }

    /// A new nonce, and the last second in which it is good.
    pub(super) fn give(&self, now: u64) -> (String, u64) {
        let end = now + NONCE_LIFE_S;
        let open: Vec<u8> = [end.to_be_bytes(), rand::random::<[u8; SALT_BYTES]>()].concat();
        (hex::encode([open.as_slice(), &self.seal(&open)].concat()), end)
    }

    /// Whether a nonce is one of ours and good, used or not.
    pub(super) fn is_good(&self, nonce: &str, now: u64) -> bool {
        self.end(nonce).is_some_and(|end| now <= end)
    }

    /// Uses a nonce up.
    pub(super) fn take(&self, nonce: &str, now: u64) -> Result<(), Refused> {
        let end = self.end(nonce).filter(|end| now <= *end).ok_or(Refused::Void)?;
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.contains_key(nonce) {
            return Err(Refused::Void);
        }
        if used.len() >= NONCES_USED_MAX {
            used.retain(|_, end| now <= *end);
        }
        if used.len() >= NONCES_USED_MAX {
            return Err(Refused::TooMany);
        }
        used.insert(nonce.to_owned(), end);
        Ok(())
    }

    /// The end that a nonce carries, if its seal is ours. One text only stands for each nonce.
    fn end(&self, nonce: &str) -> Option<u64> {
        let bytes = hex::decode(nonce).ok().filter(|bytes| bytes.len() == END_BYTES + SALT_BYTES + SEAL_BYTES)?;
        let (open, seal) = bytes.split_at(END_BYTES + SALT_BYTES);
        let is_ours = self.seal(open) == seal && nonce == hex::encode(&bytes);
        is_ours.then(|| open.first_chunk().map(|end| u64::from_be_bytes(*end))).flatten()
    }

    fn seal(&self, open: &[u8]) -> [u8; SEAL_BYTES] {
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(&keccak256([self.secret.as_slice(), open].concat())[..SEAL_BYTES]);
        seal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    #[test]
    fn a_nonce_is_good_once_and_for_a_while() {
        let nonces = Nonces::new();
        let (nonce, end) = nonces.give(NOW);
        assert!(nonce.len() >= 8 && nonce.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{nonce}");
        assert_eq!(end, NOW + NONCE_LIFE_S);
        assert!(nonces.is_good(&nonce, end) && !nonces.is_good(&nonce, end + 1));
        assert_eq!(nonces.take(&nonce, end), Ok(()));
        assert_eq!(nonces.take(&nonce, end), Err(Refused::Void));
        let (late, end) = nonces.give(NOW);
        assert_eq!(nonces.take(&late, end + 1), Err(Refused::Void));
    }

    #[test]
    fn what_was_not_given_out_here_is_void() {
        let nonces = Nonces::new();
        let (nonce, _) = nonces.give(NOW);
        let (elsewhere, _) = Nonces::new().give(NOW);
        let prolonged = format!("f{}", &nonce[1..]);
        for forged in [elsewhere, prolonged, nonce.to_uppercase(), nonce[2..].to_owned(), "12345678".to_owned()] {
            assert!(!nonces.is_good(&forged, NOW), "{forged}");
        }
    }

    #[test]
    fn no_more_used_ones_are_remembered_than_may_until_they_are_void() {
        let nonces = Nonces::new();
        for _ in 0..NONCES_USED_MAX {
            nonces.take(&nonces.give(NOW).0, NOW).unwrap();
        }
        assert_eq!(nonces.take(&nonces.give(NOW).0, NOW), Err(Refused::TooMany));
        let later = NOW + NONCE_LIFE_S + 1;
        assert_eq!(nonces.take(&nonces.give(later).0, later), Ok(()));
    }
}
