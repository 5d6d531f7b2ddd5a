//! Sealed fields of a request are opened before anything is made of it: one function for every field of every job.
//!
//! What was sealed is known from here on to the handler and to what it makes: the sandbox's record keeps its environment, as
//! the engine does, the journal keeps the inputs as they stand on chain. Nothing of it is logged.

use sandbox_protocol::sealed::{Binding, Field, OpenError, SealKey, Sealable, is_sealed, open};
use sandbox_protocol::{Failure, FailureCode};

use crate::chain::key::{KeyError, SealKeys};

/// Opens each sealed field in place.
///
/// # Errors
/// A [`Failure`] that names the first field which is not opened, and why.
pub(crate) fn open_fields(request: &mut impl Sealable, keys: &SealKeys, binding: &Binding) -> Result<(), Failure> {
    open_with(request, || keys.opening().map_err(|error| keyless(&error)), binding)
}

fn open_with(
    request: &mut impl Sealable,
    keys: impl FnOnce() -> Result<Vec<SealKey>, Failure>,
    binding: &Binding,
) -> Result<(), Failure> {
    let mut sealed = request.sealable();
    sealed.retain(|(_, text)| is_sealed(text));
    if sealed.is_empty() {
        return Ok(());
    }
    let keys = keys()?;
    for (field, text) in sealed {
        *text = open(text, &keys, (binding, field)).map_err(|error| refused(field, error))?;
    }
    Ok(())
}

/// What the caller is told of a field that is not opened.
pub(crate) fn refused(field: Field, error: OpenError) -> Failure {
    let code = match error {
        OpenError::TooLong(_) | OpenError::Malformed(_) | OpenError::NotForUs | OpenError::Damaged => {
            FailureCode::SealedUnreadable
        }
        OpenError::Elsewhere(_) => FailureCode::SealedElsewhere,
    };
    Failure::new(code, format!("{field}: {error}"))
}

fn keyless(error: &KeyError) -> Failure {
    tracing::error!(error = %crate::error_chain(error), "there are no seal keys");
    Failure::new(FailureCode::Internal, "the operator cannot use its seal keys")
}

#[cfg(test)]
mod tests {
    use alloy::primitives::Address;
    use sandbox_protocol::Outcome;
    use sandbox_protocol::abi::ExecRequest;
    use sandbox_protocol::sealed::seal;

    use super::*;

    const BINDING: Binding =
        Binding { chain_id: 1, core: Address::ZERO, service: 7, caller: Address::repeat_byte(1), job: 10 };

    fn sealed(field: Field, text: &str) -> String {
        let key = SealKey::derive(&[1; 32], 0).public();
        seal(text, &[key], (&BINDING, field), &mut rand::rng()).unwrap()
    }

    fn opened(request: &ExecRequest, binding: &Binding, secret: u8) -> Result<ExecRequest, Failure> {
        let mut request = request.clone();
        open_with(&mut request, || Ok(vec![SealKey::derive(&[secret; 32], 0)]), binding)?;
        Ok(request)
    }

    #[test]
    fn every_sealed_field_is_opened_and_the_others_are_left() {
        let plain =
            ExecRequest { command: "c".into(), env_json: "{}".into(), stdin: "in".into(), ..Default::default() };
        assert_eq!(opened(&plain, &BINDING, 1), Ok(plain.clone()));
        let partly = ExecRequest { env_json: sealed(Field::EnvJson, "{}"), ..plain.clone() };
        assert_eq!(opened(&partly, &BINDING, 1), Ok(plain.clone()));
        let (command, stdin) = (sealed(Field::Command, "c"), sealed(Field::Stdin, "in"));
        assert_eq!(opened(&ExecRequest { command, stdin, ..partly }, &BINDING, 1), Ok(plain));
    }

    #[test]
    fn a_field_that_is_not_opened_is_the_callers_matter_and_named() {
        let request = ExecRequest { stdin: sealed(Field::Stdin, "in"), ..Default::default() };
        let check = |request: &ExecRequest, binding: &Binding, secret, expected: &str| {
            let failure = opened(request, binding, secret).unwrap_err();
            assert_eq!((failure.to_string().as_str(), failure.code.outcome()), (expected, Outcome::Caller));
        };
        check(&request, &BINDING, 2, "sealed_unreadable: stdin: not sealed to a key of this operator");
        let stranger = Binding { caller: Address::repeat_byte(2), ..BINDING };
        check(&request, &stranger, 1, "sealed_elsewhere: stdin: sealed for another caller");
        let other = ExecRequest { env_json: request.stdin.clone(), ..Default::default() };
        check(&other, &BINDING, 1, "sealed_elsewhere: env_json: sealed for another field");
        let cut = ExecRequest { stdin: "sealed:v1:AAAA".into(), ..Default::default() };
        check(&cut, &BINDING, 1, "sealed_unreadable: stdin: malformed: no recipient, or too many");
    }

    #[test]
    fn without_a_sealed_field_no_key_is_looked_for() {
        let mut request = ExecRequest { stdin: "sealed: no".into(), ..Default::default() };
        assert_eq!(open_with(&mut request, || panic!("looked"), &BINDING), Ok(()));
    }
}
