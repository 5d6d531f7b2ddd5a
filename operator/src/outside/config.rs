//! The settings of the outside, read once.

use std::num::NonZeroU32;
use std::path::PathBuf;

use alloy::transports::http::reqwest::Url;
use sandbox_outbound::address::{AddressError, Exceptions, Guard};
use sandbox_outbound::blobs::{self, IpfsConfig, S3Config, StoresConfig, StoresError};
use sandbox_outbound::egress::{self, EgressBounds, EgressConfig, HostService, HostServices, Rules, ServiceError};
use sandbox_process::source::{ConfigError, Source, optional, or_default, switch, words};
use serde::Deserialize;

/// What sandboxes may reach, and where their snapshots may go.
#[derive(Debug, Clone)]
pub(crate) struct OutsideConfig {
    policy: Rules,
    exceptions: Exceptions,
    services: Vec<HostService>,
    bytes_per_second_max: Option<NonZeroU32>,
    s3: Option<S3Config>,
    ipfs: Option<IpfsConfig>,
    file_roots: Vec<PathBuf>,
}

/// Why the outside cannot be set up.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutsideError {
    /// The guard of addresses.
    #[error("cannot look up names")]
    Guard(#[from] AddressError),
    /// The host services.
    #[error("cannot set up HOST_SERVICES_FILE")]
    Services(#[from] ServiceError),
    /// The stores.
    #[error("cannot set up the stores for snapshots")]
    Stores(#[from] StoresError),
}

/// An entry of `HOST_SERVICES_FILE`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceEntry {
    name: String,
    url: String,
    #[serde(default)]
    headers: std::collections::BTreeMap<String, String>,
}

impl OutsideConfig {
    /// Reads all of it.
    pub(crate) fn read(source: &impl Source) -> Result<Self, ConfigError> {
        Ok(Self {
            policy: parsed(source, "EGRESS_POLICY", |text| text.parse::<Rules>())?,
            exceptions: parsed(source, "PRIVATE_ADDRESSES_ALLOWED", Exceptions::parse)?,
            services: services(source)?,
            bytes_per_second_max: optional(source, "EGRESS_BYTES_PER_SECOND_MAX")?,
            s3: s3(source)?,
            ipfs: optional::<Url>(source, "SNAPSHOT_IPFS_RPC_URL")?.map(|rpc_url| IpfsConfig { rpc_url }),
            file_roots: words(source, "SNAPSHOT_DIRS").into_iter().map(PathBuf::from).collect(),
        })
    }

    /// Whether a service of this host has that name.
    pub(crate) fn has_service(&self, name: &str) -> bool {
        self.services.iter().any(|service| service.name().to_string() == name)
    }

    /// The proxy of this host.
    pub(super) fn egress(&self) -> Result<egress::Egress, OutsideError> {
        Ok(egress::Egress::new(EgressConfig {
            guard: Guard::new(self.exceptions.clone())?,
            policy: self.policy.clone(),
            services: HostServices::new(self.services.clone(), [])?,
            bounds: EgressBounds { bytes_per_second_max: self.bytes_per_second_max, ..EgressBounds::default() },
        }))
    }

    /// The stores of this host.
    pub(super) fn stores(&self) -> Result<blobs::Stores, OutsideError> {
        Ok(blobs::Stores::new(StoresConfig {
            s3: self.s3.clone(),
            ipfs: self.ipfs.clone(),
            file_roots: self.file_roots.clone(),
            guard: Guard::new(self.exceptions.clone())?,
            trusted_pem: None,
            patience: blobs::Patience::default(),
        })?)
    }
}

fn parsed<T, E: std::error::Error + 'static>(
    source: &impl Source,
    name: &'static str,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, ConfigError> {
    let text: String = or_default(source, name, String::new())?;
    parse(&text).map_err(|error| ConfigError::invalid(name, text.clone(), crate::error_chain(&error)))
}

/// The operator's own services, with headers that customers never see: a file, so that keys are in no environment.
fn services(source: &impl Source) -> Result<Vec<HostService>, ConfigError> {
    const NAME: &str = "HOST_SERVICES_FILE";
    let Some(path) = optional::<PathBuf>(source, NAME)? else { return Ok(Vec::new()) };
    let wrong = |reason: String| ConfigError::invalid(NAME, path.display().to_string(), reason);
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let entries: Vec<ServiceEntry> = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("not a list of {{name, url, headers}}: line {}", error.line())))?;
    let service = |entry: &ServiceEntry| {
        let service = HostService::parse(&format!("{}={}", entry.name, entry.url))?;
        entry.headers.iter().try_fold(service, |service, (name, value)| service.with_header(name, value))
    };
    entries.iter().map(|entry| service(entry).map_err(|error| wrong(error.to_string()))).collect()
}

/// The operator's account, where it has one.
fn s3(source: &impl Source) -> Result<Option<S3Config>, ConfigError> {
    const SECRET: &str = "SNAPSHOT_S3_SECRET_KEY_FILE";
    let access_key_id = optional::<String>(source, "SNAPSHOT_S3_ACCESS_KEY_ID")?;
    let secret_file = optional::<PathBuf>(source, SECRET)?;
    let account = S3Config {
        endpoint: optional(source, "SNAPSHOT_S3_ENDPOINT")?,
        region: or_default(source, "SNAPSHOT_S3_REGION", "us-east-1".to_owned())?,
        access_key_id: access_key_id.clone().unwrap_or_default(),
        secret_access_key: String::new(),
        path_style: switch(source, "SNAPSHOT_S3_PATH_STYLE")?,
        buckets: words(source, "SNAPSHOT_S3_BUCKETS"),
    };
    if access_key_id.is_none() {
        return Ok(None);
    }
    let path =
        secret_file.ok_or_else(|| ConfigError::invalid(SECRET, "", "name the file with the account's secret"))?;
    let secret = std::fs::read_to_string(&path)
        .map_err(|error| ConfigError::invalid(SECRET, path.display().to_string(), error.to_string()))?;
    Ok(Some(S3Config { secret_access_key: secret.trim().to_owned(), ..account }))
}
