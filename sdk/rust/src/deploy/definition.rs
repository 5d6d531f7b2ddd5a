//! The blueprint as the core stores it: who may join, how it is paid, 42 jobs by index, where the operator's binary is.

use std::path::{Path, PathBuf};

use alloy::primitives::{Address, B256, Bytes, U256, keccak256};
use alloy::sol_types::SolValue as _;
use sandbox_protocol::Job;
use serde::Deserialize;

use super::terms::Pricing;
use crate::contracts::ITangleCore::{
    BlueprintBinary, BlueprintConfig, BlueprintDefinition, BlueprintMetadata, BlueprintSource, JobDefinition,
    NativeSource,
};
use crate::limits::SERVICE_OPERATORS_MAX;

/// The core's numbers.
const MEMBERSHIP_FIXED: u8 = 0;
const MEMBERSHIP_DYNAMIC: u8 = 1;
const SOURCE_NATIVE: u8 = 2;
const FETCHER_HTTP: u8 = 2;
const ARCH_AMD64: u8 = 5;
const OS_LINUX: u8 = 1;

/// The operator binary that a blueprint manager fetches.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// Where the blueprint's metadata document is.
    pub metadata_uri: String,
    /// Where the binary is.
    pub artifact_uri: String,
    /// Its file name.
    pub binary: String,
    /// Its sha256; the core refuses zero.
    pub sha256: B256,
}

/// A release that cannot be pointed to.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The file cannot be read.
    #[error("cannot read the release file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a release file.
    #[error("{} is not a release file: metadata_uri, artifact_uri, binary, sha256", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A part of it is empty.
    #[error("the release in {} has an empty {part}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// The part.
        part: &'static str,
    },
}

impl Release {
    /// Reads a release file.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub fn load(path: &Path) -> Result<Self, ReleaseError> {
        let at = || path.to_path_buf();
        let text = std::fs::read(path).map_err(|source| ReleaseError::Read { path: at(), source })?;
        let release: Self =
            serde_json::from_slice(&text).map_err(|source| ReleaseError::Parse { path: at(), source })?;
        let parts = [
            ("metadata_uri", release.metadata_uri.is_empty()),
            ("artifact_uri", release.artifact_uri.is_empty()),
            ("binary", release.binary.is_empty()),
            ("sha256", release.sha256.is_zero()),
        ];
        match parts.into_iter().find(|(_, is_empty)| *is_empty) {
            Some((part, _)) => Err(ReleaseError::Empty { path: at(), part }),
            None => Ok(release),
        }
    }

    /// A release that nobody can fetch, for chains on which operators are started by hand. The hash is of no file.
    pub fn unpublished() -> Self {
        Self {
            metadata_uri: "https://localhost/agent-sandbox/blueprint.json".into(),
            artifact_uri: "https://localhost/agent-sandbox/sandbox-operator".into(),
            binary: "sandbox-operator".into(),
            sha256: keccak256("unpublished"),
        }
    }
}

/// The definition with which the blueprint is created. `event_rate` is what the core takes for a job without a rate of
/// its own.
///
/// Every schema is empty: the core would check inputs in an encoding of its own, ours are ABI-encoded and the contract
/// checks them.
pub fn blueprint_definition(
    manager: Address,
    release: &Release,
    (pricing, event_rate): (Pricing, U256),
) -> BlueprintDefinition {
    let metadata = metadata();
    BlueprintDefinition {
        metadataUri: release.metadata_uri.clone(),
        metadataHash: metadata_hash(&metadata),
        manager,
        masterManagerRevision: 0,
        hasConfig: true,
        config: config(pricing, event_rate),
        metadata,
        jobs: (0..Job::TABLE_LENGTH).map(job_definition).collect(),
        registrationSchema: Bytes::new(),
        requestSchema: Bytes::new(),
        sources: sources(release),
        supportedMemberships: vec![MEMBERSHIP_FIXED, MEMBERSHIP_DYNAMIC],
    }
}

/// Where the core tells blueprint managers to fetch a release.
pub(super) fn sources(release: &Release) -> Vec<BlueprintSource> {
    vec![source(release)]
}

/// The core's digest of sources.
pub(super) fn sources_hash(sources: &Vec<BlueprintSource>) -> B256 {
    keccak256(sources.abi_encode())
}

/// keccak256 of the metadata as canonical JSON: keys sorted, no spaces.
pub(super) fn metadata_hash(metadata: &BlueprintMetadata) -> B256 {
    let document = serde_json::json!({
        "author": metadata.author,
        "category": metadata.category,
        "description": metadata.description,
        "license": metadata.license,
        "name": metadata.name,
    });
    keccak256(document.to_string())
}

pub(super) fn metadata() -> BlueprintMetadata {
    BlueprintMetadata {
        name: "Agent Sandbox".into(),
        description: "Hardened sandboxes for AI agents, with receipts that prove what was done in them".into(),
        author: "Agent Sandbox Blueprint authors".into(),
        category: "AI".into(),
        license: "MIT OR Apache-2.0".into(),
        ..Default::default()
    }
}

fn config(pricing: Pricing, event_rate: U256) -> BlueprintConfig {
    let (subscription_rate, interval_s) = match pricing {
        Pricing::Subscription { rate, interval_s } => (rate, interval_s),
        Pricing::EventDriven | Pricing::PayOnce => (U256::ZERO, 0),
    };
    BlueprintConfig {
        membership: MEMBERSHIP_DYNAMIC,
        pricing: pricing.id(),
        minOperators: 1,
        maxOperators: SERVICE_OPERATORS_MAX,
        subscriptionRate: subscription_rate,
        subscriptionInterval: interval_s,
        eventRate: event_rate,
    }
}

fn job_definition(id: u8) -> JobDefinition {
    let (name, description) = match Job::from_id(id) {
        Some(job) => (job.name().to_owned(), job.description()),
        None => (format!("reserved_{id}"), "Reserved: refused by the contract"),
    };
    JobDefinition { name, description: description.to_owned(), ..Default::default() }
}

fn source(release: &Release) -> BlueprintSource {
    let native = NativeSource {
        fetcher: FETCHER_HTTP,
        artifactUri: release.artifact_uri.clone(),
        entrypoint: release.binary.clone(),
    };
    let binary =
        BlueprintBinary { arch: ARCH_AMD64, os: OS_LINUX, name: release.binary.clone(), sha256: release.sha256 };
    BlueprintSource { kind: SOURCE_NATIVE, native, binaries: vec![binary], ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> BlueprintDefinition {
        blueprint_definition(Address::ZERO, &Release::unpublished(), (Pricing::EventDriven, U256::from(1)))
    }

    #[test]
    fn the_job_array_has_42_entries_of_which_17_have_live_names() {
        let jobs = definition().jobs;
        assert_eq!(jobs.len(), 42);
        let reserved = jobs.iter().enumerate().filter(|(id, job)| job.name == format!("reserved_{id}")).count();
        assert_eq!(reserved, 25);
        for job in Job::ALL {
            assert_eq!(jobs[usize::from(job.id())].name, job.name());
        }
    }

    #[test]
    fn every_schema_is_empty() {
        let definition = definition();
        assert!(definition.registrationSchema.is_empty() && definition.requestSchema.is_empty());
        assert!(definition.jobs.iter().all(|job| job.paramsSchema.is_empty() && job.resultSchema.is_empty()));
    }

    #[test]
    fn names_are_distinct() {
        let jobs = definition().jobs;
        let names: std::collections::BTreeSet<_> = jobs.iter().map(|job| &job.name).collect();
        assert_eq!(names.len(), jobs.len());
    }

    #[test]
    fn the_definition_holds_what_the_core_demands() {
        let definition = definition();
        assert!(!definition.metadataUri.is_empty() && !definition.metadataHash.is_zero());
        assert_eq!(definition.sources.len(), 1);
        assert!(definition.sources[0].binaries.iter().all(|binary| !binary.sha256.is_zero()));
    }

    #[test]
    fn each_pricing_has_the_core_s_number_and_its_terms() {
        let config = |pricing| config(pricing, U256::ZERO);
        assert_eq!(config(Pricing::PayOnce).pricing, 0);
        assert_eq!(config(Pricing::EventDriven).pricing, 2);
        let subscription = Pricing::Subscription { rate: U256::from(7), interval_s: 60 };
        let stored = config(subscription);
        assert_eq!((stored.pricing, stored.subscriptionRate, stored.subscriptionInterval), (1, U256::from(7), 60));
        assert_eq!(Pricing::of(&stored), Ok(subscription));
    }

    #[test]
    fn a_release_file_with_an_empty_part_is_refused_by_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("release.json");
        let load = |uri: &str, sha256: &str| {
            let text = format!(
                r#"{{"metadata_uri": "https://a.example", "artifact_uri": "{uri}", "binary": "operator", "sha256": "{sha256}"}}"#
            );
            std::fs::write(&path, text).unwrap();
            Release::load(&path).map_err(|error| error.to_string().replace(&path.display().to_string(), "FILE"))
        };
        let hash = "11".repeat(32);
        assert_eq!(load("https://b.example", &hash).unwrap().sha256, B256::repeat_byte(0x11));
        assert_eq!(load("", &hash).unwrap_err(), "the release in FILE has an empty artifact_uri");
        assert_eq!(load("https://b.example", &"00".repeat(32)).unwrap_err(), "the release in FILE has an empty sha256");
        assert!(load("https://b.example", "11").unwrap_err().starts_with("FILE is not a release file"));
    }
}
