//! Who asks: a signature over the very call that is read, valid for a few minutes.

use alloy::primitives::Address;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sandbox_protocol::CallKey;
use sandbox_protocol::http::{CALLER_SCHEME, CallerProof};
use sandbox_protocol::limits::SIGNATURE_LIFETIME_S_MAX;
use sandbox_protocol::receipt::{ReadCall, recover};

use super::ApiError;

/// The account that signed the request for `key`, at second `now`, in the domain of this chain and core.
pub(super) fn caller(
    headers: &HeaderMap,
    key: CallKey,
    now: u64,
    (chain_id, core): (u64, Address),
) -> Result<Address, ApiError> {
    let refuse = |reason: &str| ApiError::Unauthorized(reason.to_owned());
    let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let header = header.ok_or_else(|| refuse(&format!("an Authorization of scheme {CALLER_SCHEME} is needed")))?;
    let proof: CallerProof = header.parse().map_err(|error| ApiError::Unauthorized(format!("{error}")))?;
    if proof.expires < now {
        return Err(refuse("the signature has expired"));
    }
    if proof.expires > now + SIGNATURE_LIFETIME_S_MAX {
        return Err(ApiError::Unauthorized(format!("a signature lasts at most {SIGNATURE_LIFETIME_S_MAX} s")));
    }
    let document = ReadCall { service: key.service, call: key.call, expires: proof.expires };
    match recover(&document, chain_id, core, &proof.signature) {
        Some(signer) if signer == proof.address => Ok(signer),
        Some(_) | None => Err(refuse("the signature is not this address's for this call")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy::signers::SignerSync;
    use alloy::signers::local::PrivateKeySigner;
    use alloy::sol_types::SolStruct;
    use sandbox_protocol::receipt::domain;

    const NOW: u64 = 1_000_000;
    const KEY: CallKey = CallKey { service: 1, call: 2 };
    const DOMAIN: (u64, Address) = (31337, Address::repeat_byte(3));

    fn proof(signer: &PrivateKeySigner, key: CallKey, expires: u64) -> HeaderMap {
        let document = ReadCall { service: key.service, call: key.call, expires };
        let digest = document.eip712_signing_hash(&domain(DOMAIN.0, DOMAIN.1));
        let signature = signer.sign_hash_sync(&digest).unwrap();
        let proof = CallerProof { address: signer.address(), expires, signature };
        HeaderMap::from_iter([(AUTHORIZATION, proof.to_string().parse().unwrap())])
    }

    #[test]
    fn a_signer_is_recognised_until_its_signature_expires() {
        let signer = PrivateKeySigner::random();
        let check = |expires, now| caller(&proof(&signer, KEY, expires), KEY, now, DOMAIN).ok();
        assert_eq!(check(NOW + 300, NOW), Some(signer.address()));
        assert_eq!(check(NOW + 301, NOW), None, "longer than a signature may last");
        assert_eq!(check(NOW, NOW), Some(signer.address()));
        assert_eq!(check(NOW, NOW + 1), None, "expired");
    }

    #[test]
    fn a_signature_is_good_for_its_call_and_domain_only() {
        let signer = PrivateKeySigner::random();
        let headers = proof(&signer, KEY, NOW + 10);
        assert!(caller(&headers, CallKey { call: 3, ..KEY }, NOW, DOMAIN).is_err());
        assert!(caller(&headers, KEY, NOW, (1, DOMAIN.1)).is_err());
        assert!(caller(&headers, KEY, NOW, (DOMAIN.0, Address::ZERO)).is_err());
        assert!(caller(&HeaderMap::new(), KEY, NOW, DOMAIN).is_err());
        let garbage = HeaderMap::from_iter([(AUTHORIZATION, "EIP712 address=1".parse().unwrap())]);
        assert!(caller(&garbage, KEY, NOW, DOMAIN).is_err());
    }
}
