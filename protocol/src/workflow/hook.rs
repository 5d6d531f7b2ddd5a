//! Webhooks, signed and verified by one code: `v1=` and the hex HMAC-SHA256 of `<timestamp>.<body>` under the workflow's
//! secret. Time is an argument; that a delivery fires once is for who remembers deliveries.

use alloy_primitives::hex;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use crate::limits::{HOOK_BODY_BYTES_MAX, HOOK_WINDOW_S_MAX};

/// What a signature begins with; another way of signing has another.
const VERSION: &str = "v1=";

/// The two headers of a webhook as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HookHeaders<'a> {
    /// [`HOOK_TIMESTAMP`](super::HOOK_TIMESTAMP).
    pub timestamp: Option<&'a str>,
    /// [`HOOK_SIGNATURE`](super::HOOK_SIGNATURE).
    pub signature: Option<&'a str>,
}

/// Why a webhook fires nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HookFault {
    /// Nobody sends so much.
    #[error("the body has {given} bytes, at most {HOOK_BODY_BYTES_MAX} are taken")]
    BodyTooLong {
        /// Its length.
        given: usize,
    },
    /// The header that says when it was sent is missing.
    #[error("the header {} is missing", super::HOOK_TIMESTAMP)]
    NoTimestamp,
    /// The same header is no number of seconds.
    #[error("the header {} is no number of seconds since 1970", super::HOOK_TIMESTAMP)]
    BadTimestamp,
    /// The header that proves it is missing.
    #[error("the header {} is missing", super::HOOK_SIGNATURE)]
    NoSignature,
    /// The same header is of another form.
    #[error("the header {} is not `v1=` and 64 hex digits", super::HOOK_SIGNATURE)]
    BadSignature,
    /// It was signed with another secret, at another second or over another body.
    #[error("the signature is not the workflow's over this timestamp and body")]
    Forged,
    /// It was sent too long ago, or by a clock that is ahead.
    #[error("the timestamp is {off_s} s from the operator's clock, at most {HOOK_WINDOW_S_MAX} s are allowed")]
    OutOfWindow {
        /// How far it is.
        off_s: u64,
    },
}

/// The signature of a webhook with this body that is sent at this second.
pub fn sign_hook(secret: &str, timestamp_s: u64, body: &[u8]) -> String {
    let seal = keyed(secret, timestamp_s, body).finalize().into_bytes();
    format!("{VERSION}{}", hex::encode(seal))
}

/// Whether a webhook was signed with `secret` within the [window](HOOK_WINDOW_S_MAX) around `now_s`. How long that takes
/// tells nothing of the right signature.
///
/// # Errors
/// [`HookFault`]; time is looked at last, so that only who has the secret learns of the operator's clock.
pub fn verify_hook(secret: &str, headers: HookHeaders<'_>, body: &[u8], now_s: u64) -> Result<(), HookFault> {
    if body.len() > HOOK_BODY_BYTES_MAX {
        return Err(HookFault::BodyTooLong { given: body.len() });
    }
    let timestamp_s = seconds(headers.timestamp.ok_or(HookFault::NoTimestamp)?)?;
    let seal = seal_in(headers.signature.ok_or(HookFault::NoSignature)?)?;
    keyed(secret, timestamp_s, body).verify_slice(&seal).map_err(|_| HookFault::Forged)?;
    let off_s = timestamp_s.abs_diff(now_s);
    if off_s > HOOK_WINDOW_S_MAX {
        return Err(HookFault::OutOfWindow { off_s });
    }
    Ok(())
}

/// Digits alone: a number that could be written in two ways would be two deliveries.
fn seconds(text: &str) -> Result<u64, HookFault> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_one_form = text == "0" || !text.starts_with('0');
    if !is_plain || !has_one_form {
        return Err(HookFault::BadTimestamp);
    }
    text.parse().map_err(|_| HookFault::BadTimestamp)
}

fn seal_in(text: &str) -> Result<[u8; 32], HookFault> {
    // One form: what was overheard and written in another would be another delivery.
    let is_plain = |digits: &&str| digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let digits = text.strip_prefix(VERSION).filter(is_plain);
    hex::decode_to_array(digits.ok_or(HookFault::BadSignature)?).map_err(|_| HookFault::BadSignature)
}

fn keyed(secret: &str, timestamp_s: u64, body: &[u8]) -> Hmac<Sha256> {
    // HMAC takes a key of any length; that there might be none is its trait's word alone.
    let mut mac = Hmac::new_from_slice(secret.as_bytes()).unwrap_or_else(|_| Hmac::new(&Default::default()));
    mac.update(format!("{timestamp_s}.").as_bytes());
    mac.update(body);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_5ZWTe0Kx";
    const NOW_S: u64 = 1_760_000_000;
    const BODY: &[u8] = br#"{"ref":"main"}"#;

    fn checked(timestamp: &str, signature: &str, body: &[u8], now_s: u64) -> Result<(), HookFault> {
        verify_hook(SECRET, HookHeaders { timestamp: Some(timestamp), signature: Some(signature) }, body, now_s)
    }

    fn sent_at(timestamp_s: u64) -> Result<(), HookFault> {
        checked(&timestamp_s.to_string(), &sign_hook(SECRET, timestamp_s, BODY), BODY, NOW_S)
    }

    #[test]
    fn a_signature_is_what_openssl_makes_of_the_same() {
        // printf '%s' '1760000000.{"ref":"main"}' | openssl dgst -sha256 -hmac 'whsec_5ZWTe0Kx'
        let expected = "v1=c80c83eaac53766231f89c21741341fb38c4a0e8a1409652e17da8f5f82a9a41";
        assert_eq!(sign_hook(SECRET, NOW_S, BODY), expected);
    }

    #[test]
    fn what_was_signed_passes_on_both_sides_of_the_clock_up_to_the_window() {
        assert_eq!(sent_at(NOW_S), Ok(()));
        assert_eq!(sent_at(NOW_S - HOOK_WINDOW_S_MAX), Ok(()));
        assert_eq!(sent_at(NOW_S + HOOK_WINDOW_S_MAX), Ok(()));
        let off_s = HOOK_WINDOW_S_MAX + 1;
        assert_eq!(sent_at(NOW_S - off_s), Err(HookFault::OutOfWindow { off_s }));
        assert_eq!(sent_at(NOW_S + off_s), Err(HookFault::OutOfWindow { off_s }));
    }

    #[test]
    fn another_secret_second_or_body_is_a_forgery_however_late_it_comes() {
        let (now, good) = (NOW_S.to_string(), sign_hook(SECRET, NOW_S, BODY));
        assert_eq!(checked(&now, &sign_hook("other", NOW_S, BODY), BODY, NOW_S), Err(HookFault::Forged));
        assert_eq!(checked(&now, &good, b"", NOW_S), Err(HookFault::Forged));
        assert_eq!(checked(&(NOW_S + 1).to_string(), &good, BODY, NOW_S), Err(HookFault::Forged));
        assert_eq!(checked("0", &good, BODY, NOW_S), Err(HookFault::Forged), "the clock is told to nobody");
    }

    #[test]
    fn the_longest_body_passes_and_a_longer_one_does_not() {
        let longest = vec![b'a'; HOOK_BODY_BYTES_MAX];
        let signed = |body: &[u8]| checked(&NOW_S.to_string(), &sign_hook(SECRET, NOW_S, body), body, NOW_S);
        assert_eq!(signed(&longest), Ok(()));
        let longer = [longest.as_slice(), b"a"].concat();
        assert_eq!(signed(&longer), Err(HookFault::BodyTooLong { given: longer.len() }));
    }

    #[test]
    fn headers_have_one_form() {
        let (now, good) = (NOW_S.to_string(), sign_hook(SECRET, NOW_S, BODY));
        for timestamp in ["", "+1", "-1", "007", "1.5", " 1", "soon", "99999999999999999999", "100000000000000000000"] {
            assert_eq!(checked(timestamp, &good, BODY, NOW_S), Err(HookFault::BadTimestamp), "{timestamp:?}");
        }
        let bare = good.trim_start_matches("v1=");
        for signature in ["", "v1=", bare, &good[..good.len() - 1], &format!("{good}00"), &format!("v1=0x{bare}")] {
            assert_eq!(checked(&now, signature, BODY, NOW_S), Err(HookFault::BadSignature), "{signature:?}");
        }
        let shouted = format!("v1={}", bare.to_uppercase());
        assert_eq!(checked(&now, &shouted, BODY, NOW_S), Err(HookFault::BadSignature), "the same in another form");
        let missing =
            |timestamp, signature| verify_hook(SECRET, HookHeaders { timestamp, signature }, BODY, NOW_S).unwrap_err();
        assert_eq!(missing(None, Some(&good)), HookFault::NoTimestamp);
        assert_eq!(missing(Some(&now), None), HookFault::NoSignature);
    }
}
