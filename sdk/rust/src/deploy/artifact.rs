//! forge's artifact: the code that creates the contract, and the code that then stands on chain.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use alloy::primitives::{Address, Bytes};
use alloy::sol_types::SolValue as _;
use serde::Deserialize;

/// `AgentSandboxBlueprint`'s constructor: core, creator, block time in milliseconds.
const CONSTRUCTOR: [&str; 3] = ["address", "address", "uint64"];

/// An artifact that cannot be deployed.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// The file cannot be read.
    #[error("cannot read {}; `forge build` makes it", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no artifact of forge's.
    #[error("{} is not forge's artifact of a contract", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// The contract takes other arguments than these clients give.
    #[error("{}'s constructor takes {found:?}, not {CONSTRUCTOR:?}", path.display())]
    Constructor {
        /// The file.
        path: PathBuf,
        /// Types of its arguments.
        found: Vec<String>,
    },
}

/// The blueprint's contract as forge built it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    abi: Vec<AbiItem>,
    bytecode: Creation,
    deployed_bytecode: Runtime,
}

#[derive(Debug, Clone, Deserialize)]
struct Creation {
    object: Bytes,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Runtime {
    object: Bytes,
    /// Where the constructor writes values, by the id of the variable.
    #[serde(default)]
    immutable_references: BTreeMap<String, Vec<Place>>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Place {
    start: usize,
    length: usize,
}

#[derive(Debug, Clone, Deserialize)]
struct AbiItem {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    inputs: Vec<AbiInput>,
}

#[derive(Debug, Clone, Deserialize)]
struct AbiInput {
    #[serde(rename = "type")]
    kind: String,
}

impl Artifact {
    /// Reads the artifact of the blueprint's contract.
    ///
    /// # Errors
    /// [`ArtifactError`].
    pub fn load(path: &Path) -> Result<Self, ArtifactError> {
        let text = std::fs::read(path).map_err(|source| ArtifactError::Read { path: path.to_path_buf(), source })?;
        let artifact: Self = serde_json::from_slice(&text)
            .map_err(|source| ArtifactError::Parse { path: path.to_path_buf(), source })?;
        let constructor = artifact.abi.iter().find(|item| item.kind == "constructor");
        let inputs = constructor.into_iter().flat_map(|item| &item.inputs);
        let found: Vec<_> = inputs.map(|input| input.kind.clone()).collect();
        if found != CONSTRUCTOR {
            return Err(ArtifactError::Constructor { path: path.to_path_buf(), found });
        }
        Ok(artifact)
    }

    /// The creation code for (core, creator, block time in ms).
    pub fn creation_code(&self, arguments: (Address, Address, u64)) -> Bytes {
        let mut code = self.bytecode.object.to_vec();
        code.extend(arguments.abi_encode_params());
        code.into()
    }

    /// Bytes that stand on chain.
    pub fn runtime_bytes(&self) -> usize {
        self.deployed_bytecode.object.len()
    }

    /// Whether code on chain is this contract's, whatever its constructor was given.
    pub fn is_runtime(&self, code: &[u8]) -> bool {
        let Runtime { object, immutable_references } = &self.deployed_bytecode;
        let places = || immutable_references.values().flatten();
        code.len() == object.len() && masked(code, places()) == masked(object, places())
    }
}

fn masked<'a>(code: &[u8], places: impl Iterator<Item = &'a Place>) -> Vec<u8> {
    let mut code = code.to_vec();
    for place in places {
        if let Some(written) = code.get_mut(place.start..place.start.saturating_add(place.length)) {
            written.fill(0);
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(constructor: &str) -> Result<Artifact, ArtifactError> {
        let text = format!(
            r#"{{"abi": [{{"type": "constructor", "inputs": [{constructor}]}}], "bytecode": {{"object": "0x6001"}},
                "deployedBytecode": {{"object": "0x60000000ff", "immutableReferences": {{"7": [{{"start": 1, "length": 2}}]}}}}}}"#
        );
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("artifact.json");
        std::fs::write(&path, text).unwrap();
        Artifact::load(&path)
    }

    const INPUTS: &str = r#"{"type": "address"}, {"type": "address"}, {"type": "uint64"}"#;

    #[test]
    fn code_is_recognised_whatever_its_constructor_was_given() {
        let artifact = artifact(INPUTS).unwrap();
        assert!(artifact.is_runtime(&[0x60, 1, 2, 0, 0xff]) && artifact.is_runtime(&[0x60, 0, 0, 0, 0xff]));
        for other in [&[0x60, 1, 2, 0, 0xfe][..], &[0x60, 1, 2, 3, 0xff], &[0x60, 1, 2, 0], &[]] {
            assert!(!artifact.is_runtime(other), "{other:?}");
        }
    }

    #[test]
    fn the_arguments_stand_behind_the_creation_code() {
        let code = artifact(INPUTS).unwrap().creation_code((Address::repeat_byte(1), Address::repeat_byte(2), 3));
        assert_eq!((code.len(), code[1], code[2 + 31], code[2 + 63], code[2 + 95]), (2 + 96, 1, 1, 2, 3));
    }

    #[test]
    fn a_contract_of_another_kind_is_refused() {
        let error = artifact(r#"{"type": "address"}"#).unwrap_err().to_string();
        assert!(error.ends_with(r#"takes ["address"], not ["address", "address", "uint64"]"#), "{error}");
    }
}
