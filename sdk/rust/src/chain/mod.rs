//! A client of one blueprint on one chain, and an account that sends.
//!
//! [`Chain`] exists only once the node was asked: it serves the chain named, both contracts have code, and the core says
//! that the blueprint's manager is the one named. [`Account`] adds a key; nothing is sent that a simulation refuses.

mod account;
mod again;
mod broadcast;
mod customer;
pub(crate) mod pause;
mod reads;
mod receipts;
mod views;

use alloy::primitives::Address;
use alloy::providers::{DynProvider, Provider, ProviderBuilder};
use alloy::rpc::client::ClientBuilder;
use alloy::transports::TransportError;
use alloy::transports::http::Http;
use alloy::transports::utils::guess_local_url;
use reqwest::Url;

use crate::contracts::IAgentSandboxBlueprint::IAgentSandboxBlueprintInstance;
use crate::contracts::ITangleCore::ITangleCoreInstance;
use crate::deployment::Deployment;
use crate::limits::RPC_TIMEOUT;

pub use account::{Account, Mined, Nonces, SendError, Sender};
pub use again::{AskAgain, AskingAgain};
pub use broadcast::Patience;
pub use customer::{CustomerError, RequestedService, SubmittedJob, is_active};
pub use reads::{ReadError, Submission};
pub use receipts::Recorded;
pub use views::Cost;

/// A blueprint that was found where its addresses say.
#[derive(Debug, Clone)]
pub struct Chain {
    deployment: Deployment,
    provider: DynProvider,
}

/// A blueprint that is not where its addresses say.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The node does not answer.
    #[error("the node at {url} did not answer {question}")]
    Unreachable {
        /// Its URL, without credentials.
        url: String,
        /// What it was asked.
        question: &'static str,
        /// Why.
        source: TransportError,
    },
    /// The node serves another chain.
    #[error("the node serves chain {found}, the addresses are of chain {expected}")]
    WrongChain {
        /// By the addresses file.
        expected: u64,
        /// By the node.
        found: u64,
    },
    /// An address has no code.
    #[error("there is no contract at {address}, where the {role} should be")]
    NoCode {
        /// What should be there.
        role: &'static str,
        /// Where.
        address: Address,
    },
    /// The core does not know the blueprint.
    #[error("the core does not know blueprint {blueprint}")]
    NoBlueprint {
        /// Its id.
        blueprint: u64,
        /// What the core said.
        source: ReadError,
    },
    /// The blueprint belongs to another contract.
    #[error("blueprint {blueprint} is managed by {found}, not by {expected}")]
    WrongManager {
        /// Its id.
        blueprint: u64,
        /// By the addresses file.
        expected: Address,
        /// By the core.
        found: Address,
    },
}

/// A provider for a node. Every request has a bound: a node that accepts and stays silent is one that does not answer. A
/// question that it breaks off is asked again.
pub fn provider(url: Url) -> DynProvider {
    let client = reqwest::Client::builder().timeout(RPC_TIMEOUT).build().unwrap_or_default();
    let is_local = guess_local_url(&url);
    let client = ClientBuilder::default().layer(AskAgain).transport(Http::with_client(client, url), is_local);
    ProviderBuilder::default().connect_client(client).erased()
}

impl Chain {
    /// Connects to the deployment's node and checks what it serves.
    ///
    /// # Errors
    /// [`ConnectError`] with the first thing that does not hold.
    pub async fn connect(deployment: Deployment) -> Result<Self, ConnectError> {
        let provider = provider(deployment.rpc_url.clone());
        Self::with_provider(deployment, provider).await
    }

    /// As [`Chain::connect`], through a provider of the caller's. It needs neither signer nor fillers.
    ///
    /// # Errors
    /// As [`Chain::connect`].
    pub async fn with_provider(
        deployment: Deployment,
        provider: impl Provider + 'static,
    ) -> Result<Self, ConnectError> {
        let chain = Self { deployment, provider: provider.erased() };
        chain.check_chain_id().await?;
        chain.check_code("Tangle core", chain.deployment.core).await?;
        chain.check_code("blueprint", chain.deployment.manager).await?;
        chain.check_manager().await?;
        Ok(chain)
    }

    /// Where it is.
    pub const fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// The provider it reads through.
    pub const fn provider(&self) -> &DynProvider {
        &self.provider
    }

    /// The core's bindings, read only.
    pub fn core(&self) -> ITangleCoreInstance<&DynProvider> {
        ITangleCoreInstance::new(self.deployment.core, &self.provider)
    }

    /// Our blueprint's bindings, read only.
    pub fn blueprint(&self) -> IAgentSandboxBlueprintInstance<&DynProvider> {
        IAgentSandboxBlueprintInstance::new(self.deployment.manager, &self.provider)
    }

    async fn check_chain_id(&self) -> Result<(), ConnectError> {
        let expected = self.deployment.chain_id;
        let found = self.provider.get_chain_id().await.map_err(|e| self.unreachable("eth_chainId", e))?;
        if found == expected { Ok(()) } else { Err(ConnectError::WrongChain { expected, found }) }
    }

    async fn check_code(&self, role: &'static str, address: Address) -> Result<(), ConnectError> {
        let code = self.provider.get_code_at(address).await.map_err(|e| self.unreachable("eth_getCode", e))?;
        if code.is_empty() { Err(ConnectError::NoCode { role, address }) } else { Ok(()) }
    }

    async fn check_manager(&self) -> Result<(), ConnectError> {
        let (blueprint, expected) = (self.deployment.blueprint_id, self.deployment.manager);
        let stored = self.core().getBlueprint(blueprint).call().await;
        let found =
            stored.map_err(|e| ConnectError::NoBlueprint { blueprint, source: ReadError::of("getBlueprint", e) })?;
        if found.manager == expected {
            Ok(())
        } else {
            Err(ConnectError::WrongManager { blueprint, expected, found: found.manager })
        }
    }

    fn unreachable(&self, question: &'static str, source: TransportError) -> ConnectError {
        let mut url = self.deployment.rpc_url.clone();
        // Fails only for URLs that cannot carry credentials.
        let hidden = url.set_password(None).and_then(|()| url.set_username(""));
        url.set_query(None);
        let url = if hidden.is_ok() { url.to_string() } else { url.scheme().to_owned() };
        ConnectError::Unreachable { url, question, source }
    }
}
