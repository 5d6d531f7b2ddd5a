//! Putting the blueprint on a chain: contract, definition, prices; then a look whether the core took them.

mod artifact;
mod definition;
mod prices;

use std::path::PathBuf;

use alloy::network::TransactionBuilder as _;
use alloy::primitives::{Address, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::TransactionRequest;
use alloy::signers::local::PrivateKeySigner;
use alloy::transports::http::reqwest::Url;
use sandbox_protocol::Job;

use crate::calls::Invocation;
use crate::chain::{Chain, ConnectError, SendError, Sender};
use crate::contracts::ITangleCore;
use crate::deployment::Deployment;

pub use artifact::{ArtifactError, creation_code};
pub use definition::{Release, blueprint_definition, metadata_hash};
pub use prices::price_wei;

/// What a deployment is made from.
#[derive(Debug, Clone)]
pub struct Plan {
    /// HTTP endpoint of a node.
    pub rpc_url: Url,
    /// The Tangle core.
    pub core: Address,
    /// forge's artifact of `AgentSandboxBlueprint`.
    pub artifact: PathBuf,
    /// Mean time between blocks of the chain, in milliseconds.
    pub block_time_ms: u64,
    /// The operator binary that the definition points to.
    pub release: Release,
}

/// A deployment that was not completed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The artifact cannot be used.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The node did not tell its chain id.
    #[error("the node did not tell its chain id")]
    ChainId(#[source] alloy::transports::TransportError),
    /// The contract was not created.
    #[error("the contract was not created")]
    Contract(#[source] SendError),
    /// The creating transaction made no contract.
    #[error("the creating transaction made no contract")]
    NoContract,
    /// The blueprint was not created.
    #[error("the blueprint was not created")]
    Blueprint(#[source] SendError),
    /// The prices were not set.
    #[error("the prices were not set")]
    Prices(#[source] SendError),
    /// The core does not have what was sent.
    #[error("the deployment is not what was asked for")]
    Check(#[source] ConnectError),
}

/// Deploys the contract, creates the blueprint with its 42 jobs, sets their prices and checks the result.
///
/// # Errors
/// [`DeployError`] with the step that failed. What came before it stays on chain and harms nobody.
pub async fn deploy(plan: &Plan, owner: PrivateKeySigner) -> Result<Deployment, DeployError> {
    let provider = crate::chain::provider(plan.rpc_url.clone());
    let chain_id = provider.get_chain_id().await.map_err(DeployError::ChainId)?;
    let sender = Sender::new(provider, owner);

    let manager = create_contract(plan, &sender).await?;
    let blueprint_id = create_blueprint(plan, &sender, manager).await?;
    set_prices(plan, &sender, blueprint_id).await?;

    let deployment = Deployment { chain_id, rpc_url: plan.rpc_url.clone(), core: plan.core, manager, blueprint_id };
    Chain::connect(deployment.clone()).await.map_err(DeployError::Check)?;
    Ok(deployment)
}

async fn create_contract(plan: &Plan, sender: &Sender) -> Result<Address, DeployError> {
    let code = creation_code(&plan.artifact, (plan.core, sender.address(), plan.block_time_ms))?;
    let transaction = TransactionRequest::default().with_from(sender.address()).with_deploy_code(code);
    let mined = sender.send_transaction(transaction).await.map_err(DeployError::Contract)?;
    mined.receipt.contract_address.ok_or(DeployError::NoContract)
}

async fn create_blueprint(plan: &Plan, sender: &Sender, manager: Address) -> Result<u64, DeployError> {
    let definition = blueprint_definition(manager, &plan.release);
    let call = Invocation::new(plan.core, &ITangleCore::createBlueprintCall { definition });
    let mined = sender.send(&call).await.map_err(DeployError::Blueprint)?;
    let event: ITangleCore::BlueprintCreated = mined.event(plan.core).map_err(DeployError::Blueprint)?;
    Ok(event.blueprintId)
}

async fn set_prices(plan: &Plan, sender: &Sender, blueprint_id: u64) -> Result<(), DeployError> {
    let ids: Vec<u8> = (0..Job::TABLE_LENGTH).collect();
    let rates: Vec<U256> = ids.iter().map(|id| price_wei(*id)).collect();
    let call = ITangleCore::setJobEventRatesCall { blueprintId: blueprint_id, jobIndexes: ids, rates };
    sender.send(&Invocation::new(plan.core, &call)).await.map_err(DeployError::Prices)?;
    Ok(())
}
