//! What is left to do: the difference between what stands and what is asked for. Nothing here asks or sends anything.

use std::collections::BTreeMap;

use alloy::primitives::{Address, B256, U256};
use sandbox_protocol::Job;

use super::asset::Asset;
use super::definition::{blueprint_definition, metadata, metadata_hash, sources, sources_hash};
use super::prices::PriceTable;
use super::standing::{Blueprint, Creation, Standing};
use super::terms::{Floor, Pricing, Terms, TermsError};
use super::{DeployError, Plan, Release};
use crate::calls::Invocation;
use crate::contracts::ITangleCore::BlueprintDefinition;
use crate::contracts::{IAgentSandboxBlueprint, ITangleCore};

/// One transaction of a deployment.
#[derive(Debug, Clone)]
pub(super) enum Step {
    CreateContract { at: Address, creation: Creation, arguments: (Address, Address, u64) },
    CreateBlueprint { core: Address, id: u64, definition: Box<BlueprintDefinition>, asset: Asset },
    SetAsset { core: Address, blueprint: u64, asset: Asset },
    SetRates { core: Address, blueprint: u64, asset: Asset, rates: BTreeMap<Job, U256> },
    SetFloor { manager: Address, floor: Floor },
    SetSources { core: Address, blueprint: u64, release: Release },
    SetMetadata { core: Address, blueprint: u64, uri: String, hash: B256 },
}

impl Step {
    /// The transaction.
    pub(super) fn invocation(&self) -> Invocation {
        match self {
            Self::CreateContract { creation, .. } => creation.invocation.clone(),
            Self::CreateBlueprint { core, definition, .. } => {
                let definition = definition.as_ref().clone();
                Invocation::new(*core, &ITangleCore::createBlueprintCall { definition })
            }
            Self::SetAsset { core, blueprint, asset } => {
                let (blueprint, asset) = (*blueprint, asset.address);
                let call = ITangleCore::setBlueprintSettlementAssetCall { blueprintId: blueprint, asset };
                Invocation::new(*core, &call)
            }
            Self::SetRates { core, blueprint, rates, .. } => {
                let (ids, rates) = rates.iter().map(|(job, rate)| (job.id(), *rate)).unzip();
                let call = ITangleCore::setJobEventRatesCall { blueprintId: *blueprint, jobIndexes: ids, rates };
                Invocation::new(*core, &call)
            }
            Self::SetFloor { manager, floor } => {
                let (asset, amount) = (floor.asset.address, floor.per_operator_hour);
                let call = IAgentSandboxBlueprint::setServiceFloorCall { asset, perOperatorHour: amount };
                Invocation::new(*manager, &call)
            }
            Self::SetSources { core, blueprint, release } => {
                let sources = sources(release);
                Invocation::new(*core, &ITangleCore::setBlueprintSourcesCall { blueprintId: *blueprint, sources })
            }
            Self::SetMetadata { core, blueprint, uri, hash } => {
                let (uri, hash) = (uri.clone(), *hash);
                let call =
                    ITangleCore::updateBlueprintCall { blueprintId: *blueprint, metadataUri: uri, metadataHash: hash };
                Invocation::new(*core, &call)
            }
        }
    }
}

/// Every transaction that is left, in its order. `is_settled`: an earlier run did all that it was asked for, so whatever is
/// not asked for now stays as it stands.
pub(super) fn remaining(
    standing: &Standing,
    plan: &Plan,
    (from, is_settled): (Address, bool),
) -> Result<Vec<Step>, DeployError> {
    let mut steps = Vec::new();
    let contract = &standing.contract;
    if let Some(creation) = &contract.creation {
        let arguments = (plan.core, contract.creator, plan.block_time_ms);
        steps.push(Step::CreateContract { at: contract.at, creation: creation.clone(), arguments });
    }
    let (blueprint, wanted) = match &standing.blueprint {
        Some(blueprint) => (blueprint.clone(), of_standing(blueprint, &plan.terms, is_settled)?),
        None if contract.creator != from => {
            return Err(DeployError::ForeignContract { at: contract.at, creator: contract.creator, from });
        }
        None => {
            let wanted = of_new(&plan.terms)?;
            let (step, blueprint) = creation(standing, plan, &wanted)?;
            steps.push(step);
            (blueprint, wanted)
        }
    };
    let changes = changes(&blueprint, plan, contract.at, wanted);
    if !changes.is_empty() && blueprint.owner != from {
        return Err(DeployError::ForeignBlueprint { blueprint: blueprint.id, owner: blueprint.owner, from });
    }
    steps.extend(changes);
    Ok(steps)
}

/// What the blueprint must have; what is absent stays as it is.
struct Wanted {
    pricing: Pricing,
    prices: Option<PriceTable>,
    floor: Option<Floor>,
}

fn of_new(terms: &Terms) -> Result<Wanted, TermsError> {
    let pricing = terms.pricing.unwrap_or(Pricing::EventDriven);
    if let Pricing::Subscription { rate, interval_s } = pricing
        && (rate.is_zero() || interval_s == 0)
    {
        return Err(TermsError::EmptySubscription);
    }
    fits(pricing, terms)?;
    let is_event_driven = pricing == Pricing::EventDriven;
    if !is_event_driven && terms.floor.is_none() {
        return Err(TermsError::NoFloor(pricing.words()));
    }
    let prices = is_event_driven.then(|| terms.prices.clone().unwrap_or_else(PriceTable::built_in));
    Ok(Wanted { pricing, prices, floor: terms.floor.clone() })
}

fn of_standing(blueprint: &Blueprint, terms: &Terms, is_settled: bool) -> Result<Wanted, TermsError> {
    let id = blueprint.id;
    let pricing = Pricing::of(&blueprint.config).map_err(|found| TermsError::Unknown { blueprint: id, found })?;
    if let Some(asked) = terms.pricing.filter(|asked| *asked != pricing) {
        return Err(TermsError::Fixed { blueprint: id, stands: pricing.words(), asked: asked.words() });
    }
    fits(pricing, terms)?;
    let mut wanted = Wanted { pricing, prices: terms.prices.clone(), floor: terms.floor.clone() };
    if is_settled || wanted.prices.is_some() || wanted.floor.is_some() {
        return asset_stands(blueprint, wanted, terms.asset_may_change);
    }
    match pricing {
        Pricing::EventDriven if has_prices(blueprint) => Ok(wanted),
        Pricing::EventDriven if blueprint.asset.is_zero() => {
            wanted.prices = Some(PriceTable::built_in());
            Ok(wanted)
        }
        Pricing::EventDriven => Err(TermsError::NoPrices { blueprint: id, asset: blueprint.asset }),
        Pricing::PayOnce | Pricing::Subscription { .. } if blueprint.floor.1.is_zero() => {
            Err(TermsError::NoFloor(pricing.words()))
        }
        Pricing::PayOnce | Pricing::Subscription { .. } => Ok(wanted),
    }
}

fn fits(pricing: Pricing, terms: &Terms) -> Result<(), TermsError> {
    match pricing {
        Pricing::EventDriven if terms.floor.is_some() => Err(TermsError::FloorOfCalls),
        Pricing::PayOnce | Pricing::Subscription { .. } if terms.prices.is_some() => {
            Err(TermsError::PricesOfServices(pricing.words()))
        }
        Pricing::EventDriven | Pricing::PayOnce | Pricing::Subscription { .. } => Ok(()),
    }
}

fn asset_stands(blueprint: &Blueprint, wanted: Wanted, may_change: bool) -> Result<Wanted, TermsError> {
    let id = blueprint.id;
    let settles = wanted.prices.as_ref().map(|table| table.asset().address).filter(|_| has_prices(blueprint));
    if let Some(asked) = settles.filter(|asked| *asked != blueprint.asset && !may_change) {
        return Err(TermsError::AssetStands { blueprint: id, stands: blueprint.asset, asked });
    }
    let (stands, amount) = blueprint.floor;
    let floor = wanted.floor.as_ref().filter(|floor| !amount.is_zero() && !floor.per_operator_hour.is_zero());
    if let Some(asked) = floor.map(|floor| floor.asset.address).filter(|asked| *asked != stands && !may_change) {
        return Err(TermsError::FloorAssetStands { blueprint: id, stands, asked });
    }
    Ok(wanted)
}

/// Whether any job has a rate of its own.
fn has_prices(blueprint: &Blueprint) -> bool {
    blueprint.rates.values().any(|rate| *rate != blueprint.config.eventRate)
}

/// The step that creates the blueprint, and the blueprint as it stands after that.
fn creation(standing: &Standing, plan: &Plan, wanted: &Wanted) -> Result<(Step, Blueprint), DeployError> {
    let release = plan.release.as_ref().ok_or(DeployError::NoRelease)?;
    let contract = &standing.contract;
    let least = wanted.prices.as_ref().map_or(U256::ZERO, PriceTable::least);
    let definition = blueprint_definition(contract.at, release, (wanted.pricing, least));
    let blueprint = Blueprint {
        id: standing.next_blueprint,
        owner: contract.creator,
        config: definition.config.clone(),
        asset: Address::ZERO,
        rates: Job::ALL.into_iter().map(|job| (job, least)).collect(),
        floor: (Address::ZERO, U256::ZERO),
        metadata_uri: release.metadata_uri.clone(),
        sources: sources_hash(&definition.sources),
    };
    let prices = wanted.prices.as_ref().map(|table| table.asset().clone());
    let asset = prices.or(wanted.floor.as_ref().map(|floor| floor.asset.clone())).unwrap_or_else(Asset::coin);
    let definition = Box::new(definition);
    Ok((Step::CreateBlueprint { core: plan.core, id: blueprint.id, definition, asset }, blueprint))
}

/// The asset comes before the rates: were a service to begin between the two, it would pay small units of the right asset
/// and never of the wrong one.
fn changes(blueprint: &Blueprint, plan: &Plan, manager: Address, wanted: Wanted) -> Vec<Step> {
    let (core, id) = (plan.core, blueprint.id);
    let mut steps = Vec::new();
    if let Some(table) = wanted.prices {
        let asset = table.asset().clone();
        if asset.address != blueprint.asset {
            steps.push(Step::SetAsset { core, blueprint: id, asset: asset.clone() });
        }
        let differs = |(job, rate): &(&Job, &U256)| blueprint.rates.get(job) != Some(rate);
        let rates: BTreeMap<_, _> = table.rates().iter().filter(differs).map(|(job, rate)| (*job, *rate)).collect();
        if !rates.is_empty() {
            steps.push(Step::SetRates { core, blueprint: id, asset, rates });
        }
    }
    if let Some(floor) = wanted.floor.filter(|floor| !is_floor(blueprint.floor, floor)) {
        steps.push(Step::SetFloor { manager, floor });
    }
    if let Some(release) = &plan.release {
        if sources_hash(&sources(release)) != blueprint.sources {
            steps.push(Step::SetSources { core, blueprint: id, release: release.clone() });
        }
        if release.metadata_uri != blueprint.metadata_uri {
            let (uri, hash) = (release.metadata_uri.clone(), metadata_hash(&metadata()));
            steps.push(Step::SetMetadata { core, blueprint: id, uri, hash });
        }
    }
    steps
}

fn is_floor((asset, amount): (Address, U256), floor: &Floor) -> bool {
    amount == floor.per_operator_hour && (amount.is_zero() || asset == floor.asset.address)
}

#[cfg(test)]
mod tests;
