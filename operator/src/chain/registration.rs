//! Being an operator of the blueprint.

use alloy::primitives::{Address, B256};
use alloy::signers::local::PrivateKeySigner;
use sandbox_protocol::abi::OperatorProfile;
use sandbox_sdk::Chain;
use sandbox_sdk::calls::{self, Invocation};
use sandbox_sdk::chain::{Mined, ReadError, SendError};
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

/// What is published of an operator, held against what it offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The account is no operator of the blueprint.
    Unregistered,
    /// What is published is what is offered.
    AsOffered(OperatorView),
    /// Something else is published.
    Outdated(OperatorView),
}

/// How `account` stands with `profile`.
pub(crate) async fn standing(
    chain: &Chain,
    account: Address,
    profile: &OperatorProfile,
) -> Result<Standing, ReadError> {
    let registered = chain.core().isOperatorRegistered(chain.deployment().blueprint_id, account).call().await;
    if !registered.map_err(ReadError::on("isOperatorRegistered"))? {
        return Ok(Standing::Unregistered);
    }
    let published = chain.operator(account).await?;
    let same = is_same(&published, profile);
    Ok(if same { Standing::AsOffered(published) } else { Standing::Outdated(published) })
}

/// The transaction that makes `key` an operator with `profile`.
pub(crate) fn registering(chain: &Chain, key: &PrivateKeySigner, profile: &OperatorProfile) -> Invocation {
    calls::register_operator(chain.deployment(), public_key(key), profile)
}

/// The transaction that publishes `profile`.
pub(crate) fn publishing(chain: &Chain, profile: &OperatorProfile) -> Invocation {
    calls::set_operator_profile(chain.deployment(), profile)
}

/// Registers the account with its profile; where it is registered with another, publishes this one. Gives the transaction, if
/// it took one, and whether the operator is paused by its own word.
pub(crate) async fn ensure(
    chain: &Chain,
    sender: &Sender,
    key: &PrivateKeySigner,
    profile: &OperatorProfile,
) -> Result<(Option<Mined>, bool), RegistrationError> {
    let (invocation, paused) = match until_answered("registration", || standing(chain, key.address(), profile)).await {
        Standing::AsOffered(published) => return Ok((None, published.paused)),
        Standing::Outdated(published) => (publishing(chain, profile), published.paused),
        Standing::Unregistered => (registering(chain, key, profile), false),
    };
    let mined = sender.send(invocation).await?.map_err(RegistrationError::Refused)?;
    let blueprint = chain.deployment().blueprint_id;
    tracing::info!(transaction = %mined.transaction, "published as an operator of blueprint {blueprint}");
    Ok((Some(mined), paused))
}

/// What is to be published of an operator with this offer, to whom fields are sealed by `seal_key`.
pub(crate) fn profile(offer: &OfferConfig, seal_key: B256) -> OperatorProfile {
    OperatorProfile {
        capacity: offer.capacity.sandboxes,
        pricePerHour: offer.price_per_hour,
        sealKey: seal_key,
        apiUrl: offer.api_url.clone(),
    }
}

fn is_same(published: &OperatorView, profile: &OperatorProfile) -> bool {
    published.capacity == profile.capacity
        && published.pricePerHour == profile.pricePerHour
        && published.sealKey == profile.sealKey
        && published.apiUrl == profile.apiUrl
}
