//! How a blueprint is paid for: what is asked for, and how that goes with what stands.

use alloy::primitives::U256;
use serde::Serialize;

use super::asset::Asset;
use super::prices::PriceTable;
use crate::contracts::ITangleCore::BlueprintConfig;

/// The core's numbers.
const PAY_ONCE: u8 = 0;
const SUBSCRIPTION: u8 = 1;
const EVENT_DRIVEN: u8 = 2;

/// How services are paid for. The core fixes it when the blueprint is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pricing {
    /// Each call by its job's rate, or by a quote.
    EventDriven,
    /// A service as a whole, when it is requested.
    PayOnce,
    /// A service by the interval, out of what was deposited.
    Subscription {
        /// For one interval, in the smallest units of the asset that services are paid in.
        rate: U256,
        /// Seconds.
        interval_s: u64,
    },
}

/// The least that a service costs, where services are paid for as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Floor {
    /// What services are paid in.
    pub asset: Asset,
    /// For each operator and hour, in the asset's smallest units; zero is no floor.
    pub per_operator_hour: U256,
}

/// What is asked for. What is absent stays as it stands; where nothing stands, the blueprint is event-driven at the
/// built-in prices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// How services are paid for.
    pub pricing: Option<Pricing>,
    /// Prices of jobs, of an event-driven blueprint.
    pub prices: Option<PriceTable>,
    /// The floor, of one that is not.
    pub floor: Option<Floor>,
    /// Lets the asset change though prices or a floor are set. Services that run keep the old settlement asset and are
    /// charged the new rates in it.
    pub asset_may_change: bool,
}

/// Terms that do not go together, or not with the blueprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// The pricing is another one.
    #[error("blueprint {blueprint} is {stands}, which the core does not change; {asked} takes a deployment of its own")]
    Fixed {
        /// The blueprint.
        blueprint: u64,
        /// Its pricing.
        stands: String,
        /// What was asked for.
        asked: String,
    },
    /// The core knows a pricing that is unknown here.
    #[error("blueprint {blueprint} has a pricing that is unknown here: {found}")]
    Unknown {
        /// The blueprint.
        blueprint: u64,
        /// The core's number.
        found: u8,
    },
    /// A floor for a blueprint whose calls are paid one by one.
    #[error("an event-driven blueprint is paid by the call: it has job prices and no floor")]
    FloorOfCalls,
    /// Job prices for a blueprint whose services are paid for as a whole.
    #[error("job prices are for event-driven blueprints: this one is {0} and has a floor")]
    PricesOfServices(String),
    /// There is no floor to be kept.
    #[error("a blueprint that is {0} needs a floor: without one its services may be paid with nothing")]
    NoFloor(String),
    /// There are no prices to be kept, and the built-in ones are in another asset.
    #[error("blueprint {blueprint} settles in {asset} and has no prices yet: give a price table in that asset")]
    NoPrices {
        /// The blueprint.
        blueprint: u64,
        /// Its settlement asset.
        asset: alloy::primitives::Address,
    },
    /// The settlement asset would change under running services.
    #[error(
        "blueprint {blueprint} settles in {stands}, the prices are in {asked}: services that run keep their asset and would be \
         charged the new rates in it"
    )]
    AssetStands {
        /// The blueprint.
        blueprint: u64,
        /// Its settlement asset; zero is the chain's coin.
        stands: alloy::primitives::Address,
        /// That of the prices.
        asked: alloy::primitives::Address,
    },
    /// The floor's asset would change, which is seldom meant.
    #[error(
        "the floor of blueprint {blueprint} is in {stands}, not in {asked}: services would have to be paid in another asset"
    )]
    FloorAssetStands {
        /// The blueprint.
        blueprint: u64,
        /// Its floor's asset; zero is the chain's coin.
        stands: alloy::primitives::Address,
        /// That of the floor asked for.
        asked: alloy::primitives::Address,
    },
    /// A subscription needs both.
    #[error("a subscription's rate and interval must be above zero")]
    EmptySubscription,
}

impl Pricing {
    /// The pricing of a blueprint's configuration; its number where it is unknown here.
    pub(super) fn of(config: &BlueprintConfig) -> Result<Self, u8> {
        match config.pricing {
            PAY_ONCE => Ok(Self::PayOnce),
            SUBSCRIPTION => {
                Ok(Self::Subscription { rate: config.subscriptionRate, interval_s: config.subscriptionInterval })
            }
            EVENT_DRIVEN => Ok(Self::EventDriven),
            unknown => Err(unknown),
        }
    }

    /// The core's number.
    pub(super) const fn id(self) -> u8 {
        match self {
            Self::PayOnce => PAY_ONCE,
            Self::Subscription { .. } => SUBSCRIPTION,
            Self::EventDriven => EVENT_DRIVEN,
        }
    }

    /// In words.
    pub fn words(self) -> String {
        match self {
            Self::EventDriven => "event-driven".into(),
            Self::PayOnce => "pay-once".into(),
            Self::Subscription { rate, interval_s } => format!("a subscription of {rate} units per {interval_s} s"),
        }
    }
}
