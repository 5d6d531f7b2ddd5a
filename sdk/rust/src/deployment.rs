//! Where one blueprint lives: the addresses file that a deployment writes and every client reads.
//!
//! A deployment writes the file after each of its steps, so it may hold less than a client needs; [`Deployment::load`]
//! refuses such a file and says what is missing.

use std::path::{Path, PathBuf};

use alloy::primitives::Address;
use alloy::transports::http::reqwest::Url;
use serde::{Deserialize, Serialize};

/// The version of the addresses file that is written and read here.
pub const FILE_VERSION: u32 = 1;

/// One blueprint on one chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// Chain id that the node must report.
    pub chain_id: u64,
    /// HTTP endpoint of a node.
    pub rpc_url: Url,
    /// The Tangle core.
    pub core: Address,
    /// Our blueprint's contract, its manager in the core's words.
    pub manager: Address,
    /// The blueprint's id in the core.
    pub blueprint_id: u64,
}

/// What there is of a blueprint on one chain: the content of an addresses file, in its order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Addresses {
    /// The blueprint's id in the core, once it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blueprint_id: Option<u64>,
    /// Chain id that the node must report.
    pub chain_id: u64,
    /// Whether everything was done that the deployment was asked for, prices included.
    pub complete: bool,
    /// The Tangle core.
    pub core: Address,
    /// Our blueprint's contract, once it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Address>,
    /// HTTP endpoint of a node.
    #[serde(with = "url_text")]
    pub rpc_url: Url,
    version: u32,
}

/// An addresses file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeploymentError {
    /// The file cannot be read.
    #[error("cannot read the addresses file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not an addresses file.
    #[error("{} is not an addresses file", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The file is of another version.
    #[error("{} is an addresses file of version {found}, this program knows version {FILE_VERSION}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// The deployment was begun and not completed.
    #[error("the deployment in {} lacks {missing}; `sandbox deploy` continues it", path.display())]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// What is missing.
        missing: Missing,
    },
    /// The file cannot be written.
    #[error("cannot write the addresses file {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A part of a deployment that is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The contract.
    #[error("its contract")]
    Contract,
    /// The blueprint.
    #[error("its blueprint")]
    Blueprint,
    /// Prices, or what else was asked for.
    #[error("its prices")]
    Prices,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Deployment {
    /// Reads the addresses file of a complete deployment.
    ///
    /// # Errors
    /// [`DeploymentError`].
    pub fn load(path: &Path) -> Result<Self, DeploymentError> {
        let addresses = Addresses::load(path)?;
        addresses.deployment().map_err(|missing| DeploymentError::Incomplete { path: path.to_path_buf(), missing })
    }

    /// Writes the addresses file.
    ///
    /// # Errors
    /// [`DeploymentError::Write`].
    pub fn save(&self, path: &Path) -> Result<(), DeploymentError> {
        Addresses::from(self.clone()).save(path)
    }
}

impl From<Deployment> for Addresses {
    fn from(deployment: Deployment) -> Self {
        let Deployment { chain_id, rpc_url, core, manager, blueprint_id } = deployment;
        let (manager, blueprint_id) = (Some(manager), Some(blueprint_id));
        Self { version: FILE_VERSION, chain_id, rpc_url, core, manager, blueprint_id, complete: true }
    }
}

impl Addresses {
    /// Those of a blueprint of which nothing is there yet.
    pub const fn none(chain_id: u64, rpc_url: Url, core: Address) -> Self {
        Self { version: FILE_VERSION, chain_id, rpc_url, core, manager: None, blueprint_id: None, complete: false }
    }

    /// Reads an addresses file, also of a deployment that is not complete.
    ///
    /// # Errors
    /// [`DeploymentError::Read`], [`DeploymentError::Parse`], [`DeploymentError::Version`].
    pub fn load(path: &Path) -> Result<Self, DeploymentError> {
        let at = || path.to_path_buf();
        let text = std::fs::read(path).map_err(|source| DeploymentError::Read { path: at(), source })?;
        let parse = |source| DeploymentError::Parse { path: at(), source };
        let Versioned { version: found } = serde_json::from_slice(&text).map_err(parse)?;
        if found != FILE_VERSION {
            return Err(DeploymentError::Version { path: at(), found });
        }
        serde_json::from_slice(&text).map_err(parse)
    }

    /// Writes the addresses file. It is replaced as a whole: a crash leaves the old one or the new one.
    ///
    /// # Errors
    /// [`DeploymentError::Write`].
    pub fn save(&self, path: &Path) -> Result<(), DeploymentError> {
        let text = format!("{:#}\n", serde_json::json!(self));
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let written = std::fs::write(&part, text).and_then(|()| std::fs::rename(&part, path));
        written.map_err(|source| DeploymentError::Write { path: path.to_path_buf(), source })
    }

    /// What a client needs of them.
    ///
    /// # Errors
    /// The first part that is missing.
    pub fn deployment(&self) -> Result<Deployment, Missing> {
        let manager = self.manager.ok_or(Missing::Contract)?;
        let blueprint_id = self.blueprint_id.ok_or(Missing::Blueprint)?;
        let Self { chain_id, core, .. } = *self;
        let deployment = Deployment { chain_id, rpc_url: self.rpc_url.clone(), core, manager, blueprint_id };
        self.complete.then_some(deployment).ok_or(Missing::Prices)
    }
}

mod url_text {
    use alloy::transports::http::reqwest::Url;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(url: &Url, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(url)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: &str = r#"{
  "blueprint_id": 1,
  "chain_id": 31337,
  "complete": true,
  "core": "0x0165878a594ca255338adfa4d48449f69242eb8f",
  "manager": "0x5fbdb2315678afecb367f032d93f642f64180aa3",
  "rpc_url": "http://127.0.0.1:8545/",
  "version": 1
}
"#;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("addresses.json");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    /// The sentence with which a client refuses a file of this text.
    fn refusal(text: &str) -> String {
        let (directory, path) = file(text);
        let error = Deployment::load(&path).unwrap_err();
        error.to_string().replace(&directory.path().display().to_string(), "DIR")
    }

    #[test]
    fn an_addresses_file_reads_as_it_was_written() {
        let (_directory, path) = file(COMPLETE);
        let deployment = Deployment::load(&path).unwrap();
        assert_eq!((deployment.chain_id, deployment.blueprint_id), (31_337, 1));
        deployment.save(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), COMPLETE);
        assert_eq!(Deployment::load(&path).unwrap(), deployment);
    }

    #[test]
    fn a_deployment_that_is_not_complete_is_refused_by_what_it_lacks() {
        let without = |names: &[&str]| {
            let kept = |line: &&str| !names.iter().any(|name| line.contains(&format!("\"{name}\"")));
            COMPLETE.replace("true", "false").lines().filter(kept).collect::<String>()
        };
        let lacks =
            |part: &str| format!("the deployment in DIR/addresses.json lacks {part}; `sandbox deploy` continues it");
        assert_eq!(refusal(&without(&["manager", "blueprint_id"])), lacks("its contract"));
        assert_eq!(refusal(&without(&["blueprint_id"])), lacks("its blueprint"));
        assert_eq!(refusal(&without(&[])), lacks("its prices"));
    }

    #[test]
    fn a_file_of_another_version_or_with_unknown_words_is_refused() {
        let later = COMPLETE.replace("\"version\": 1", "\"version\": 2, \"more\": 0");
        let expected = "DIR/addresses.json is an addresses file of version 2, this program knows version 1";
        assert_eq!(refusal(&later), expected);
        for text in [COMPLETE.replace("\"version\"", "\"more\": 0, \"version\""), COMPLETE.replace("version", "more")] {
            assert_eq!(refusal(&text), "DIR/addresses.json is not an addresses file");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Deployment::load(Path::new("/nowhere/addresses.json")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read the addresses file /nowhere/addresses.json");
    }
}
