//! What an operator attests to: the word on chain, and the signed document that carries the rest.
//!
//! On chain goes [`JobReceipt`](crate::abi::JobReceipt): outcome, hash of the response, detail. Over HTTP goes a
//! [`SignedReceipt`], an EIP-712 document that binds the same hash to chain, core, call, inputs and circumstances, so a
//! customer can verify an answer without asking anybody.

use std::borrow::Cow;

use alloy_primitives::{Address, B256, Signature, U256, keccak256};
use alloy_sol_types::{Eip712Domain, SolStruct, sol};

use crate::abi::JobReceipt;
use crate::sandbox_id::CallKey;

/// How a job ended, as the chain counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[repr(u8)]
pub enum Outcome {
    /// As asked; also a command that ended with a non-zero exit code.
    Done = 0,
    /// The caller's: bad input that only execution shows, or its own limit reached.
    Caller = 1,
    /// The operator's: engine, capacity, promised image, internal.
    Operator = 2,
}

impl Outcome {
    /// The number on chain.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The outcome of a number on chain.
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::Done),
            1 => Some(Self::Caller),
            2 => Some(Self::Operator),
            _ => None,
        }
    }
}

sol! {
    /// The document that is signed.
    #[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    struct SandboxReceipt {
        /// Service id.
        uint64 service;
        /// Call id within the service.
        uint64 call;
        /// Job id.
        uint8 job;
        /// Who answered.
        address operator;
        /// Who asked.
        address caller;
        /// keccak256 of the job's inputs.
        bytes32 inputs_hash;
        /// keccak256 of the ABI-encoded response.
        bytes32 response_hash;
        /// Outcome as on chain.
        uint8 outcome;
        /// Detail as on chain.
        uint256 detail;
        /// Failure code; empty for outcome 0.
        string failure;
        /// Container runtime that ran it; empty where no sandbox was touched.
        string runtime;
        /// Digest of the sandbox's image; empty where no sandbox was touched.
        string image_digest;
        /// Head of the chain when the work began.
        uint64 started_block;
        /// Head of the chain when it ended.
        uint64 ended_block;
        /// Wall-clock time of the work in milliseconds.
        uint64 duration_ms;
    }

    /// What a caller signs to read the answer of its call.
    #[derive(Debug, PartialEq, Eq)]
    struct ReadCall {
        /// Who is asked, so that it cannot ask another in the caller's name.
        address operator;
        /// Service id.
        uint64 service;
        /// Call id within the service.
        uint64 call;
        /// Second since 1970 after which the signature is void.
        uint64 expires;
    }
}

impl SandboxReceipt {
    /// The part that goes on chain.
    pub fn on_chain(&self) -> JobReceipt {
        JobReceipt { outcome: self.outcome, responseHash: self.response_hash, detail: self.detail }
    }

    /// The call it answers.
    pub const fn key(&self) -> CallKey {
        CallKey { service: self.service, call: self.call }
    }
}

/// The EIP-712 domain of everything that customers and operators sign off chain.
pub fn domain(chain_id: u64, core: Address) -> Eip712Domain {
    Eip712Domain::new(
        Some(Cow::Borrowed("AgentSandbox")),
        Some(Cow::Borrowed("1")),
        Some(U256::from(chain_id)),
        Some(core),
        None,
    )
}

/// A receipt with its domain and signature: all that offline verification needs besides the response's bytes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignedReceipt {
    /// Chain id of the domain.
    pub chain_id: u64,
    /// The Tangle core, verifying contract of the domain.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub core: Address,
    /// What is attested.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub receipt: SandboxReceipt,
    /// 65 bytes r, s, v by the operator's key.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub signature: Signature,
}

/// Why a receipt does not prove what it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The signature is of nobody.
    #[error("the signature is not valid")]
    Signature,
    /// The signature is somebody else's.
    #[error("signed by {found}, not by the operator {named} that the receipt names")]
    Signer {
        /// Whose signature it is.
        found: Address,
        /// Whom the receipt names.
        named: Address,
    },
    /// The response is not the one attested to.
    #[error("the response hashes to {found}, the receipt says {attested}")]
    Response {
        /// Hash of the bytes at hand.
        found: B256,
        /// Hash in the receipt.
        attested: B256,
    },
}

impl SignedReceipt {
    /// Checks that the named operator signed this receipt for exactly these response bytes.
    ///
    /// # Errors
    /// [`VerifyError`] with the first thing that does not hold.
    pub fn verify(&self, response: &[u8]) -> Result<(), VerifyError> {
        let named = self.receipt.operator;
        let found = recover(&self.receipt, self.chain_id, self.core, &self.signature).ok_or(VerifyError::Signature)?;
        if found != named {
            return Err(VerifyError::Signer { found, named });
        }
        let (found, attested) = (keccak256(response), self.receipt.response_hash);
        if found != attested {
            return Err(VerifyError::Response { found, attested });
        }
        Ok(())
    }
}

/// Who signed `document` in our domain; `None` where the signature is of nobody.
pub fn recover(document: &impl SolStruct, chain_id: u64, core: Address, signature: &Signature) -> Option<Address> {
    let digest = document.eip712_signing_hash(&domain(chain_id, core));
    signature.recover_address_from_prehash(&digest).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_signs_names_operator_call_and_end() {
        let signed = "ReadCall(address operator,uint64 service,uint64 call,uint64 expires)";
        assert_eq!(ReadCall::eip712_encode_type(), signed);
    }

    #[test]
    fn solidity_gives_every_outcome_the_same_number() {
        let solidity = include_str!("../../contracts/src/JobTypes.sol");
        for outcome in [Outcome::Done, Outcome::Caller, Outcome::Operator] {
            let line = format!("uint8 constant OUTCOME_{:?} = {};", outcome, outcome.id()).to_uppercase();
            assert!(solidity.to_uppercase().contains(&line), "JobTypes.sol lacks `{line}`");
            assert_eq!(Outcome::from_id(outcome.id()), Some(outcome));
        }
        assert_eq!(Outcome::from_id(3), None);
    }
}
