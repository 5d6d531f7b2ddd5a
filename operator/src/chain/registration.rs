//! Being an operator of the blueprint.

use alloy::primitives::B256;
use sandbox_protocol::abi::OperatorProfile;
use sandbox_sdk::Chain;
use sandbox_sdk::calls;
use sandbox_sdk::chain::SendError;
use sandbox_sdk::operators::public_key;

use super::sender::{Sender, Stopped};
use super::until_answered;
use crate::config::OfferConfig;

/// Why the account is no operator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistrationError {
    /// The chain refused it.
    #[error("cannot register as an operator (is the account staked?)")]
    Refused(#[source] SendError),
    /// The process is stopping.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Registers the account with its offer unless it is registered.
pub(crate) async fn ensure(
    chain: &Chain,
    sender: &Sender,
    key: &alloy::signers::local::PrivateKeySigner,
    offer: &OfferConfig,
) -> Result<(), RegistrationError> {
    let core = chain.core();
    let blueprint = chain.deployment().blueprint_id;
    let registered =
        until_answered("registration", || async { core.isOperatorRegistered(blueprint, key.address()).call().await });
    if registered.await {
        return Ok(());
    }
    let profile = OperatorProfile {
        capacity: offer.capacity.sandboxes,
        pricePerHour: offer.price_per_hour,
        sealKey: B256::ZERO,
        apiUrl: offer.api_url.clone(),
    };
    let register = calls::register_operator(chain.deployment(), public_key(key), &profile);
    let mined = sender.send(register).await?.map_err(RegistrationError::Refused)?;
    tracing::info!(transaction = %mined.transaction, "registered as an operator of blueprint {blueprint}");
    Ok(())
}
