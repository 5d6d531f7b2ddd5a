//! The price table: what a submitted job costs whatever its size. What depends on size and time is for quotes.
//!
//! Every rate is above zero. A call makes its operator send a receipt, which costs gas; a rate of zero would let anybody
//! fill an operator's queue for free, and to the core it means "the blueprint's least rate".

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use alloy::primitives::{Address, U256};
use sandbox_protocol::Job;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::asset::{AmountError, Asset};
use crate::limits::PAYMENT_UNITS_MIN;

const GWEI: u64 = 1_000_000_000;

/// The least that a job costs: an operator's share of it (40 %) covers the receipt's gas at 0.01 gwei.
const RECEIPT_WEI: U256 = U256::from_limbs([10_000 * GWEI, 0, 0, 0]);

/// The built-in rate of a job id in wei. Reserved ids, which the contract refuses, have the least.
pub fn price_wei(id: u8) -> U256 {
    Job::from_id(id).map_or(RECEIPT_WEI, |job| U256::from(price_gwei(job)) * U256::from(GWEI))
}

const fn price_gwei(job: Job) -> u64 {
    match job {
        Job::SandboxStop | Job::SandboxDelete | Job::BatchCollect | Job::WorkflowCancel | Job::SshRevoke => 10_000,
        Job::Exec | Job::SshProvision => 50_000,
        Job::SandboxResume | Job::WorkflowCreate => 100_000,
        Job::SandboxSnapshot | Job::Prompt | Job::WorkflowTrigger => 200_000,
        Job::SandboxCreate | Job::BatchExec => 500_000,
        Job::Task => 1_000_000,
        Job::BatchCreate | Job::BatchTask => 5_000_000,
    }
}

/// A rate for every job, in one asset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceTable {
    asset: Asset,
    rates: BTreeMap<Job, U256>,
}

/// A price file: an asset, and an amount of it for every job by its name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PriceFile {
    /// A token; absent for the chain's coin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asset: Option<Address>,
    rates: Rates,
}

/// Names and amounts in the order of the file; a name that stands twice is there twice.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rates(Vec<(String, String)>);

/// A price file that is not taken.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    /// The file cannot be read.
    #[error("cannot read the price file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a price file.
    #[error("{} is not a price file", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// It names a job that there is not.
    #[error("there is no job named {0:?}")]
    UnknownJob(String),
    /// It names a job twice.
    #[error("{0:?} has two prices")]
    Twice(String),
    /// It leaves jobs out. A price that nobody wrote is nobody's intention.
    #[error("no price for {}", .0.join(", "))]
    Unpriced(Vec<&'static str>),
    /// An amount is none.
    #[error("the price of {job:?}")]
    Amount {
        /// The job.
        job: String,
        /// Why.
        source: AmountError,
    },
    /// A price is less than the core takes.
    #[error("{job} costs {price}, the core takes no less than {least}")]
    TooSmall {
        /// The job.
        job: &'static str,
        /// Its price.
        price: String,
        /// The least.
        least: String,
    },
}

impl PriceTable {
    /// The table that stands in this library, in the chain's coin.
    pub fn built_in() -> Self {
        let rates = Job::ALL.into_iter().map(|job| (job, price_wei(job.id()))).collect();
        Self { asset: Asset::coin(), rates }
    }

    /// The table of a price file, whose asset this is.
    ///
    /// # Errors
    /// [`PriceError`] with the first thing that is wrong.
    pub fn new(file: &PriceFile, asset: Asset) -> Result<Self, PriceError> {
        let mut rates = BTreeMap::new();
        for (name, text) in &file.rates.0 {
            let named = Job::ALL.into_iter().find(|job| job.name() == name);
            let job = named.ok_or_else(|| PriceError::UnknownJob(name.clone()))?;
            let amount = |source| PriceError::Amount { job: name.clone(), source };
            if rates.insert(job, asset.units(text).map_err(amount)?).is_some() {
                return Err(PriceError::Twice(name.clone()));
            }
        }
        let unpriced: Vec<_> = Job::ALL.iter().filter(|job| !rates.contains_key(job)).map(|job| job.name()).collect();
        if !unpriced.is_empty() {
            return Err(PriceError::Unpriced(unpriced));
        }
        let least = U256::from(PAYMENT_UNITS_MIN);
        if let Some((job, rate)) = rates.iter().find(|(_, rate)| **rate < least) {
            let (price, least) = (asset.amount(*rate), asset.amount(least));
            return Err(PriceError::TooSmall { job: job.name(), price, least });
        }
        Ok(Self { asset, rates })
    }

    /// What the prices are in.
    pub const fn asset(&self) -> &Asset {
        &self.asset
    }

    /// The rates in the asset's smallest units.
    pub const fn rates(&self) -> &BTreeMap<Job, U256> {
        &self.rates
    }

    /// The least of them. It is what the core takes for an id that has no rate of its own.
    pub fn least(&self) -> U256 {
        self.rates.values().min().copied().unwrap_or(RECEIPT_WEI)
    }
}

impl PriceFile {
    /// Reads a price file.
    ///
    /// # Errors
    /// [`PriceError::Read`], [`PriceError::Parse`].
    pub fn load(path: &Path) -> Result<Self, PriceError> {
        let text = std::fs::read(path).map_err(|source| PriceError::Read { path: path.to_path_buf(), source })?;
        serde_json::from_slice(&text).map_err(|source| PriceError::Parse { path: path.to_path_buf(), source })
    }
}

impl From<&PriceTable> for PriceFile {
    fn from(table: &PriceTable) -> Self {
        let asset = (!table.asset.address.is_zero()).then_some(table.asset.address);
        let written = |(job, rate): (&Job, &U256)| (job.name().to_owned(), table.asset.text(*rate));
        Self { asset, rates: Rates(table.rates.iter().map(written).collect()) }
    }
}

impl Serialize for Rates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, amount)| (name, amount)))
    }
}

impl<'de> Deserialize<'de> for Rates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Rates;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("amounts by the names of jobs, each a text such as \"0.25\"")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Rates, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Rates(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_job_is_free_and_each_can_be_split() {
        for id in 0..Job::TABLE_LENGTH {
            assert!(price_wei(id) >= RECEIPT_WEI && price_wei(id) > U256::from(PAYMENT_UNITS_MIN), "job {id}");
        }
        assert_eq!(PriceTable::built_in().least(), RECEIPT_WEI, "what reserved ids cost");
    }

    #[test]
    fn the_table_reads_as_published() {
        let ether = |id: u8| alloy::primitives::utils::format_ether(price_wei(id));
        assert_eq!(ether(Job::SandboxCreate.id()), "0.000500000000000000");
        assert_eq!(ether(Job::Exec.id()), "0.000050000000000000");
        assert_eq!(ether(Job::SandboxDelete.id()), "0.000010000000000000");
    }

    #[test]
    fn ending_something_never_costs_more_than_beginning_it() {
        assert!(price_wei(Job::SandboxDelete.id()) < price_wei(Job::SandboxCreate.id()));
        assert!(price_wei(Job::WorkflowCancel.id()) < price_wei(Job::WorkflowCreate.id()));
        assert!(price_wei(Job::SshRevoke.id()) < price_wei(Job::SshProvision.id()));
    }

    fn usdc() -> Asset {
        Asset { address: Address::repeat_byte(1), symbol: "USDC".into(), decimals: 6 }
    }

    /// A file with a price of 0.5 for each job, changed by `change`.
    fn table(change: impl FnOnce(&mut Vec<(String, String)>)) -> Result<PriceTable, PriceError> {
        let mut rates = Job::ALL.map(|job| (job.name().to_owned(), "0.5".to_owned())).to_vec();
        change(&mut rates);
        PriceTable::new(&PriceFile { asset: Some(usdc().address), rates: Rates(rates) }, usdc())
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut Vec<(String, String)>), sentence: &str) {
        assert_eq!(table(change).unwrap_err().to_string(), sentence);
    }

    #[test]
    fn prices_are_scaled_by_the_decimals_of_their_asset() {
        let table = table(|rates| rates[5].1 = "0.05".into()).unwrap();
        assert_eq!(table.rates()[&Job::Exec], U256::from(50_000));
        assert_eq!(table.rates()[&Job::Task], U256::from(500_000));
        assert_eq!(table.least(), U256::from(50_000));
    }

    #[test]
    fn a_price_file_names_every_job_once_and_nothing_else() {
        check(|rates| rates.push(("exce".into(), "1".into())), "there is no job named \"exce\"");
        check(|rates| rates.push(("reserved_5".into(), "1".into())), "there is no job named \"reserved_5\"");
        check(|rates| rates.push(("exec".into(), "1".into())), "\"exec\" has two prices");
        check(|rates| rates.truncate(15), "no price for ssh_provision, ssh_revoke");
    }

    #[test]
    fn an_amount_that_the_core_cannot_take_is_refused_before_anything_is_sent() {
        check(|rates| rates[0].1 = "0".into(), "sandbox_create costs 0 USDC, the core takes no less than 0.0001 USDC");
        check(
            |rates| rates[0].1 = "0.00009".into(),
            "sandbox_create costs 0.00009 USDC, the core takes no less than 0.0001 USDC",
        );
        check(|rates| rates[0].1 = "a lot".into(), "the price of \"sandbox_create\"");
    }

    #[test]
    fn the_built_in_table_is_written_as_a_file_that_gives_it_back() {
        let text = serde_json::to_string(&PriceFile::from(&PriceTable::built_in())).unwrap();
        assert!(text.starts_with(r#"{"rates":{"sandbox_create":"0.0005","sandbox_stop":"0.00001","#), "{text}");
        let file: PriceFile = serde_json::from_str(&text).unwrap();
        assert_eq!(PriceTable::new(&file, Asset::coin()).unwrap(), PriceTable::built_in());
    }

    #[test]
    fn amounts_are_texts_and_unknown_fields_are_refused() {
        let parse = |text: &str| serde_json::from_str::<PriceFile>(text).map(drop).map_err(|error| error.to_string());
        assert_eq!(parse(r#"{"rates": {"exec": "0.1"}}"#), Ok(()));
        assert!(parse(r#"{"rates": {"exec": 0.1}}"#).unwrap_err().contains("expected a string"));
        assert!(parse(r#"{"rates": {}, "currency": "USD"}"#).unwrap_err().contains("unknown field `currency`"));
        assert!(parse(r#"{"rates": {"exec": "0.1", "exec": "0.2"}}"#).is_ok(), "told by its name, not by its place");
    }
}
