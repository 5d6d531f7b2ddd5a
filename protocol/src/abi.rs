//! Request and response structs and job ids, generated from `contracts/src/JobTypes.sol`.
//!
//! Inputs arrive from anybody, so [`decode`] accepts only the canonical encoding: what it returns encodes to the very
//! bytes given, and nothing is hidden behind or between the fields.

#![allow(missing_docs, unreachable_pub)] // generated: the prose stands in JobTypes.sol

use alloy_sol_types::SolValue;
use alloy_sol_types::sol;

sol!(
    #[sol(all_derives, extra_derives(serde::Serialize, serde::Deserialize))]
    "../contracts/src/JobTypes.sol"
);

/// Inputs or a response that are not the canonical ABI encoding of the struct expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the canonical ABI encoding of {0}")]
pub struct Malformed(pub &'static str);

/// Decodes `abi.encode(T)` strictly.
///
/// # Errors
/// [`Malformed`] where the bytes do not decode, or are not what the value encodes to.
pub fn decode<T>(bytes: &[u8]) -> Result<T, Malformed>
where
    T: SolValue + From<<T::SolType as alloy_sol_types::SolType>::RustType>,
{
    let name = short_name::<T>();
    let value = T::abi_decode_validate(bytes).map_err(|_| Malformed(name))?;
    if value.abi_encode() == bytes { Ok(value) } else { Err(Malformed(name)) }
}

fn short_name<T>() -> &'static str {
    std::any::type_name::<T>().rsplit("::").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_decodes_to_what_was_encoded() {
        let request = SandboxIdRequest { sandbox_id: "sbx-1-2-0".into() };
        assert_eq!(decode::<SandboxIdRequest>(&request.abi_encode()), Ok(request));
    }

    #[test]
    fn bytes_behind_a_request_are_refused() {
        let mut bytes = SandboxIdRequest { sandbox_id: "sbx-1-2-0".into() }.abi_encode();
        bytes.extend([0; 32]);
        assert_eq!(decode::<SandboxIdRequest>(&bytes), Err(Malformed("SandboxIdRequest")));
    }

    #[test]
    fn a_cut_request_is_refused() {
        let bytes = SandboxIdRequest { sandbox_id: "sbx-1-2-0".into() }.abi_encode();
        for length in 0..bytes.len() {
            assert!(decode::<SandboxIdRequest>(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_receipt_is_three_words() {
        assert_eq!(JobReceipt::default().abi_encode().len(), 96);
    }
}
