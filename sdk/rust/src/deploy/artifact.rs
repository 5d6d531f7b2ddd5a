//! forge's artifact: creation code with the constructor's arguments behind it.

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

#[derive(Deserialize)]
struct Artifact {
    abi: Vec<AbiItem>,
    bytecode: Bytecode,
}

#[derive(Deserialize)]
struct Bytecode {
    object: Bytes,
}

#[derive(Deserialize)]
struct AbiItem {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    inputs: Vec<AbiInput>,
}

#[derive(Deserialize)]
struct AbiInput {
    #[serde(rename = "type")]
    kind: String,
}

/// The creation code of the blueprint's contract for (core, creator, block time in ms).
///
/// # Errors
/// [`ArtifactError`].
pub fn creation_code(path: &Path, arguments: (Address, Address, u64)) -> Result<Bytes, ArtifactError> {
    let text = std::fs::read(path).map_err(|source| ArtifactError::Read { path: path.to_path_buf(), source })?;
    let artifact: Artifact =
        serde_json::from_slice(&text).map_err(|source| ArtifactError::Parse { path: path.to_path_buf(), source })?;
    let constructor = artifact.abi.into_iter().find(|item| item.kind == "constructor");
    let found: Vec<_> = constructor.into_iter().flat_map(|item| item.inputs).map(|input| input.kind).collect();
    if found != CONSTRUCTOR {
        return Err(ArtifactError::Constructor { path: path.to_path_buf(), found });
    }
    let mut code = artifact.bytecode.object.to_vec();
    code.extend(arguments.abi_encode_params());
    Ok(code.into())
}
