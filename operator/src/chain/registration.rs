//! Being an operator of the blueprint.

use alloy::primitives::B256;
use alloy::signers::local::PrivateKeySigner;
use sandbox_protocol::abi::OperatorProfile;
use sandbox_sdk::Chain;
use sandbox_sdk::calls;
use sandbox_sdk::chain::SendError;
use sandbox_sdk::contracts::IAgentSandboxBlueprint::OperatorView;
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

/// Registers the account with its offer; where it is registered with another, publishes this one.
pub(crate) async fn ensure(
    chain: &Chain,
    sender: &Sender,
    key: &PrivateKeySigner,
    offer: &OfferConfig,
) -> Result<(), RegistrationError> {
    let (core, deployment) = (chain.core(), chain.deployment());
    let registered = until_answered("registration", || async {
        core.isOperatorRegistered(deployment.blueprint_id, key.address()).call().await
    });
    let profile = profile(offer);
    let invocation = if registered.await {
        let published = until_answered("profile", || chain.operator(key.address())).await;
        if is_same(&published, &profile) {
            return Ok(());
        }
        calls::set_operator_profile(deployment, &profile)
    } else {
        calls::register_operator(deployment, public_key(key), &profile)
    };
    let mined = sender.send(invocation).await?.map_err(RegistrationError::Refused)?;
    tracing::info!(transaction = %mined.transaction, "published as an operator of blueprint {}", deployment.blueprint_id);
    Ok(())
}

fn profile(offer: &OfferConfig) -> OperatorProfile {
    OperatorProfile {
        capacity: offer.capacity.sandboxes,
        pricePerHour: offer.price_per_hour,
        sealKey: B256::ZERO,
        apiUrl: offer.api_url.clone(),
    }
}

fn is_same(published: &OperatorView, profile: &OperatorProfile) -> bool {
    published.capacity == profile.capacity
        && published.pricePerHour == profile.pricePerHour
        && published.sealKey == profile.sealKey
        && published.apiUrl == profile.apiUrl
}
