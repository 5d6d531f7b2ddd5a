//! Finding the blueprint. A node that is down is waited for; a node that serves something else ends the start.

use std::time::Duration;

use alloy::primitives::Address;
use alloy::providers::Provider as _;
use alloy::transports::TransportError;
use alloy::transports::http::reqwest::Url;
use sandbox_sdk::chain::{Chain, ConnectError};
use sandbox_sdk::contracts::ITangleCore::ITangleCoreInstance;
use sandbox_sdk::deployment::Deployment;

use super::counted::{self, Questions};
use crate::config::ChainConfig;
use crate::limits::{RETRY_PAUSE_MAX, RETRY_PAUSE_MIN};

/// Why the blueprint is not where the configuration says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FindError {
    /// The node serves another chain.
    #[error("CHAIN_ID is {expected}, but the node serves chain {found}")]
    WrongChain {
        /// As configured.
        expected: u64,
        /// As served.
        found: u64,
    },
    /// There is no contract at the core's address.
    #[error("TANGLE_CONTRACT {core}: there is no contract at this address on chain {chain_id}")]
    NoCore {
        /// As configured.
        core: Address,
        /// As served.
        chain_id: u64,
    },
    /// The contract there is not the core, or does not know the blueprint.
    #[error("TANGLE_CONTRACT {core} does not answer for BLUEPRINT_ID {blueprint}")]
    NoBlueprint {
        /// As configured.
        core: Address,
        /// As configured.
        blueprint: u64,
        /// What it said.
        source: alloy::contract::Error,
    },
    /// The blueprint is managed by nobody.
    #[error("BLUEPRINT_ID {blueprint} is not an agent sandbox blueprint: it has no manager contract")]
    Unmanaged {
        /// As configured.
        blueprint: u64,
    },
    /// The blueprint is not one of ours.
    #[error("BLUEPRINT_ID {blueprint} is not an agent sandbox blueprint")]
    NotOurs {
        /// As configured.
        blueprint: u64,
        /// What it said.
        source: alloy::contract::Error,
    },
    /// What was found does not hold together.
    #[error(transparent)]
    Connect(ConnectError),
    /// The node does not answer now.
    #[error("the node does not answer")]
    Unreachable(#[source] TransportError),
}

/// Waits for the node and finds the blueprint on it. What it is asked from then on is counted.
pub(crate) async fn find(config: &ChainConfig, questions: &Questions) -> Result<Chain, FindError> {
    let mut pause = RETRY_PAUSE_MIN;
    loop {
        match find_now(config, questions).await {
            Err(FindError::Unreachable(error)) => {
                tracing::warn!(error = %crate::error_chain(&error), "waiting for the node of the chain to answer");
            }
            Err(FindError::Connect(error @ ConnectError::Unreachable { .. })) => {
                tracing::warn!(error = %crate::error_chain(&error), "waiting for the node of the chain to answer");
            }
            settled => return settled,
        }
        tokio::time::sleep(pause).await;
        pause = Duration::min(pause * 2, RETRY_PAUSE_MAX);
    }
}

/// Finds the blueprint, or says why not.
pub(crate) async fn find_now(config: &ChainConfig, questions: &Questions) -> Result<Chain, FindError> {
    let ChainConfig { rpc_url, core, blueprint, .. } = config;
    let (core, blueprint) = (*core, *blueprint);
    let provider = counted::provider(rpc_url.clone(), questions.clone());
    let chain_id = provider.get_chain_id().await.map_err(FindError::Unreachable)?;
    if let Some(expected) = config.chain_id.filter(|expected| *expected != chain_id) {
        return Err(FindError::WrongChain { expected, found: chain_id });
    }
    if provider.get_code_at(core).await.map_err(FindError::Unreachable)?.is_empty() {
        return Err(FindError::NoCore { core, chain_id });
    }
    let found = ITangleCoreInstance::new(core, &provider).getBlueprint(blueprint).call().await;
    let manager =
        found.map_err(|source| unreachable_or(source, |source| FindError::NoBlueprint { core, blueprint, source }))?;
    if manager.manager.is_zero() {
        return Err(FindError::Unmanaged { blueprint });
    }
    let deployment =
        Deployment { chain_id, rpc_url: rpc_url.clone(), core, manager: manager.manager, blueprint_id: blueprint };
    let chain = Chain::with_provider(deployment, provider).await.map_err(FindError::Connect)?;
    let ours = chain.blueprint().deployedBlock().call().await;
    ours.map_err(|source| unreachable_or(source, |source| FindError::NotOurs { blueprint, source }))?;
    Ok(chain)
}

/// A node that broke off is no verdict on the contract.
fn unreachable_or(
    error: alloy::contract::Error,
    verdict: impl FnOnce(alloy::contract::Error) -> FindError,
) -> FindError {
    match error {
        alloy::contract::Error::TransportError(error) if !error.is_error_resp() => FindError::Unreachable(error),
        error => verdict(error),
    }
}

/// Where the node is, without what may be secret in it.
pub(crate) fn host_of(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}
