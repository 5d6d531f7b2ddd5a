//! What an operator does outside of jobs: stake, register, change its profile, approve or reject, leave no reward behind.
//!
//! The calldata stands in [`calls`]; an operator with a sender of its own uses that.

use alloy::primitives::{Address, Bytes, U256};
use alloy::signers::local::PrivateKeySigner;
use sandbox_protocol::abi::OperatorProfile;

use crate::calls;
use crate::chain::{Account, Mined, ReadError, SendError};

/// The byte before a public key's two coordinates.
const SEC1_UNCOMPRESSED: u8 = 4;

/// Where operators stake. On a local chain: [`devchain::STAKING`](crate::devchain::STAKING).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Staking {
    /// The staking contract.
    pub contract: Address,
    /// The token that it takes.
    pub token: Address,
}

/// An operator's deed that was not done.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The staking contract may not take the token.
    #[error("the staking contract was not allowed to take the token")]
    Allow(#[source] SendError),
    /// The stake was refused.
    #[error("the stake was refused")]
    Stake(#[source] SendError),
    /// The registration was refused.
    #[error("the registration was refused")]
    Register(#[source] SendError),
    /// The profile was not changed.
    #[error("the profile was not changed")]
    Profile(#[source] SendError),
    /// Whether it is registered is not known.
    #[error("whether the operator is registered is not known")]
    Lookup(#[source] ReadError),
}

/// The 65-byte uncompressed public key of a signer, as the core wants it.
pub fn public_key(key: &PrivateKeySigner) -> Bytes {
    let mut uncompressed = vec![SEC1_UNCOMPRESSED];
    uncompressed.extend(key.public_key());
    uncompressed.into()
}

/// Makes the account a staked operator with `amount` of the token.
///
/// # Errors
/// [`OperatorError::Allow`], [`OperatorError::Stake`].
pub async fn stake(account: &Account, staking: Staking, amount: U256) -> Result<(), OperatorError> {
    let Staking { contract, token } = staking;
    account.send(&calls::approve_token(token, contract, amount)).await.map_err(OperatorError::Allow)?;
    account.send(&calls::stake(contract, token, amount)).await.map_err(OperatorError::Stake)?;
    Ok(())
}

/// Registers the account for the blueprint, or replaces its profile where it is registered and the profile differs.
///
/// # Errors
/// [`OperatorError::Lookup`], [`OperatorError::Register`], [`OperatorError::Profile`].
pub async fn register(account: &Account, profile: &OperatorProfile) -> Result<(), OperatorError> {
    let view = account.chain().operator(account.address()).await.map_err(OperatorError::Lookup)?;
    let stored = (view.capacity, view.pricePerHour, view.sealKey, view.apiUrl.as_str());
    if !view.registered {
        let call = calls::register_operator(account.deployment(), public_key(account.key()), profile);
        account.send(&call).await.map_err(OperatorError::Register)?;
    } else if stored != (profile.capacity, profile.pricePerHour, profile.sealKey, profile.apiUrl.as_str()) {
        let call = calls::set_operator_profile(account.deployment(), profile);
        account.send(&call).await.map_err(OperatorError::Profile)?;
    }
    Ok(())
}

/// Approves a service request.
///
/// # Errors
/// [`SendError`].
pub async fn approve(account: &Account, request: u64) -> Result<Mined, SendError> {
    account.send(&calls::approve_service(account.deployment(), request)).await
}

/// Rejects a service request, which ends it for every operator.
///
/// # Errors
/// [`SendError`].
pub async fn reject(account: &Account, request: u64) -> Result<Mined, SendError> {
    account.send(&calls::reject_service(account.deployment(), request)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_key_is_the_uncompressed_point_of_the_address() {
        let key = PrivateKeySigner::random();
        let public = public_key(&key);
        assert_eq!((public.len(), public[0]), (65, 4));
        assert_eq!(Address::from_raw_public_key(&public[1..]), key.address());
    }
}
