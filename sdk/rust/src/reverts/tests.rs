//! Reverts as nodes report them, and what is said of them.

use alloy::primitives::{Address, U256, hex};
use alloy::sol_types::SolError;
use alloy::transports::{RpcError, TransportError};

use super::*;
use crate::contracts::{IAgentSandboxBlueprint, ITangleCore};

fn check(data: &[u8], expected: &str) {
    assert_eq!(Refusal::decode(data).to_string(), expected);
}

fn wrapped(inner: &impl SolError) -> Vec<u8> {
    let reason = inner.abi_encode().into();
    ITangleCore::ManagerReverted { manager: Address::repeat_byte(7), reason }.abi_encode()
}

fn node_says(message: &str, data: &str) -> TransportError {
    let text = format!(r#"{{"code":3,"message":"{message}","data":{data}}}"#);
    RpcError::ErrorResp(serde_json::from_str(&text).unwrap())
}

#[test]
fn an_error_of_the_blueprint_is_taken_out_of_the_core_s_wrapping() {
    let inner = IAgentSandboxBlueprint::UnknownSandbox { sandbox: "sbx-1-9-0".into() };
    check(&wrapped(&inner), "no live sandbox sbx-1-9-0 in this service");
}

#[test]
fn wrapping_may_be_nested() {
    let inner = wrapped(&IAgentSandboxBlueprint::UnknownJob { job: 5 });
    let outer = ITangleCore::ManagerReverted { manager: Address::ZERO, reason: inner.into() }.abi_encode();
    check(&outer, "job 5 is not offered by this blueprint");
}

#[test]
fn real_bytes_of_the_core_are_read() {
    // InvalidMsgValue(1e15, 0)
    let data = hex!(
        "1f89f67100000000000000000000000000000000000000000000000000038d7ea4c68000"
        "0000000000000000000000000000000000000000000000000000000000000000"
    );
    check(&data, "exactly 1000000000000000 wei must be paid, 0 were given");
}

#[test]
fn selectors_are_those_of_the_deployed_core() {
    for (selector, name) in [
        (hex!("0a55512f"), "JobAlreadyCompleted"),
        (hex!("b7e7fcee"), "ResultAlreadySubmitted"),
        (hex!("783482e9"), "OperatorNotInService"),
        (hex!("a32a5d1c"), "NotQuotedOperator"),
        (hex!("4c5fe2d8"), "ServiceNotActive"),
        (hex!("7c3e621b"), "ServiceExpired"),
        (hex!("d5dd5b44"), "NotPermittedCaller"),
        (hex!("1f89f671"), "InvalidMsgValue"),
        (hex!("07a84ec2"), "ManagerReverted"),
        (hex!("71cc0e9a"), "ManagerRejected"),
        (hex!("77164cdc"), "AggregationRequired"),
        (hex!("1370bcad"), "InvalidJobIndex"),
        (hex!("e356d5aa"), "OperatorNotActive"),
        (hex!("9038fe73"), "SchemaValidationFailed"),
        (hex!("94403b70"), "TokenNotAllowed"),
        (hex!("3beb8e0f"), "PaymentTooSmall"),
        (hex!("732253f5"), "SecurityCommitmentsRequired"),
        (hex!("9ec4e30d"), "OperatorAlreadyRegistered"),
        (hex!("9d287736"), "DuplicateOperatorKey"),
        (hex!("c2a825f5"), "UnknownSelector"),
        (hex!("baf3f0f7"), "InvalidState"),
    ] {
        assert_eq!(name_of(selector), Some(name));
    }
}

#[test]
fn a_selector_without_its_arguments_still_names_the_error() {
    check(&hex!("0a55512f"), "the chain refused: JobAlreadyCompleted");
}

#[test]
fn words_panics_and_silence_are_told_apart() {
    check(&Revert { reason: "no".into() }.abi_encode(), "the chain refused: no");
    check(&Panic { code: U256::from(0x11) }.abi_encode(), "a contract failed by itself (panic code 0x11)");
    check(&[], "the chain refused without a reason");
    check(&hex!("deadbeef"), "the chain refused for a reason unknown here: 0xdeadbeef");
}

#[test]
fn revert_data_is_found_wherever_a_node_puts_it() {
    let data = hex::encode_prefixed(wrapped(&IAgentSandboxBlueprint::NoCapacity { serviceId: 4 }));
    let expected = "no operator of service 4 has room for another sandbox";
    for error in [
        node_says("execution reverted", &format!("\"{data}\"")),
        node_says("VM Exception", &format!(r#"{{"originalError":{{"data":"{data}"}}}}"#)),
        node_says(&format!("execution reverted: custom error {data}"), "null"),
    ] {
        assert_eq!(Refusal::of(&error).unwrap().to_string(), expected);
    }
    assert_eq!(Refusal::of_text(&format!("server error, data: {data}")).unwrap().to_string(), expected);
}

#[test]
fn an_error_that_is_no_refusal_is_not_called_one() {
    let hash = format!("\"{}\"", hex::encode_prefixed([3; 32]));
    assert_eq!(Refusal::of(&node_says("insufficient funds for gas", "null")), None);
    assert_eq!(Refusal::of(&node_says("already known", &hash)), None);
    assert_eq!(Refusal::of(&RpcError::NullResp), None);
}

/// Says every error of a contract, its arguments all zero, and looks for one that has no words of its own.
fn each_has_its_words(errors: impl Iterator<Item = ([u8; 4], &'static str)>) {
    let mut said = std::collections::HashMap::new();
    for (selector, name) in errors {
        let mut data = selector.to_vec();
        data.extend([0; 32 * 4]);
        if name == "ManagerReverted" {
            continue; // taken off: what it wraps is said
        }
        let text = Refusal::decode(&data).to_string();
        for without_words in ["the core refused:", "the blueprint refused:", "unknown here", "the chain refused"] {
            assert!(!text.contains(without_words), "{name}: {text}");
        }
        let other = said.insert(text.clone(), name);
        assert!(other.is_none() || name.starts_with("ECDSA"), "{name} and {other:?} both say: {text}");
    }
}

fn errors_of<E: SolInterface>(names: &'static [&'static str]) -> impl Iterator<Item = ([u8; 4], &'static str)> {
    E::selectors().zip(names).map(|(selector, name)| (selector, *name))
}

#[test]
fn every_error_of_the_core_has_a_sentence_of_its_own() {
    each_has_its_words(errors_of::<CoreRefusal>(CoreRefusal::VARIANT_NAMES));
}

#[test]
fn every_error_of_the_blueprint_has_a_sentence_of_its_own() {
    const { assert!(BlueprintRefusal::COUNT > 30, "the whole interface is read") }
    let of_interface = errors_of::<BlueprintRefusal>(BlueprintRefusal::VARIANT_NAMES);
    each_has_its_words(of_interface.chain(errors_of::<BaseRefusal>(BaseRefusal::VARIANT_NAMES)));
}

#[test]
fn a_token_s_refusal_is_said_in_words_too() {
    each_has_its_words(errors_of::<TokenRefusal>(TokenRefusal::VARIANT_NAMES));
}

#[test]
fn a_quote_that_was_used_is_named_by_the_real_selector() {
    assert_eq!(name_of(hex!("08d18271")), Some("QuoteAlreadyUsed"));
    let mut data = hex!("08d18271").to_vec();
    data.extend(Address::repeat_byte(0x11).into_word());
    check(&data, "the quote of operator 0x1111111111111111111111111111111111111111 has been used; ask for another");
}
