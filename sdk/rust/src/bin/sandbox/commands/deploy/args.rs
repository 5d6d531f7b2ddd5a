//! What `sandbox deploy` is asked for.

use std::path::PathBuf;

use alloy::primitives::Address;
use clap::ValueEnum;
use sandbox_sdk::deploy::NAME_DEFAULT;

/// Deploys the blueprint, continues a deployment, or changes what its owner may change.
#[derive(Debug, clap::Args)]
pub(crate) struct DeployArgs {
    /// Print every transaction with its arguments and gas, and send none
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Whose transactions a dry run shows, where no key is at hand
    #[arg(long, value_name = "ADDRESS", requires = "dry_run")]
    pub(crate) from: Option<Address>,
    /// Refuse to go on where the node serves another chain
    #[arg(long, value_name = "ID")]
    pub(crate) chain_id: Option<u64>,
    /// The node that the addresses file names, where the one used here is not for everybody
    #[arg(long, value_name = "URL")]
    pub(crate) public_rpc_url: Option<alloy::transports::http::reqwest::Url>,
    #[command(flatten)]
    pub(crate) contract: ContractArgs,
    #[command(flatten)]
    pub(crate) release: ReleaseArgs,
    #[command(flatten)]
    pub(crate) terms: TermsArgs,
    /// Print the built-in prices as a file to start from, and do nothing else
    #[arg(long, exclusive = true)]
    pub(crate) print_prices: bool,
}

/// The contract.
#[derive(Debug, clap::Args)]
pub(crate) struct ContractArgs {
    /// The Tangle core; by default the one in the addresses file
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) core: Option<Address>,
    /// Mean time between blocks; by default that of the contract in the addresses file
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) block_time_ms: Option<u64>,
    /// forge's artifact of the contract; by default that of the checkout
    #[arg(long, value_name = "FILE")]
    pub(crate) artifact: Option<PathBuf>,
    /// Tells apart the deployments that one key makes of the same contract
    #[arg(long, value_name = "NAME", default_value = NAME_DEFAULT)]
    pub(crate) name: String,
    /// The contract, where it was created by other means
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) contract: Option<Address>,
}

/// Where blueprint managers fetch the operator's program.
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// JSON file with metadata_uri, artifact_uri, binary and sha256
    #[arg(long, value_name = "FILE", conflicts_with = "unpublished")]
    pub(crate) release: Option<PathBuf>,
    /// There is none: operators start the program by hand
    #[arg(long)]
    pub(crate) unpublished: bool,
}

/// How it is paid for.
#[derive(Debug, clap::Args)]
pub(crate) struct TermsArgs {
    /// How services are paid for; fixed for good. Default: event-driven
    #[arg(long, value_enum)]
    pub(crate) pricing: Option<PricingName>,
    /// JSON file with an asset and a price for every job, of an event-driven blueprint
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
    /// Let the asset of prices or floor change; services that run keep theirs and are charged the new numbers in it
    #[arg(long)]
    pub(crate) change_asset: bool,
    /// Least price of an operator's hour, of a blueprint whose services are paid for as a whole; 0 is none
    #[arg(long, value_name = "AMOUNT", conflicts_with = "prices")]
    pub(crate) floor: Option<String>,
    /// Token that floor and subscription are in; by default the chain's coin
    #[arg(long, value_name = "ADDRESS", conflicts_with = "prices")]
    pub(crate) asset: Option<Address>,
    /// What a subscription takes each interval
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) subscription_rate: Option<String>,
    /// A subscription's interval
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) subscription_interval: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PricingName {
    /// Each call by its job's price, or by a quote
    EventDriven,
    /// A service as a whole, when it is requested
    PayOnce,
    /// A service by the interval
    Subscription,
}
