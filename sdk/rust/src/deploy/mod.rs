//! Putting the blueprint on a chain: contract, definition, prices; then a look whether the core took them.
//!
//! A deployment is the difference between what stands and what is asked for. It is taken anew before each transaction, so a
//! run that was interrupted anywhere is continued by the next, and one that finds nothing to do sends nothing.
//!
//! | module | what it is |
//! |---|---|
//! | `artifact` | forge's artifact |
//! | `asset`, `prices`, `terms` | what is paid, in what, and how |
//! | `definition` | the blueprint as the core stores it |
//! | `standing` | what stands on chain |
//! | `steps` | what is left to do: a pure function |
//! | `describe`, `preview` | the same in words, with gas, without sending |

mod artifact;
mod asset;
mod definition;
mod describe;
mod preview;
mod prices;
mod standing;
mod steps;
mod terms;

use std::path::PathBuf;

use alloy::primitives::{Address, B256, U256, keccak256};
use alloy::providers::{DynProvider, Provider as _};
use alloy::signers::local::PrivateKeySigner;
use alloy::transports::http::reqwest::Url;
use tokio::time::Instant;

use crate::chain::pause::Pause;
use crate::chain::{Chain, ConnectError, ReadError, SendError, Sender};
use crate::contracts::ITangleCore::{BlueprintCreated, ITangleCoreInstance};
use crate::deployment::{Addresses, Deployment};
use crate::limits::MINED_WITHIN_DEFAULT;

pub use artifact::{Artifact, ArtifactError};
pub use asset::{AmountError, Asset, AssetError};
pub use definition::{Release, ReleaseError, blueprint_definition};
pub use describe::{Argument, Sending};
pub use preview::Preview;
pub use prices::{PriceError, PriceFile, PriceTable, price_wei};
pub use standing::FACTORY;
pub use terms::{Floor, Pricing, Terms, TermsError};

use standing::{Standing, Surveyor};
use steps::{Step, remaining};

/// The name of a deployment that was given none.
pub const NAME_DEFAULT: &str = "agent-sandbox";

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
    /// The operator binary that the blueprint points to. Where it is absent, what stands is kept; a new blueprint needs it.
    pub release: Option<Release>,
    /// How it is paid for.
    pub terms: Terms,
    /// Tells this deployment from others that one account makes of the same contract; see [`salt`].
    pub salt: B256,
    /// The contract, where it was created by other means.
    pub contract: Option<Address>,
    /// The chain that it must be.
    pub chain_id: Option<u64>,
}

impl Plan {
    /// An event-driven blueprint at the built-in prices whose release nobody can fetch.
    pub fn new(rpc_url: Url, core: Address, artifact: PathBuf, block_time_ms: u64) -> Self {
        let (release, terms, salt) = (Some(Release::unpublished()), Terms::default(), salt(NAME_DEFAULT));
        Self { rpc_url, core, artifact, block_time_ms, release, terms, salt, contract: None, chain_id: None }
    }
}

/// The salt of a deployment's name.
pub fn salt(name: &str) -> B256 {
    keccak256(name)
}

/// A deployment that was not completed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The artifact cannot be used.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The terms cannot be met.
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// The node did not answer.
    #[error(transparent)]
    Read(ReadError),
    /// The node serves another chain.
    #[error("the node serves chain {found}, not chain {expected}")]
    WrongChain {
        /// By the addresses file, or by the plan.
        expected: u64,
        /// By the node.
        found: u64,
    },
    /// The addresses file is of another core.
    #[error("the addresses are of a blueprint in the core {known}, not in {asked}")]
    WrongCore {
        /// By the addresses file.
        known: Address,
        /// By the plan.
        asked: Address,
    },
    /// The core does not answer as one.
    #[error("{core} does not answer as a Tangle core")]
    NotCore {
        /// Its address.
        core: Address,
        /// What it said.
        source: ReadError,
    },
    /// The chain cannot create contracts in the way that is used here.
    #[error(
        "this chain has no CREATE2 factory at {FACTORY}: create the contract by other means (`forge create`) and name it"
    )]
    NoFactory,
    /// Two contracts are named.
    #[error("the addresses name the contract {known}, not {named}")]
    OtherContract {
        /// By the addresses file.
        known: Address,
        /// By the plan.
        named: Address,
    },
    /// There is no contract where one is named.
    #[error(
        "there is no contract at {at}: is this another chain, or was it begun anew? Without its addresses file a deployment begins anew, too"
    )]
    Vanished {
        /// Where.
        at: Address,
    },
    /// The contract is not ours.
    #[error("the contract at {at} does not answer as an agent sandbox blueprint")]
    NotOurs {
        /// Where.
        at: Address,
        /// What it said.
        source: ReadError,
    },
    /// The contract serves another core.
    #[error("the contract at {at} serves the core {found}, not {expected}")]
    OtherCore {
        /// Where.
        at: Address,
        /// By the contract.
        found: Address,
        /// By the plan.
        expected: Address,
    },
    /// The contract counts time otherwise.
    #[error("the contract at {at} was created for a block every {found} ms, not every {expected} ms")]
    BlockTime {
        /// Where.
        at: Address,
        /// By the contract.
        found: U256,
        /// By the plan.
        expected: u64,
    },
    /// The contract's code is not the artifact's.
    #[error("the code of the contract at {at} is not that of {}", artifact.display())]
    OtherCode {
        /// Where.
        at: Address,
        /// The artifact.
        artifact: PathBuf,
    },
    /// The contract is bound to another blueprint than the addresses say.
    #[error("the addresses name blueprint {known}, the contract at {at} serves {}", found.map_or_else(|| "none".into(), |id| id.to_string()))]
    OtherBlueprint {
        /// The contract.
        at: Address,
        /// By the addresses file.
        known: u64,
        /// By the contract.
        found: Option<u64>,
    },
    /// The blueprint has ended.
    #[error("blueprint {blueprint} was deactivated by its owner, for good")]
    Deactivated {
        /// Its id.
        blueprint: u64,
    },
    /// The blueprint must be created by somebody else.
    #[error("the blueprint of the contract at {at} must be created by {creator}, not by {from}")]
    ForeignContract {
        /// The contract.
        at: Address,
        /// Whom it was created for.
        creator: Address,
        /// Who tries.
        from: Address,
    },
    /// The blueprint belongs to somebody else.
    #[error("blueprint {blueprint} belongs to {owner}, {from} cannot change it")]
    ForeignBlueprint {
        /// Its id.
        blueprint: u64,
        /// Its owner.
        owner: Address,
        /// Who tries.
        from: Address,
    },
    /// A new blueprint needs a release to point to.
    #[error("a new blueprint needs a release: where operators' managers fetch the program")]
    NoRelease,
    /// Earlier transactions of the account are on their way.
    #[error("{waiting} transactions of {from} are in no block yet; run this again when they are")]
    Waiting {
        /// The account.
        from: Address,
        /// How many.
        waiting: u64,
    },
    /// A transaction did not do what it should.
    #[error("could not {what}")]
    Step {
        /// What it was to do.
        what: String,
        /// Why.
        source: SendError,
    },
    /// The contract is larger than chains take.
    #[error("could not create the contract: it has {bytes} bytes, and chains commonly take 24,576")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// What the chain said.
        source: SendError,
    },
    /// The node does not show what was sent, or no longer.
    #[error("the node does not show what was done: {0}")]
    Stuck(String),
    /// The core does not have what was sent.
    #[error("the deployment is not what was asked for")]
    Check(#[source] ConnectError),
}

/// A transaction that was sent and did what it should.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Done {
    /// What it did.
    pub what: String,
    /// Its hash.
    pub transaction: B256,
    /// Gas that it used.
    pub gas_used: u64,
}

/// A deployment under way.
#[derive(Debug)]
pub struct Deployer {
    plan: Plan,
    provider: DynProvider,
    from: Address,
    addresses: Addresses,
    /// What the last transaction did.
    last: Option<String>,
}

/// Deploys the contract, creates the blueprint with its 42 jobs, sets their prices and checks the result.
///
/// # Errors
/// [`DeployError`] with the step that failed. What came before it stays on chain, and another call continues there.
pub async fn deploy(plan: &Plan, owner: PrivateKeySigner) -> Result<Deployment, DeployError> {
    let mut deployer = Deployer::open(plan.clone(), owner.address(), None).await?;
    let sender = deployer.sender(owner);
    while let Some(done) = deployer.advance(&sender).await? {
        tracing::debug!(what = done.what, transaction = %done.transaction, "deploying");
    }
    deployer.deployment().await
}

impl Deployer {
    /// A deployment by `from`. `known` is what an earlier run wrote down.
    ///
    /// # Errors
    /// The node does not answer, or serves something else than is known or planned.
    pub async fn open(plan: Plan, from: Address, known: Option<Addresses>) -> Result<Self, DeployError> {
        let provider = crate::chain::provider(plan.rpc_url.clone());
        let chain_id = provider.get_chain_id().await.map_err(node("eth_chainId"))?;
        // A file without a contract binds nobody: it may be left from an attempt in the wrong place.
        let known = known.filter(|known| known.manager.is_some());
        let addresses = known.unwrap_or_else(|| Addresses::none(chain_id, plan.rpc_url.clone(), plan.core));
        let expected = [Some(addresses.chain_id), plan.chain_id].into_iter().flatten();
        if let Some(expected) = expected.into_iter().find(|expected| *expected != chain_id) {
            return Err(DeployError::WrongChain { expected, found: chain_id });
        }
        if addresses.core != plan.core {
            return Err(DeployError::WrongCore { known: addresses.core, asked: plan.core });
        }
        let count = ITangleCoreInstance::new(plan.core, &provider).blueprintCount().call().await;
        count.map_err(|error| DeployError::NotCore {
            core: plan.core,
            source: ReadError::of("blueprintCount", error),
        })?;
        Ok(Self { plan, provider, from, addresses, last: None })
    }

    /// Names a node in the addresses that everybody may use.
    pub fn publish_node(&mut self, rpc_url: Url) {
        self.addresses.rpc_url = rpc_url;
    }

    /// Sends for this deployment with the key of its account.
    pub fn sender(&self, key: PrivateKeySigner) -> Sender {
        Sender::new(self.provider.clone(), key)
    }

    /// What there is of it, to be written down after each step.
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// What would be sent from here on. Nothing is.
    ///
    /// # Errors
    /// [`DeployError`], also where the chain would refuse one of the transactions.
    pub async fn preview(&self) -> Result<Preview, DeployError> {
        let (_, steps) = self.remaining().await?;
        Ok(Preview {
            chain_id: self.addresses.chain_id,
            from: self.from,
            gas_price: self.provider.get_gas_price().await.map_err(node("eth_gasPrice"))?,
            transactions: preview::preview(&self.provider, self.from, &steps).await?,
        })
    }

    /// Sends the next transaction and waits for it; `None` where nothing is left to do.
    ///
    /// # Errors
    /// [`DeployError`].
    pub async fn advance(&mut self, sender: &Sender) -> Result<Option<Done>, DeployError> {
        // First, since what is on its way is not shown by the look.
        self.queue_is_empty().await?;
        let (standing, mut steps) = self.remaining().await?;
        if standing.contract.creation.is_none() {
            self.addresses.manager = Some(standing.contract.at);
        }
        self.addresses.blueprint_id = standing.blueprint.as_ref().map(|blueprint| blueprint.id);
        // What was complete stays so while it is changed: its clients go on.
        self.addresses.complete |= steps.is_empty();
        if steps.is_empty() {
            return Ok(None);
        }
        let what = steps[0].what();
        if self.last.as_ref() == Some(&what) {
            return Err(DeployError::Stuck(what));
        }
        self.send(sender, steps.remove(0)).await.map(Some)
    }

    /// The complete deployment, checked as every client checks it.
    ///
    /// # Errors
    /// [`DeployError::Check`], [`DeployError::Stuck`].
    pub async fn deployment(&self) -> Result<Deployment, DeployError> {
        let missing = |missing: crate::deployment::Missing| DeployError::Stuck(missing.to_string());
        let deployment = self.addresses.deployment().map_err(missing)?;
        let checked = Deployment { rpc_url: self.plan.rpc_url.clone(), ..deployment.clone() };
        Chain::connect(checked).await.map_err(DeployError::Check)?;
        Ok(deployment)
    }

    async fn remaining(&self) -> Result<(Standing, Vec<Step>), DeployError> {
        let surveyor = Surveyor { provider: &self.provider, plan: &self.plan, known: &self.addresses, from: self.from };
        let standing = surveyor.look().await?;
        let steps = remaining(&standing, &self.plan, (self.from, self.addresses.complete))?;
        Ok((standing, steps))
    }

    async fn send(&mut self, sender: &Sender, step: Step) -> Result<Done, DeployError> {
        let what = step.what();
        let failed = |source| failure(&step, source);
        if matches!(step, Step::CreateContract { .. }) {
            self.factory_is_there().await?;
        }
        let mined = sender.send(&step.invocation()).await.map_err(failed)?;
        match &step {
            Step::CreateContract { at, .. } => self.addresses.manager = Some(*at),
            Step::CreateBlueprint { core, .. } => {
                let event: BlueprintCreated = mined.event(*core).map_err(failed)?;
                self.addresses.blueprint_id = Some(event.blueprintId);
            }
            Step::SetAsset { .. } | Step::SetRates { .. } | Step::SetFloor { .. } => {}
            Step::SetSources { .. } | Step::SetMetadata { .. } => {}
        }
        self.last = Some(what.clone());
        self.is_shown(mined.block, &what).await?;
        Ok(Done { what, transaction: mined.transaction, gas_used: mined.receipt.gas_used })
    }

    async fn factory_is_there(&self) -> Result<(), DeployError> {
        let code = self.provider.get_code_at(FACTORY).await.map_err(node("eth_getCode"))?;
        if code.is_empty() { Err(DeployError::NoFactory) } else { Ok(()) }
    }

    /// Waits until nothing of the account is on its way: an interrupted run may have sent what the next look does not show.
    async fn queue_is_empty(&self) -> Result<(), DeployError> {
        let until = Instant::now() + MINED_WITHIN_DEFAULT;
        let mut pause = Pause::new();
        loop {
            let question = node("eth_getTransactionCount");
            let mined = self.provider.get_transaction_count(self.from).await.map_err(question)?;
            let question = node("eth_getTransactionCount");
            let sent = self.provider.get_transaction_count(self.from).pending().await.map_err(question)?;
            let waiting = sent.saturating_sub(mined);
            if waiting == 0 {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(DeployError::Waiting { from: self.from, waiting });
            }
            pause.take().await;
        }
    }

    /// Waits until the node shows a block: behind one address there may be several, not all as far.
    async fn is_shown(&self, block: u64, what: &str) -> Result<(), DeployError> {
        let until = Instant::now() + MINED_WITHIN_DEFAULT;
        let mut pause = Pause::new();
        while self.provider.get_block_number().await.map_err(node("eth_blockNumber"))? < block {
            if Instant::now() >= until {
                return Err(DeployError::Stuck(what.to_owned()));
            }
            pause.take().await;
        }
        Ok(())
    }
}

fn node(question: &'static str) -> impl FnOnce(alloy::transports::TransportError) -> DeployError {
    move |error| DeployError::Read(ReadError::node(question)(error))
}

/// The code of a contract that chains commonly take (EIP-170).
const CODE_BYTES: usize = 24_576;

fn failure(step: &Step, source: SendError) -> DeployError {
    match step {
        Step::CreateContract { creation, .. } if creation.runtime_bytes > CODE_BYTES => {
            DeployError::TooLarge { bytes: creation.runtime_bytes, source }
        }
        _ => DeployError::Step { what: step.what(), source },
    }
}
