//! A transaction in words: whom it calls, which function, with which arguments by name.

use alloy::primitives::{Address, Bytes, U256, keccak256};
use sandbox_protocol::Job;
use serde::Serialize;

use super::asset::Asset;
use super::steps::Step;
use super::terms::Pricing;
use crate::contracts::ITangleCore::{BlueprintDefinition, BlueprintSource};

/// A transaction that is about to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sending {
    /// What it does.
    pub what: String,
    /// The contract that it calls.
    pub to: Address,
    /// The function, by its signature's name.
    pub function: &'static str,
    /// Its arguments, decoded.
    pub arguments: Vec<Argument>,
    /// Coin that goes with it, in wei.
    pub value: U256,
    /// Gas that it is expected to use; absent where the node could not tell.
    pub gas: Option<u64>,
    /// Length of its calldata.
    pub input_bytes: usize,
    /// keccak256 of its calldata.
    pub input_hash: alloy::primitives::B256,
    /// Its calldata.
    pub input: Bytes,
}

/// An argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Argument {
    /// Its name; of a part of a larger one, the part's.
    pub name: String,
    /// Its value, for people.
    pub value: String,
}

impl Step {
    /// What it does.
    pub(super) fn what(&self) -> String {
        match self {
            Self::CreateContract { at, .. } => format!("create the contract at {at}"),
            Self::CreateBlueprint { id, .. } => format!("create blueprint {id}"),
            Self::SetAsset { blueprint, asset, .. } => format!("let blueprint {blueprint} settle in {asset}"),
            Self::SetRates { blueprint, rates, .. } => {
                let jobs = if rates.len() == 1 {
                    "the price of 1 job".into()
                } else {
                    format!("the prices of {} jobs", rates.len())
                };
                format!("set {jobs} of blueprint {blueprint}")
            }
            Self::SetFloor { floor, .. } => {
                format!("set the floor to {} per operator and hour", floor.asset.amount(floor.per_operator_hour))
            }
            Self::SetSources { blueprint, release, .. } => {
                format!("point blueprint {blueprint} to {}", release.artifact_uri)
            }
            Self::SetMetadata { blueprint, uri, .. } => format!("point the metadata of blueprint {blueprint} to {uri}"),
        }
    }

    /// The whole transaction.
    pub(super) fn sending(&self) -> Sending {
        let invocation = self.invocation();
        let (function, arguments) = self.call();
        Sending {
            what: self.what(),
            to: invocation.to,
            function,
            arguments,
            value: invocation.value,
            gas: None,
            input_bytes: invocation.input.len(),
            input_hash: keccak256(&invocation.input),
            input: invocation.input,
        }
    }

    fn call(&self) -> (&'static str, Vec<Argument>) {
        match self {
            Self::CreateContract { creation, arguments: (core, creator, block_time_ms), .. } => {
                let arguments = vec![
                    argument("salt", creation.salt),
                    argument(
                        "creation code",
                        format!("{} bytes, the constructor's arguments included", creation.creation_bytes),
                    ),
                    argument("core", core),
                    argument("creator", creator),
                    argument("blockTimeMs", block_time_ms),
                ];
                ("create2", arguments)
            }
            Self::CreateBlueprint { definition, asset, .. } => ("createBlueprint", of_definition(definition, asset)),
            Self::SetAsset { blueprint, asset, .. } => {
                let arguments = vec![argument("blueprintId", blueprint), argument("asset", asset)];
                ("setBlueprintSettlementAsset", arguments)
            }
            Self::SetRates { blueprint, asset, rates, .. } => {
                let mut arguments = vec![argument("blueprintId", blueprint)];
                let rate = |(job, rate): (&Job, &U256)| {
                    argument(format!("{} {}", job.id(), job.name()), format!("{} = {rate}", asset.amount(*rate)))
                };
                arguments.extend(rates.iter().map(rate));
                ("setJobEventRates", arguments)
            }
            Self::SetFloor { floor, .. } => {
                let amount = floor.per_operator_hour;
                let shown = format!("{} = {amount}", floor.asset.amount(amount));
                ("setServiceFloor", vec![argument("asset", &floor.asset), argument("perOperatorHour", shown)])
            }
            Self::SetSources { blueprint, release, .. } => {
                let mut arguments = vec![argument("blueprintId", blueprint)];
                arguments.extend(super::definition::sources(release).iter().flat_map(of_source));
                ("setBlueprintSources", arguments)
            }
            Self::SetMetadata { blueprint, uri, hash, .. } => {
                let arguments = vec![
                    argument("blueprintId", blueprint),
                    argument("metadataUri", uri),
                    argument("metadataHash", hash),
                ];
                ("updateBlueprint", arguments)
            }
        }
    }
}

fn of_definition(definition: &BlueprintDefinition, asset: &Asset) -> Vec<Argument> {
    let config = &definition.config;
    let live = definition.jobs.iter().enumerate().filter(|(id, _)| is_live(*id));
    let jobs: Vec<_> = live.map(|(id, job)| format!("{id} {}", job.name)).collect();
    let pricing = match Pricing::of(config) {
        Ok(Pricing::Subscription { rate, interval_s }) => {
            format!("subscription of {} every {interval_s} s", asset.amount(rate))
        }
        Ok(pricing) => pricing.words(),
        Err(number) => number.to_string(),
    };
    let rate = config.eventRate;
    let event_rate = match config.pricing == Pricing::EventDriven.id() {
        true => format!("{} = {rate}: what jobs without a price of their own cost", asset.amount(rate)),
        false => rate.to_string(),
    };
    let mut arguments = vec![
        argument("manager", definition.manager),
        argument("metadataUri", &definition.metadataUri),
        argument("metadataHash", definition.metadataHash),
        argument("metadata", format!("{}: {}", definition.metadata.name, definition.metadata.description)),
        argument("config.pricing", pricing),
        argument("config.eventRate", event_rate),
        argument("config.operators", format!("{} to {}", config.minOperators, config.maxOperators)),
        argument("config.membership", "dynamic"),
        argument("jobs", format!("{}, of which {} live: {}", definition.jobs.len(), jobs.len(), jobs.join(", "))),
        argument("schemas", "none: the contract checks inputs"),
    ];
    arguments.extend(definition.sources.iter().flat_map(of_source));
    arguments
}

fn is_live(id: usize) -> bool {
    u8::try_from(id).is_ok_and(|id| Job::from_id(id).is_some())
}

fn of_source(source: &BlueprintSource) -> Vec<Argument> {
    let mut arguments = vec![argument("source", &source.native.artifactUri)];
    let binary = |binary: &crate::contracts::ITangleCore::BlueprintBinary| {
        argument("binary", format!("{} for Linux on x86-64, sha256 {}", binary.name, binary.sha256))
    };
    arguments.extend(source.binaries.iter().map(binary));
    arguments
}

fn argument(name: impl Into<String>, value: impl ToString) -> Argument {
    Argument { name: name.into(), value: value.to_string() }
}
