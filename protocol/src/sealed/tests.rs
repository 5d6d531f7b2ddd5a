//! Sealed fields: who opens them, where, and what is noticed; one vector from elsewhere.

use base64::Engine as _;
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::*;
use crate::abi;

const BINDING: Binding = Binding {
    chain_id: 31_337,
    core: Address::repeat_byte(0xc0),
    service: 7,
    caller: Address::repeat_byte(0xca),
    job: 0,
};
/// The public half of generation 3 of the secret that is 32 bytes of 1.
const VECTOR_KEY: &str = "6d798fd1a519f8b5a2e1c159e2f2375e65879dc7cf49dd6b7e0fa7d910a81c59";
/// [`TEXT`], sealed to somebody else and to it.
const VECTOR: &str = "sealed:v1:AkLYZ/1WTsvEGx6RdZq9Rn9eVBPaTf/bcH04OMBsBwkXuwsANlV4tDz5c7i62TPtXQ61s4ypwpIxYEZfI4rSnMiIWM\
    5L+DzRmbpCuhBhGsKCiccwNL02VstteY/RpRn4tY16eZ12Lh7Cx+dOZS4bPuetVEJlY4YoTFkK+KquVsI8ZXQGL4KpkLWsKcVvSh\
    RUDkYXQlbowUJI78UducKvPyWgZ6YrauEpaTTgllhAbJGq9dgD0j8Ttz44OwCJSEmOVNkcxkbIHKXS0k6yVj99Oou+l2+Ol9K6tL\
    7ZJf8STW5OyJlHfttmbI1N85Hsk1vb0V2+zU+tHvfPen3vp1/yn2b4jgdB40mGRD3f4ix9gQ==";
const TEXT: &str = r#"{"API_KEY":"wölfe"}"#;

fn key(number: u8) -> SealKey {
    SealKey::derive(&[number; 32], 0)
}

fn sealed_to(recipients: &[&SealKey]) -> String {
    let recipients: Vec<_> = recipients.iter().map(|key| key.public()).collect();
    seal(TEXT, &recipients, (&BINDING, Field::EnvJson), &mut StdRng::seed_from_u64(1)).unwrap()
}

fn opened(sealed: &str, key: &SealKey) -> Result<String, OpenError> {
    open(sealed, std::slice::from_ref(key), (&BINDING, Field::EnvJson))
}

fn bytes(sealed: &str) -> Vec<u8> {
    STANDARD.decode(sealed.strip_prefix(PREFIX).unwrap()).unwrap()
}

fn text(bytes: &[u8]) -> String {
    format!("{PREFIX}{}", STANDARD.encode(bytes))
}

#[test]
fn every_recipient_opens_it_and_nobody_else() {
    let sealed = sealed_to(&[&key(1), &key(2)]);
    assert!(is_sealed(&sealed) && is_in(sealed.as_bytes()) && !sealed.contains("API_KEY"));
    for recipient in [1, 2] {
        assert_eq!(opened(&sealed, &key(recipient)), Ok(TEXT.to_owned()));
        assert_eq!(check(&sealed, &[key(recipient)]), Ok(()));
    }
    assert_eq!(opened(&sealed, &key(3)), Err(OpenError::NotForUs));
    assert_eq!(check(&sealed, &[key(3)]), Err(OpenError::NotForUs));
    assert_eq!(open(&sealed, &[], (&BINDING, Field::EnvJson)), Err(OpenError::NotForUs));
    assert_eq!(open(&sealed, &[key(3), key(2)], (&BINDING, Field::EnvJson)), Ok(TEXT.to_owned()), "an older key");
}

/// Made by an implementation of another language from the table in the module's documentation alone.
#[test]
fn what_another_implementation_sealed_is_opened() {
    let key = SealKey::derive(&[1; 32], 3);
    assert_eq!(hex::encode(key.public()), VECTOR_KEY);
    assert_eq!(opened(VECTOR, &key), Ok(TEXT.to_owned()));
}

#[test]
fn it_is_opened_only_where_it_was_written_for() {
    let sealed = sealed_to(&[&key(1)]);
    let elsewhere = [
        (Binding { chain_id: 1, ..BINDING }, Field::EnvJson, Bound::Chain),
        (Binding { core: Address::ZERO, ..BINDING }, Field::EnvJson, Bound::Core),
        (Binding { service: 8, ..BINDING }, Field::EnvJson, Bound::Service),
        (Binding { caller: Address::ZERO, ..BINDING }, Field::EnvJson, Bound::Caller),
        (Binding { job: 10, ..BINDING }, Field::EnvJson, Bound::Job),
        (BINDING, Field::Stdin, Bound::Field),
    ];
    for (binding, field, bound) in elsewhere {
        assert_eq!(open(&sealed, &[key(1)], (&binding, field)), Err(OpenError::Elsewhere(bound)));
    }
}

#[test]
fn a_change_of_any_byte_is_noticed() {
    let sealed = bytes(&sealed_to(&[&key(1), &key(2)]));
    for place in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[place] ^= 1;
        let refused = opened(&text(&changed), &key(2)).expect_err(&format!("byte {place}"));
        let expected: &[OpenError] = match place {
            0 => &[OpenError::Malformed("the body is too short")],
            89..97 => &[OpenError::NotForUs],
            _ => &[OpenError::Damaged],
        };
        assert!(expected.contains(&refused), "byte {place}: {refused}");
    }
}

#[test]
fn a_recipient_cannot_be_taken_away_or_added() {
    let two = bytes(&sealed_to(&[&key(1), &key(2)]));
    let one = [&[1], &two[89..177], &two[177..]].concat();
    assert_eq!(opened(&text(&one), &key(2)), Err(OpenError::Damaged));
}

#[test]
fn what_is_cut_or_of_another_form_is_malformed() {
    let whole = bytes(&sealed_to(&[&key(1)]));
    for length in 0..whole.len() {
        assert!(opened(&text(&whole[..length]), &key(1)).is_err(), "{length} bytes");
    }
    let mut none = whole.clone();
    none[0] = 0;
    let form = |sealed: &str| matches!(opened(sealed, &key(1)), Err(OpenError::Malformed(_)));
    assert!(form(&text(&none)) && form("sealed:v1:") && form("sealed:v1:%") && form("sealed:v2:AAAA"));
    assert!(
        is_sealed("sealed:v2:AAAA") && !is_sealed("sealed:v:x") && !is_sealed("sealed: x") && !is_sealed("sealed:v1")
    );
    let unpadded = sealed_to(&[&key(1)]);
    assert!(form(&format!("{unpadded} ")) && form(unpadded.trim_end_matches('=')) == unpadded.ends_with('='));
}

#[test]
fn recipients_and_length_have_bounds() {
    let keys: Vec<B256> = (0..=SEALED_RECIPIENTS_MAX as u8).map(|number| key(number).public()).collect();
    let to = |keys: &[B256], text: &str| seal(text, keys, (&BINDING, Field::Stdin), &mut StdRng::seed_from_u64(2));
    assert!(to(&keys[1..], TEXT).is_ok());
    assert_eq!(to(&keys, TEXT), Err(SealError::Recipients(SEALED_RECIPIENTS_MAX + 1)));
    assert_eq!(to(&[], TEXT), Err(SealError::Recipients(0)));
    assert_eq!(to(&[B256::ZERO], TEXT), Err(SealError::NotAKey(B256::ZERO)));
    let fits = (JOB_INPUT_BYTES_MAX - PREFIX.len()) / 4 * 3 - 89 - BOUND_BYTES - 16;
    let longest = to(&keys[..1], &"x".repeat(fits)).unwrap();
    assert!(open(&longest, &[key(0)], (&BINDING, Field::Stdin)).is_ok());
    assert!(matches!(to(&keys[..1], &"x".repeat(fits + 3)), Err(SealError::TooLong(_))));
    let long = format!("{PREFIX}{}", "A".repeat(JOB_INPUT_BYTES_MAX));
    assert_eq!(opened(&long, &key(0)), Err(OpenError::TooLong(long.len())));
}

#[test]
fn generations_and_secrets_have_keys_of_their_own() {
    let keys = [SealKey::derive(&[1; 32], 0), SealKey::derive(&[1; 32], 1), SealKey::derive(&[2; 32], 0)];
    assert!(keys[0].public() != keys[1].public() && keys[0].public() != keys[2].public());
    assert_eq!(keys[0].public(), key(1).public());
    assert!(!format!("{:?}", keys[0]).contains("secret"));
}

#[test]
fn requests_name_the_fields_that_may_be_sealed() {
    let of = |request: &mut dyn Sealable| request.sealable().into_iter().map(|(field, _)| field).collect::<Vec<_>>();
    assert_eq!(of(&mut abi::SandboxCreateRequest::default()), [Field::EnvJson]);
    assert_eq!(of(&mut abi::BatchCreateRequest::default()), [Field::EnvJson]);
    assert_eq!(of(&mut abi::ExecRequest::default()), [Field::Command, Field::EnvJson, Field::Stdin]);
    assert_eq!(of(&mut abi::SandboxIdRequest::default()), []);
    let numbers: Vec<u8> = Field::ALL.into_iter().map(|field| field as u8).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6], "they stand on chain");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_sealed_is_what_is_opened(text in ".{0,300}", keys in 1_u8..5, ours in 0_u8..5, service: u64, seed: u64) {
        let binding = Binding { service, ..BINDING };
        let recipients: Vec<B256> = (0..keys).map(|number| key(number).public()).collect();
        let random = &mut StdRng::seed_from_u64(seed);
        let sealed = seal(&text, &recipients, (&binding, Field::Prompt), random).unwrap();
        let opened = open(&sealed, &[key(ours)], (&binding, Field::Prompt));
        let expected = if ours < keys { Ok(text) } else { Err(OpenError::NotForUs) };
        prop_assert_eq!(opened, expected);
        let elsewhere = Binding { service: !service, ..binding };
        let refused = open(&sealed, &[key(0)], (&elsewhere, Field::Prompt));
        prop_assert_eq!(refused, Err(OpenError::Elsewhere(Bound::Service)));
    }

    #[test]
    fn no_bytes_upset_who_opens_them(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(opened(&text(&bytes), &key(1)).is_err());
        prop_assert!(opened(&String::from_utf8_lossy(&bytes), &key(1)).is_err());
    }
}
