//! Signatures of wallets that are contracts, by EIP-1271.

use alloy::network::TransactionBuilder as _;
use alloy::primitives::{Address, B256, Bytes, b256};
use alloy::providers::Provider as _;
use alloy::rpc::types::TransactionRequest;
use alloy::sol;
use alloy::sol_types::SolCall as _;
use async_trait::async_trait;
use sandbox_sdk::Chain;
use sandbox_sdk::chain::ReadError;

use crate::limits::WALLET_GAS_MAX;

/// What a contract answers that takes a signature for its own: the selector, in a word.
const TAKEN: B256 = b256!("0x1626ba7e00000000000000000000000000000000000000000000000000000000");

sol! {
    function isValidSignature(bytes32 hash, bytes memory signature) external view returns (bytes4);
}

/// Contracts that are asked whether a signature is theirs.
#[async_trait]
pub(super) trait Wallets: Send + Sync {
    /// Whether the contract at `wallet` takes `signature` for its own over `hash`. Where there is none, nobody does.
    async fn takes(&self, wallet: Address, hash: B256, signature: &Bytes) -> Result<bool, ReadError>;
}

#[async_trait]
impl Wallets for Chain {
    async fn takes(&self, wallet: Address, hash: B256, signature: &Bytes) -> Result<bool, ReadError> {
        let question = isValidSignatureCall { hash, signature: signature.clone() };
        let call = TransactionRequest::default()
            .with_to(wallet)
            .with_gas_limit(WALLET_GAS_MAX)
            .with_input(question.abi_encode());
        match self.provider().call(call).await {
            Ok(answer) => Ok(answer.as_ref() == TAKEN.as_slice()),
            Err(error) if error.is_error_resp() => Ok(false),
            Err(source) => Err(ReadError::Node { question: "isValidSignature", source }),
        }
    }
}
