//! `deploy`: puts the blueprint on a chain, or brings what stands there to what is asked for.

mod args;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use alloy::primitives::Address;
use alloy::providers::DynProvider;
use alloy::signers::local::PrivateKeySigner;
use alloy::transports::http::reqwest::Url;
use sandbox_sdk::chain::provider;
use sandbox_sdk::contracts::IManagerFacts::IManagerFactsInstance;
use sandbox_sdk::deploy::{Asset, Deployer, Done, Floor, Plan, PriceFile, PriceTable, Pricing, Release, Terms, salt};
use sandbox_sdk::deployment::Addresses;
use sandbox_sdk::devchain;

pub(crate) use args::DeployArgs;

use crate::failure::Failure;
use crate::output::Output;
use crate::settings::Settings;
use args::{ContractArgs, PricingName, ReleaseArgs, TermsArgs};

pub(crate) async fn run(args: DeployArgs, settings: &Settings, output: &Output) -> Result<ExitCode, Failure> {
    if args.print_prices {
        return show::built_in_prices(output);
    }
    let file = AddressesFile::open(settings, args.dry_run)?;
    let url = settings.rpc_url()?.or_else(|| file.known.as_ref().map(|known| known.rpc_url.clone()));
    let url = url.ok_or_else(|| Failure::usage("no node is named: give --rpc-url".into()))?;
    let provider = provider(url.clone());
    let plan = plan(&args, &provider, (url, &file)).await?;
    if args.dry_run {
        let from = args.from.map_or_else(|| settings.key().map(|key| key.address()), Ok)?;
        let deployer = open(&args, plan, (from, file.known)).await?;
        return show::preview(&deployer.preview().await?, output);
    }
    let key = settings.key()?;
    let deployer = open(&args, plan, (key.address(), file.known)).await?;
    let (deployer, sent) = send(deployer, key, (&file.path, output)).await?;
    show::deployed(&deployer, &sent, (&file.path, output)).await
}

/// The addresses file: where it is, and what it holds.
struct AddressesFile {
    path: PathBuf,
    known: Option<Addresses>,
}

impl AddressesFile {
    /// A dry run writes nothing and needs none.
    fn open(settings: &Settings, dry_run: bool) -> Result<Self, Failure> {
        let path = match settings.deployment_path() {
            Ok(path) => path,
            Err(_) if dry_run => return Ok(Self { path: PathBuf::new(), known: None }),
            Err(error) => return Err(error),
        };
        let known = if path.exists() { Some(Addresses::load(&path)?) } else { None };
        Ok(Self { path, known })
    }
}

async fn open(args: &DeployArgs, plan: Plan, (from, known): (Address, Option<Addresses>)) -> Result<Deployer, Failure> {
    let mut deployer = Deployer::open(plan, from, known).await?;
    if let Some(url) = &args.public_rpc_url {
        deployer.publish_node(url.clone());
    }
    Ok(deployer)
}

/// Sends what is left to do. The file is written before the first transaction, so that a place that cannot be written costs
/// nothing, and after each.
async fn send(
    mut deployer: Deployer,
    key: PrivateKeySigner,
    (path, output): (&PathBuf, &Output),
) -> Result<(Deployer, Vec<Done>), Failure> {
    let sender = deployer.sender(key);
    let mut sent = Vec::new();
    deployer.addresses().save(path)?;
    while let Some(done) = deployer.advance(&sender).await? {
        deployer.addresses().save(path)?;
        show::done(&done, output);
        sent.push(done);
    }
    deployer.addresses().save(path)?;
    Ok((deployer, sent))
}

async fn plan(args: &DeployArgs, provider: &DynProvider, (url, file): (Url, &AddressesFile)) -> Result<Plan, Failure> {
    let ContractArgs { core, block_time_ms, artifact, name, contract } = &args.contract;
    let known = file.known.as_ref();
    let core = core.or(known.map(|known| known.core));
    let core = core.ok_or_else(|| Failure::usage("the Tangle core is not known: give --core".into()))?;
    let named = known.and_then(|known| known.manager).or(*contract);
    let block_time_ms = match (block_time_ms, named) {
        (Some(given), _) => *given,
        (None, Some(contract)) => block_time_of(contract, provider).await?,
        (None, None) => {
            return Err(Failure::usage("the time between blocks is not known: give --block-time-ms".into()));
        }
    };
    Ok(Plan {
        release: release(&args.release)?,
        terms: terms(&args.terms, provider).await?,
        salt: salt(name),
        contract: *contract,
        chain_id: args.chain_id,
        ..Plan::new(url, core, artifact.clone().unwrap_or_else(devchain::artifact), block_time_ms)
    })
}

async fn block_time_of(contract: Address, provider: &DynProvider) -> Result<u64, Failure> {
    let facts = IManagerFactsInstance::new(contract, provider);
    let found = facts.BLOCK_TIME_MS().call().await.ok().and_then(|found| found.try_into().ok());
    let unknown = || {
        Failure::usage(format!(
            "the contract at {contract} does not tell its time between blocks: give --block-time-ms"
        ))
    };
    found.ok_or_else(unknown)
}

fn release(args: &ReleaseArgs) -> Result<Option<Release>, Failure> {
    match &args.release {
        Some(path) => Ok(Some(Release::load(path)?)),
        None => Ok(args.unpublished.then(Release::unpublished)),
    }
}

async fn terms(args: &TermsArgs, provider: &DynProvider) -> Result<Terms, Failure> {
    let prices = match &args.prices {
        None => None,
        Some(path) => {
            let file = PriceFile::load(path)?;
            let asset = Asset::at(provider, file.asset.unwrap_or_default()).await?;
            Some(PriceTable::new(&file, asset)?)
        }
    };
    let asset = Asset::at(provider, args.asset.unwrap_or_default()).await?;
    let floor = match &args.floor {
        Some(text) => Some(Floor { per_operator_hour: asset.units(text)?, asset: asset.clone() }),
        None => None,
    };
    Ok(Terms { pricing: pricing(args, &asset)?, prices, floor, asset_may_change: args.change_asset })
}

fn pricing(args: &TermsArgs, asset: &Asset) -> Result<Option<Pricing>, Failure> {
    let subscription = (&args.subscription_rate, args.subscription_interval);
    match (args.pricing, subscription) {
        (Some(PricingName::Subscription), (Some(rate), Some(interval_s))) => {
            Ok(Some(Pricing::Subscription { rate: asset.units(rate)?, interval_s }))
        }
        (Some(PricingName::Subscription), _) => {
            let words = "a subscription takes --subscription-rate and --subscription-interval";
            Err(Failure::usage(words.into()))
        }
        (_, (Some(_), _) | (_, Some(_))) => {
            Err(Failure::usage("rate and interval are for --pricing subscription".into()))
        }
        (Some(PricingName::EventDriven), _) => Ok(Some(Pricing::EventDriven)),
        (Some(PricingName::PayOnce), _) => Ok(Some(Pricing::PayOnce)),
        (None, _) => Ok(None),
    }
}
