//! The blueprint as the core stores it: who may join, how it is paid, 42 jobs by index, where the operator's binary is.

use alloy::primitives::{Address, B256, Bytes, U256, keccak256};
use sandbox_protocol::Job;

use super::prices::RECEIPT_WEI;
use crate::contracts::ITangleCore::{
    BlueprintBinary, BlueprintConfig, BlueprintDefinition, BlueprintMetadata, BlueprintSource, JobDefinition,
    NativeSource,
};
use crate::limits::SERVICE_OPERATORS_MAX;

/// The core's numbers.
const MEMBERSHIP_FIXED: u8 = 0;
const MEMBERSHIP_DYNAMIC: u8 = 1;
const PRICING_EVENT_DRIVEN: u8 = 2;
const SOURCE_NATIVE: u8 = 2;
const FETCHER_HTTP: u8 = 2;
const ARCH_AMD64: u8 = 5;
const OS_LINUX: u8 = 1;

/// The operator binary that a blueprint manager fetches.
#[derive(Debug, Clone, PartialEq, Eq)]
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

impl Release {
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

/// The definition with which the blueprint is created.
///
/// Every schema is empty: the core would check inputs in an encoding of its own, ours are ABI-encoded and the contract
/// checks them.
pub fn blueprint_definition(manager: Address, release: &Release) -> BlueprintDefinition {
    let metadata = metadata();
    BlueprintDefinition {
        metadataUri: release.metadata_uri.clone(),
        metadataHash: metadata_hash(&metadata),
        manager,
        masterManagerRevision: 0,
        hasConfig: true,
        config: config(),
        metadata,
        jobs: (0..Job::TABLE_LENGTH).map(job_definition).collect(),
        registrationSchema: Bytes::new(),
        requestSchema: Bytes::new(),
        sources: vec![source(release)],
        supportedMemberships: vec![MEMBERSHIP_FIXED, MEMBERSHIP_DYNAMIC],
    }
}

/// keccak256 of the metadata as canonical JSON: keys sorted, no spaces.
pub fn metadata_hash(metadata: &BlueprintMetadata) -> B256 {
    let document = serde_json::json!({
        "author": metadata.author,
        "category": metadata.category,
        "description": metadata.description,
        "license": metadata.license,
        "name": metadata.name,
    });
    keccak256(document.to_string())
}

fn metadata() -> BlueprintMetadata {
    BlueprintMetadata {
        name: "Agent Sandbox".into(),
        description: "Hardened sandboxes for AI agents: create, exec, delete, with receipts that prove the answers"
            .into(),
        author: "Agent Sandbox Blueprint authors".into(),
        category: "AI".into(),
        license: "MIT OR Apache-2.0".into(),
        ..Default::default()
    }
}

/// The event rate stands in for jobs without a rate of their own, of which there are none.
fn config() -> BlueprintConfig {
    BlueprintConfig {
        membership: MEMBERSHIP_DYNAMIC,
        pricing: PRICING_EVENT_DRIVEN,
        minOperators: 1,
        maxOperators: SERVICE_OPERATORS_MAX,
        subscriptionRate: U256::ZERO,
        subscriptionInterval: 0,
        eventRate: RECEIPT_WEI,
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

    #[test]
    fn the_job_array_has_42_entries_of_which_17_have_live_names() {
        let jobs = blueprint_definition(Address::ZERO, &Release::unpublished()).jobs;
        assert_eq!(jobs.len(), 42);
        let reserved = jobs.iter().enumerate().filter(|(id, job)| job.name == format!("reserved_{id}")).count();
        assert_eq!(reserved, 25);
        for job in Job::ALL {
            assert_eq!(jobs[usize::from(job.id())].name, job.name());
        }
    }

    #[test]
    fn every_schema_is_empty() {
        let definition = blueprint_definition(Address::ZERO, &Release::unpublished());
        assert!(definition.registrationSchema.is_empty() && definition.requestSchema.is_empty());
        assert!(definition.jobs.iter().all(|job| job.paramsSchema.is_empty() && job.resultSchema.is_empty()));
    }

    #[test]
    fn names_are_distinct() {
        let jobs = blueprint_definition(Address::ZERO, &Release::unpublished()).jobs;
        let names: std::collections::BTreeSet<_> = jobs.iter().map(|job| &job.name).collect();
        assert_eq!(names.len(), jobs.len());
    }

    #[test]
    fn the_definition_holds_what_the_core_demands() {
        let definition = blueprint_definition(Address::ZERO, &Release::unpublished());
        assert!(!definition.metadataUri.is_empty() && !definition.metadataHash.is_zero());
        assert_eq!(definition.sources.len(), 1);
        assert!(definition.sources[0].binaries.iter().all(|binary| !binary.sha256.is_zero()));
    }
}
