//! What is signed, how, and what a signature proves: the rules of the core, checked before a transaction is made.

use std::borrow::Cow;

use alloy::primitives::{Address, B256, Bytes, Signature, U256};
use alloy::signers::SignerSync;
use alloy::sol_types::{Eip712Domain, SolStruct as _};
use sandbox_protocol::http::QuoteBody;

use super::{JobQuoteDetails, SignedJobQuote};
use crate::limits::{PAYMENT_UNITS_MIN, QUOTE_AGE_S_MAX};

/// Recovery bytes that the core takes.
const RECOVERY_BYTES: [u8; 2] = [27, 28];
const SIGNATURE_BYTES: usize = 65;

/// What a quote must say to be of use to one customer for one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// Chain id of the domain.
    pub chain_id: u64,
    /// The Tangle core, verifying contract of the domain.
    pub core: Address,
    /// Who will submit the job.
    pub requester: Address,
    /// The service.
    pub service: u64,
    /// Job id.
    pub job: u8,
    /// keccak256 of the job's inputs.
    pub inputs_hash: B256,
    /// The service's demand for confidential hardware, as the core counts it.
    pub confidentiality: u8,
}

/// Why a quote cannot be redeemed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuoteError {
    /// The signature is none that the core takes.
    #[error("the quote of operator {0} carries no valid signature")]
    Signature(Address),
    /// The signature is somebody else's, or of other words.
    #[error("the quote names operator {named}, but {found} signed it")]
    Signer {
        /// Whose signature it is.
        found: Address,
        /// Whom the quote names.
        named: Address,
    },
    /// It is for somebody else.
    #[error("the quote is for {found}, not for {expected}")]
    Requester {
        /// Who would submit the job.
        expected: Address,
        /// Whom it is for.
        found: Address,
    },
    /// It is for another service.
    #[error("the quote is for service {found}, not for {expected}")]
    Service {
        /// The service.
        expected: u64,
        /// What it is for.
        found: u64,
    },
    /// It is for another job.
    #[error("the quote is for job {found}, not for {expected}")]
    Job {
        /// The job.
        expected: u8,
        /// What it is for.
        found: u8,
    },
    /// It is for other inputs.
    #[error("the quote is for other inputs")]
    Inputs,
    /// It is for services with another demand for confidential hardware.
    #[error("the quote is for confidentiality {found}, the service's is {expected}")]
    Confidentiality {
        /// The service's.
        expected: u8,
        /// What it is for.
        found: u8,
    },
    /// It was signed too long ago.
    #[error("the quote is {age_s} s old, the core takes at most {QUOTE_AGE_S_MAX} s")]
    TooOld {
        /// Its age.
        age_s: u64,
    },
    /// Its time is over.
    #[error("the quote was good until unix time {expiry}, it is {now}")]
    Expired {
        /// The last second.
        expiry: u64,
        /// The present second.
        now: u64,
    },
    /// Its price is one that the core cannot split.
    #[error("the quote's price of {0} is too small, it must be 0 or at least {PAYMENT_UNITS_MIN}")]
    TooSmall(U256),
}

/// The EIP-712 domain of quotes.
pub const fn domain(chain_id: u64, core: Address) -> Eip712Domain {
    Eip712Domain {
        name: Some(Cow::Borrowed("TangleQuote")),
        version: Some(Cow::Borrowed("1")),
        chain_id: Some(U256::from_limbs([chain_id, 0, 0, 0])),
        verifying_contract: Some(core),
        salt: None,
    }
}

/// What is signed: also the name under which the core remembers that a quote is used.
pub fn digest(details: &JobQuoteDetails, chain_id: u64, core: Address) -> B256 {
    details.eip712_signing_hash(&domain(chain_id, core))
}

/// The quote of the operator whose key `signer` is.
///
/// # Errors
/// The signer's own.
pub fn signed(
    details: JobQuoteDetails,
    signer: &(impl SignerSync + alloy::signers::Signer),
    (chain_id, core): (u64, Address),
) -> Result<SignedJobQuote, alloy::signers::Error> {
    let signature = signer.sign_hash_sync(&digest(&details, chain_id, core))?;
    Ok(SignedJobQuote { details, signature: signature.as_bytes().into(), operator: signer.address() })
}

/// Checks that the core would take the quote at second `now`, as far as that can be told from the quote.
///
/// Not told from it: whether it is used already, whether the operator serves in the service, whether it has room.
///
/// # Errors
/// [`QuoteError`] with the first thing that does not hold.
pub fn verify(quote: &SignedJobQuote, expected: &Expectation, now: u64) -> Result<(), QuoteError> {
    is_for(&quote.details, expected)?;
    is_fresh(&quote.details, now)?;
    if !quote.details.price.is_zero() && quote.details.price < U256::from(PAYMENT_UNITS_MIN) {
        return Err(QuoteError::TooSmall(quote.details.price));
    }
    let named = quote.operator;
    let signature = core_signature(&quote.signature).ok_or(QuoteError::Signature(named))?;
    let digest = digest(&quote.details, expected.chain_id, expected.core);
    let found = signature.recover_address_from_prehash(&digest).map_err(|_| QuoteError::Signature(named))?;
    if found == named { Ok(()) } else { Err(QuoteError::Signer { found, named }) }
}

fn is_for(details: &JobQuoteDetails, expected: &Expectation) -> Result<(), QuoteError> {
    if details.requester != expected.requester {
        return Err(QuoteError::Requester { expected: expected.requester, found: details.requester });
    }
    if details.serviceId != expected.service {
        return Err(QuoteError::Service { expected: expected.service, found: details.serviceId });
    }
    if details.jobIndex != expected.job {
        return Err(QuoteError::Job { expected: expected.job, found: details.jobIndex });
    }
    if details.inputsHash != expected.inputs_hash {
        return Err(QuoteError::Inputs);
    }
    if details.confidentiality != expected.confidentiality {
        let (expected, found) = (expected.confidentiality, details.confidentiality);
        return Err(QuoteError::Confidentiality { expected, found });
    }
    Ok(())
}

/// A timestamp ahead of `now` is no fault to the core: clocks differ.
const fn is_fresh(details: &JobQuoteDetails, now: u64) -> Result<(), QuoteError> {
    if now > details.expiry {
        return Err(QuoteError::Expired { expiry: details.expiry, now });
    }
    let age_s = now.saturating_sub(details.timestamp);
    if age_s > QUOTE_AGE_S_MAX { Err(QuoteError::TooOld { age_s }) } else { Ok(()) }
}

/// A signature as the core's recovery takes it: 65 bytes, the smaller of the two s, v of 27 or 28.
fn core_signature(bytes: &[u8]) -> Option<Signature> {
    let is_form = bytes.len() == SIGNATURE_BYTES && RECOVERY_BYTES.contains(&bytes[SIGNATURE_BYTES - 1]);
    let signature = is_form.then(|| Signature::from_raw(bytes).ok()).flatten()?;
    signature.normalize_s().is_none().then_some(signature)
}

/// The quote as it travels over HTTP, with its domain and the asset that its price is in.
pub fn body(quote: &SignedJobQuote, (chain_id, core): (u64, Address), asset: Address) -> QuoteBody {
    let details = &quote.details;
    QuoteBody {
        chain_id,
        core,
        operator: quote.operator,
        asset,
        requester: details.requester,
        service: details.serviceId,
        job: details.jobIndex,
        price: details.price,
        timestamp: details.timestamp,
        expiry: details.expiry,
        confidentiality: details.confidentiality,
        inputs_hash: details.inputsHash,
        signature: quote.signature.clone(),
    }
}

/// The quote that came over HTTP. Nothing in it is checked.
pub fn of_body(body: &QuoteBody) -> SignedJobQuote {
    let details = JobQuoteDetails {
        requester: body.requester,
        serviceId: body.service,
        jobIndex: body.job,
        price: body.price,
        timestamp: body.timestamp,
        expiry: body.expiry,
        confidentiality: body.confidentiality,
        inputsHash: body.inputs_hash,
    };
    SignedJobQuote { details, signature: Bytes::clone(&body.signature), operator: body.operator }
}

#[cfg(test)]
mod tests {
    use alloy::primitives::{address, b256, hex, keccak256};
    use alloy::signers::local::PrivateKeySigner;
    use alloy::sol_types::SolValue as _;

    use super::*;
    use crate::devchain;

    const CORE: Address = devchain::CORE;
    const CHAIN_ID: u64 = devchain::CHAIN_ID;
    const NOW: u64 = 1_786_705_200;
    const LIFE_S: u64 = 300;

    fn operator() -> PrivateKeySigner {
        devchain::key(1)
    }

    fn details() -> JobQuoteDetails {
        JobQuoteDetails {
            requester: devchain::key(5).address(),
            serviceId: 7,
            jobIndex: 10,
            price: U256::from(5_000_000_000_000_000_u64),
            timestamp: NOW,
            expiry: NOW + LIFE_S,
            confidentiality: 0,
            inputsHash: keccak256("inputs"),
        }
    }

    fn expected() -> Expectation {
        Expectation {
            chain_id: CHAIN_ID,
            core: CORE,
            requester: devchain::key(5).address(),
            service: 7,
            job: 10,
            inputs_hash: keccak256("inputs"),
            confidentiality: 0,
        }
    }

    fn quote(change: impl FnOnce(&mut JobQuoteDetails)) -> SignedJobQuote {
        let mut details = details();
        change(&mut details);
        signed(details, &operator(), (CHAIN_ID, CORE)).unwrap()
    }

    fn check(change: impl FnOnce(&mut JobQuoteDetails), now: u64) -> Result<(), QuoteError> {
        verify(&quote(change), &expected(), now)
    }

    #[test]
    fn the_words_that_are_signed_are_those_of_the_core_in_its_order() {
        let published = "JobQuoteDetails(address requester,uint64 serviceId,uint8 jobIndex,uint256 price,uint64 \
                         timestamp,uint64 expiry,uint8 confidentiality,bytes32 inputsHash)";
        assert_eq!(JobQuoteDetails::eip712_encode_type(), published);
    }

    /// The digest made by hand, as the core's own library makes it; the one that `cast keccak` makes of `cast abi-encode`; and
    /// the signature that `cast wallet sign --data` gives for the document as JSON.
    #[test]
    fn the_digest_is_the_one_that_others_compute() {
        let details = details();
        let words = (
            keccak256(JobQuoteDetails::eip712_encode_type().as_bytes()),
            (details.requester, U256::from(details.serviceId), U256::from(details.jobIndex), details.price),
            (U256::from(details.timestamp), U256::from(details.expiry), U256::ZERO, details.inputsHash),
        );
        let of_domain = (
            keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
            keccak256("TangleQuote"),
            keccak256("1"),
            U256::from(CHAIN_ID),
            CORE,
        );
        let (of_domain, of_words) = (keccak256(of_domain.abi_encode()), keccak256(words.abi_encode()));
        let by_hand = keccak256([hex!("1901").as_slice(), of_domain.as_slice(), of_words.as_slice()].concat());
        assert_eq!(digest(&details, CHAIN_ID, CORE), by_hand);
        assert_eq!(digest(&details, CHAIN_ID, CORE), PINNED_DIGEST);
        assert_eq!(quote(|_| {}).signature.to_vec(), PINNED_SIGNATURE);
        assert_eq!(quote(|_| {}).operator, address!("0x70997970C51812dc3A010C7d01b50e0d17dc79C8"));
    }

    const PINNED_DIGEST: B256 = b256!("0x8d8c68e410c295491fa7488c964da1918831ca709c653a6ce40e6f35991287ce");
    const PINNED_SIGNATURE: [u8; 65] = hex!(
        "6140d6488a270c433271a88c2a2e25773956b72d17fd7005dca2db217088e99d"
        "19a1f27a098f9ef88577cb858ff16de77854e652c074878999a7ad154b30bcf61b"
    );

    #[test]
    fn a_quote_is_good_for_its_customer_service_job_and_inputs_only() {
        assert_eq!(check(|_| {}, NOW), Ok(()));
        let other = address!("0x00000000000000000000000000000000000000aa");
        let requester = check(|quote| quote.requester = other, NOW);
        assert_eq!(requester, Err(QuoteError::Requester { expected: expected().requester, found: other }));
        let anybody = check(|quote| quote.requester = Address::ZERO, NOW);
        assert!(matches!(anybody, Err(QuoteError::Requester { found: Address::ZERO, .. })));
        let service = check(|quote| quote.serviceId = 8, NOW);
        assert_eq!(service, Err(QuoteError::Service { expected: 7, found: 8 }));
        assert_eq!(check(|quote| quote.jobIndex = 0, NOW), Err(QuoteError::Job { expected: 10, found: 0 }));
        assert_eq!(check(|quote| quote.inputsHash = B256::ZERO, NOW), Err(QuoteError::Inputs));
        let confidential = check(|quote| quote.confidentiality = 1, NOW);
        assert_eq!(confidential, Err(QuoteError::Confidentiality { expected: 0, found: 1 }));
    }

    #[test]
    fn a_quote_is_good_until_its_last_second_and_for_an_hour_at_most() {
        assert_eq!(check(|_| {}, NOW + LIFE_S), Ok(()));
        let over = Err(QuoteError::Expired { expiry: NOW + LIFE_S, now: NOW + LIFE_S + 1 });
        assert_eq!(check(|_| {}, NOW + LIFE_S + 1), over);
        let endless = |quote: &mut JobQuoteDetails| quote.expiry = u64::MAX;
        assert_eq!(check(endless, NOW + QUOTE_AGE_S_MAX), Ok(()));
        let old = Err(QuoteError::TooOld { age_s: QUOTE_AGE_S_MAX + 1 });
        assert_eq!(check(endless, NOW + QUOTE_AGE_S_MAX + 1), old);
        assert_eq!(check(|_| {}, NOW - 100), Ok(()), "a clock that is ahead is no fault");
    }

    #[test]
    fn a_price_is_nothing_or_large_enough_to_be_split() {
        let priced = |price: u64| check(|quote| quote.price = U256::from(price), NOW);
        assert_eq!((priced(0), priced(100)), (Ok(()), Ok(())));
        for price in [1, 99] {
            assert_eq!(priced(price), Err(QuoteError::TooSmall(U256::from(price))));
        }
    }

    #[test]
    fn a_quote_that_was_changed_or_signed_for_elsewhere_is_not_its_operators() {
        let mut cheaper = quote(|_| {});
        cheaper.details.price -= U256::from(1);
        assert!(matches!(verify(&cheaper, &expected(), NOW), Err(QuoteError::Signer { .. })));
        let renamed = SignedJobQuote { operator: devchain::key(2).address(), ..quote(|_| {}) };
        let found = operator().address();
        let named = renamed.operator;
        assert_eq!(verify(&renamed, &expected(), NOW), Err(QuoteError::Signer { found, named }));
        for elsewhere in [Expectation { chain_id: 1, ..expected() }, Expectation { core: Address::ZERO, ..expected() }]
        {
            assert!(matches!(verify(&quote(|_| {}), &elsewhere, NOW), Err(QuoteError::Signer { .. })));
        }
    }

    #[test]
    fn a_signature_has_the_one_form_that_the_core_takes() {
        let good = quote(|_| {});
        let of = |signature: Vec<u8>| {
            verify(&SignedJobQuote { signature: signature.into(), ..good.clone() }, &expected(), NOW)
        };
        let refused = Err(QuoteError::Signature(good.operator));
        let bytes = good.signature.to_vec();
        assert_eq!(of(bytes.clone()), Ok(()));
        assert_eq!(of(bytes[..64].to_vec()), refused);
        assert_eq!(of([bytes.as_slice(), &[0]].concat()), refused);
        let mut parity = bytes.clone();
        parity[64] -= 27;
        assert_eq!(of(parity), refused, "0 and 1 are no v");
        let order = U256::from_be_bytes(hex!("fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"));
        let s = U256::from_be_slice(&bytes[32..64]);
        let twin = [&bytes[..32], &(order - s).to_be_bytes::<32>(), &[27 + 28 - bytes[64]]].concat();
        assert_eq!(of(twin), refused, "the other s of the same signature");
        assert_eq!(of(Vec::new()), refused);
    }

    #[test]
    fn a_quote_survives_the_road_over_http() {
        let quote = quote(|_| {});
        let body = body(&quote, (CHAIN_ID, CORE), Address::ZERO);
        let text = serde_json::to_string(&body).unwrap();
        assert_eq!(of_body(&serde_json::from_str(&text).unwrap()), quote);
    }
}
