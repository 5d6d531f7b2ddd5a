//! Who asks: a signature over the very call that is read, valid for a few minutes.

use alloy::primitives::Address;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sandbox_protocol::CallKey;
use sandbox_protocol::http::{CALLER_SCHEME, CallerProof};
use sandbox_protocol::limits::SIGNATURE_LIFETIME_S_MAX;
use sandbox_protocol::receipt::{ReadCall, recover};

use super::ApiError;

/// Who is asked, as far as a proof must say it: a proof for one operator is void at every other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) operator: Address,
    pub(super) chain_id: u64,
    pub(super) core: Address,
}

/// The account that signed the request for `key`, at second `now`, to the one that is `asked`.
pub(super) fn caller(headers: &HeaderMap, key: CallKey, now: u64, asked: Asked) -> Result<Address, ApiError> {
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
    let (CallKey { service, call }, Asked { operator, chain_id, core }) = (key, asked);
    let document = ReadCall { operator, service, call, expires: proof.expires };
    match recover(&document, chain_id, core, &proof.signature) {
        Some(signer) if signer == proof.address => Ok(signer),
        Some(_) | None => Err(refuse("the signature is not this address's for this call of this operator")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use alloy::signers::SignerSync;
    use alloy::signers::local::PrivateKeySigner;
    use alloy::sol_types::SolStruct;
    use sandbox_protocol::receipt::domain;

    const NOW: u64 = 1_000_000;
    const KEY: CallKey = CallKey { service: 1, call: 2 };
    const ASKED: Asked = Asked { operator: Address::repeat_byte(2), chain_id: 31_337, core: Address::repeat_byte(3) };

    /// What `signer` shows to the one that is `asked`.
    pub(in crate::api) fn proof(signer: &PrivateKeySigner, key: CallKey, expires: u64, asked: Asked) -> CallerProof {
        let (CallKey { service, call }, Asked { operator, chain_id, core }) = (key, asked);
        let document = ReadCall { operator, service, call, expires };
        let signature = signer.sign_hash_sync(&document.eip712_signing_hash(&domain(chain_id, core))).unwrap();
        CallerProof { address: signer.address(), expires, signature }
    }

    fn headers(signer: &PrivateKeySigner, expires: u64) -> HeaderMap {
        let proof = proof(signer, KEY, expires, ASKED);
        HeaderMap::from_iter([(AUTHORIZATION, proof.to_string().parse().unwrap())])
    }

    #[test]
    fn a_signer_is_recognised_until_its_signature_expires() {
        let signer = PrivateKeySigner::random();
        let check = |expires, now| caller(&headers(&signer, expires), KEY, now, ASKED).ok();
        assert_eq!(check(NOW + 300, NOW), Some(signer.address()));
        assert_eq!(check(NOW + 301, NOW), None, "longer than a signature may last");
        assert_eq!(check(NOW, NOW), Some(signer.address()));
        assert_eq!(check(NOW, NOW + 1), None, "expired");
    }

    #[test]
    fn a_signature_is_good_for_its_call_operator_and_domain_only() {
        let signer = PrivateKeySigner::random();
        let headers = headers(&signer, NOW + 10);
        assert!(caller(&headers, CallKey { call: 3, ..KEY }, NOW, ASKED).is_err());
        assert!(caller(&headers, KEY, NOW, Asked { operator: Address::ZERO, ..ASKED }).is_err());
        assert!(caller(&headers, KEY, NOW, Asked { chain_id: 1, ..ASKED }).is_err());
        assert!(caller(&headers, KEY, NOW, Asked { core: Address::ZERO, ..ASKED }).is_err());
        assert!(caller(&HeaderMap::new(), KEY, NOW, ASKED).is_err());
        let garbage = HeaderMap::from_iter([(AUTHORIZATION, "EIP712 address=1".parse().unwrap())]);
        assert!(caller(&garbage, KEY, NOW, ASKED).is_err());
    }
}
