//! Where one blueprint lives: the addresses file that a deployment writes and every client reads.

use std::path::{Path, PathBuf};

use alloy::primitives::Address;
use alloy::transports::http::reqwest::Url;
use serde::{Deserialize, Serialize};

/// One blueprint on one chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// Chain id that the node must report.
    pub chain_id: u64,
    /// HTTP endpoint of a node.
    #[serde(with = "url_text")]
    pub rpc_url: Url,
    /// The Tangle core.
    pub core: Address,
    /// Our blueprint's contract, its manager in the core's words.
    pub manager: Address,
    /// The blueprint's id in the core.
    pub blueprint_id: u64,
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
    /// The file cannot be written.
    #[error("cannot write the addresses file {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Deployment {
    /// Reads an addresses file.
    ///
    /// # Errors
    /// [`DeploymentError::Read`], [`DeploymentError::Parse`].
    pub fn load(path: &Path) -> Result<Self, DeploymentError> {
        let text = std::fs::read(path).map_err(|source| DeploymentError::Read { path: path.to_path_buf(), source })?;
        serde_json::from_slice(&text).map_err(|source| DeploymentError::Parse { path: path.to_path_buf(), source })
    }

    /// Writes the addresses file.
    ///
    /// # Errors
    /// [`DeploymentError::Write`].
    pub fn save(&self, path: &Path) -> Result<(), DeploymentError> {
        let text = format!("{:#}\n", serde_json::json!(self));
        std::fs::write(path, text).map_err(|source| DeploymentError::Write { path: path.to_path_buf(), source })
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

    #[test]
    fn an_addresses_file_reads_as_it_was_written() {
        let text = r#"{
            "chain_id": 31337, "rpc_url": "http://127.0.0.1:8545", "blueprint_id": 1,
            "core": "0x0165878A594ca255338adfa4d48449f69242Eb8F",
            "manager": "0x5FbDB2315678afecb367f032d93F642f64180aa3"
        }"#;
        let deployment: Deployment = serde_json::from_str(text).unwrap();
        let again: Deployment = serde_json::from_value(serde_json::json!(deployment)).unwrap();
        assert_eq!(again, deployment);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Deployment::load(Path::new("/nowhere/addresses.json")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read the addresses file /nowhere/addresses.json");
    }
}
