//! What stands on chain of a deployment. Everything is asked anew before each step: a run that was interrupted, or another
//! account's deed, is found here and nowhere else.

use std::collections::BTreeMap;

use alloy::primitives::{Address, B256, Bytes, U256, address};
use alloy::providers::{DynProvider, Provider as _};
use sandbox_protocol::Job;

use super::artifact::Artifact;
use super::{DeployError, Plan};
use crate::calls::Invocation;
use crate::chain::ReadError;
use crate::contracts::IAgentSandboxBlueprint::IAgentSandboxBlueprintInstance;
use crate::contracts::IManagerFacts::IManagerFactsInstance;
use crate::contracts::ITangleCore::{BlueprintConfig, ITangleCoreInstance};
use crate::deployment::Addresses;

/// The factory that creates contracts at addresses which depend on their code alone; nearly every chain has it, anvil too.
/// Its calldata is a salt and creation code. A second creation of the same contract is refused by it.
pub const FACTORY: Address = address!("0x4e59b44847b379578588920cA78FbF26c0B4956C");
/// A service of one operator and this many seconds costs what an operator's hour does.
const HOUR_S: u64 = 3_600;

/// What stands.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    pub(super) contract: Contract,
    pub(super) blueprint: Option<Blueprint>,
    /// The id that the core gives next.
    pub(super) next_blueprint: u64,
}

/// The contract, or where it will be.
#[derive(Debug, Clone)]
pub(super) struct Contract {
    pub(super) at: Address,
    /// Who must create the blueprint.
    pub(super) creator: Address,
    /// How it is created, where it is not there.
    pub(super) creation: Option<Creation>,
}

/// A contract that is to be created.
#[derive(Debug, Clone)]
pub(super) struct Creation {
    pub(super) invocation: Invocation,
    pub(super) salt: B256,
    pub(super) creation_bytes: usize,
    pub(super) runtime_bytes: usize,
}

/// The blueprint.
#[derive(Debug, Clone)]
pub(super) struct Blueprint {
    pub(super) id: u64,
    pub(super) owner: Address,
    pub(super) config: BlueprintConfig,
    /// Settlement asset; zero is the chain's coin.
    pub(super) asset: Address,
    pub(super) rates: BTreeMap<Job, U256>,
    /// Asset, and amount for each operator and hour.
    pub(super) floor: (Address, U256),
    pub(super) metadata_uri: String,
    pub(super) sources: B256,
}

/// Asks a chain.
#[derive(Debug)]
pub(super) struct Surveyor<'a> {
    pub(super) provider: &'a DynProvider,
    pub(super) plan: &'a Plan,
    pub(super) known: &'a Addresses,
    pub(super) from: Address,
}

impl Surveyor<'_> {
    pub(super) async fn look(&self) -> Result<Standing, DeployError> {
        let count = self.core().blueprintCount().call().await;
        let next_blueprint = count.map_err(|error| DeployError::Read(ReadError::of("blueprintCount", error)))?;
        let Some((at, code)) = self.find().await? else {
            let contract = self.to_be_created()?;
            let code = self.code(contract.at).await?;
            if code.is_empty() {
                return Ok(Standing { contract, blueprint: None, next_blueprint });
            }
            return self.of_contract(contract.at, &code, next_blueprint).await;
        };
        self.of_contract(at, &code, next_blueprint).await
    }

    /// The contract that the addresses file names, or that was named otherwise. It must be there.
    async fn find(&self) -> Result<Option<(Address, Bytes)>, DeployError> {
        let (known, named) = (self.known.manager, self.plan.contract);
        if let (Some(known), Some(named)) = (known, named)
            && known != named
        {
            return Err(DeployError::OtherContract { known, named });
        }
        let Some(at) = known.or(named) else { return Ok(None) };
        let code = self.code(at).await?;
        if code.is_empty() { Err(DeployError::Vanished { at }) } else { Ok(Some((at, code))) }
    }

    fn to_be_created(&self) -> Result<Contract, DeployError> {
        let Plan { core, block_time_ms, salt, .. } = *self.plan;
        let artifact = Artifact::load(&self.plan.artifact)?;
        let code = artifact.creation_code((core, self.from, block_time_ms));
        let at = FACTORY.create2_from_code(salt, &code);
        let input = [salt.as_slice(), &code].concat().into();
        let creation = Creation {
            invocation: Invocation { to: FACTORY, input, value: U256::ZERO },
            salt,
            creation_bytes: code.len(),
            runtime_bytes: artifact.runtime_bytes(),
        };
        Ok(Contract { at, creator: self.from, creation: Some(creation) })
    }

    async fn of_contract(&self, at: Address, code: &[u8], next_blueprint: u64) -> Result<Standing, DeployError> {
        let facts = IManagerFactsInstance::new(at, self.provider);
        let ours = |question| move |error| DeployError::NotOurs { at, source: ReadError::of(question, error) };
        let core = facts.CORE().call().await.map_err(ours("CORE"))?;
        if core != self.plan.core {
            return Err(DeployError::OtherCore { at, found: core, expected: self.plan.core });
        }
        let creator = facts.CREATOR().call().await.map_err(ours("CREATOR"))?;
        let block_time = facts.BLOCK_TIME_MS().call().await.map_err(ours("BLOCK_TIME_MS"))?;
        if block_time != U256::from(self.plan.block_time_ms) {
            return Err(DeployError::BlockTime { at, found: block_time, expected: self.plan.block_time_ms });
        }
        let is_bound = facts.isBound().call().await.map_err(ours("isBound"))?;
        let contract = Contract { at, creator, creation: None };
        if !is_bound {
            // What a blueprint is bound to is bound for good.
            if !Artifact::load(&self.plan.artifact)?.is_runtime(code) {
                return Err(DeployError::OtherCode { at, artifact: self.plan.artifact.clone() });
            }
            return match self.known.blueprint_id {
                Some(known) => Err(DeployError::OtherBlueprint { at, known, found: None }),
                None => Ok(Standing { contract, blueprint: None, next_blueprint }),
            };
        }
        let id = facts.blueprintId().call().await.map_err(ours("blueprintId"))?;
        if let Some(known) = self.known.blueprint_id.filter(|known| *known != id) {
            return Err(DeployError::OtherBlueprint { at, known, found: Some(id) });
        }
        let blueprint = Some(self.blueprint(id, at).await?);
        Ok(Standing { contract, blueprint, next_blueprint })
    }

    async fn blueprint(&self, id: u64, manager: Address) -> Result<Blueprint, DeployError> {
        let core = self.core();
        let read = |question| move |error| DeployError::Read(ReadError::of(question, error));
        let stored = core.getBlueprint(id).call().await.map_err(read("getBlueprint"))?;
        if !stored.active {
            return Err(DeployError::Deactivated { blueprint: id });
        }
        let ours = IAgentSandboxBlueprintInstance::new(manager, self.provider);
        let jobs = ours.jobs().call().await.map_err(read("jobs"))?;
        let rates = jobs.iter().filter_map(|view| Some((Job::from_id(view.id)?, view.rate))).collect();
        let floor = ours.quoteService(1, HOUR_S).call().await.map_err(read("quoteService"))?;
        let metadata = core.blueprintMetadata(id).call().await.map_err(read("blueprintMetadata"))?;
        Ok(Blueprint {
            id,
            owner: stored.owner,
            config: core.getBlueprintConfig(id).call().await.map_err(read("getBlueprintConfig"))?,
            asset: core.getBlueprintSettlementAsset(id).call().await.map_err(read("getBlueprintSettlementAsset"))?,
            rates,
            floor: (floor.asset, floor.amount),
            metadata_uri: metadata.metadataUri,
            sources: core.blueprintSourcesHash(id).call().await.map_err(read("blueprintSourcesHash"))?,
        })
    }

    async fn code(&self, address: Address) -> Result<Bytes, DeployError> {
        let code = self.provider.get_code_at(address).await;
        code.map_err(|error| DeployError::Read(ReadError::node("eth_getCode")(error)))
    }

    fn core(&self) -> ITangleCoreInstance<&DynProvider> {
        ITangleCoreInstance::new(self.plan.core, self.provider)
    }
}
