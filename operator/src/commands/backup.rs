//! A copy of what must not be lost, and a state directory made from it.
//!
//! The copy is a directory: `records`, a line per record, and `manifest.json`, which says what it is and proves it whole. The
//! keys (the operator's, and those by which the SSH gateway is known) are not in it, only the names of their files: a copy of
//! the records may lie where a key may not.

use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use alloy::primitives::{B256, Keccak256};
use sandbox_gateway::hostkeys::HostKeys;
use sandbox_process::source::Source;
use serde::{Deserialize, Serialize};

use super::state::State;
use super::{CommandError, Output};
use crate::chain::key;
use crate::config;
use crate::records::Records;

const RECORDS_FILE: &str = "records";
const MANIFEST_FILE: &str = "manifest.json";
const FORMAT: u32 = 1;

/// What the copy is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    /// Version of the program that made it.
    version: String,
    /// Seconds since 1970.
    made_at: u64,
    records: u64,
    /// keccak256 of the file of records.
    hash: B256,
    /// Files that hold keys, which are not in the copy: the operator's, and the SSH gateway's host keys.
    keystore: Vec<PathBuf>,
}

/// Why there is no copy, or no state from it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    /// The directory is there already.
    #[error("{} exists already; a backup is written into a new directory", .0.display())]
    Exists(PathBuf),
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The manifest is not one.
    #[error("{} is not a backup's manifest", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Another program's.
    #[error("the backup has format {found}, this version knows {FORMAT}")]
    Format {
        /// What was found.
        found: u32,
    },
    /// The records are not those that the manifest speaks of.
    #[error("the backup is damaged: its records are not those of its manifest")]
    Damaged,
}

/// Writes a copy into `directory`.
pub(super) async fn backup(source: &impl Source, directory: &Path, output: &Output) -> Result<(), CommandError> {
    let data_dir = config::data_dir(source)?;
    if directory.exists() {
        return Err(BackupError::Exists(directory.into()).into());
    }
    let partial = directory.with_extension("partial");
    std::fs::create_dir_all(&partial).map_err(at(&partial))?;
    let path = partial.join(RECORDS_FILE);
    let records = match State::locked(&data_dir).await? {
        State::Running(node) => {
            let file = tokio::fs::File::create(&path).await.map_err(at(&path))?;
            node.backup(file).await?
        }
        State::Stopped(records, _guard) => records.copy_to(std::fs::File::create(&path).map_err(at(&path))?).await?,
    };
    let (lines, hash) = measured(&path)?;
    if lines != records {
        return Err(BackupError::Damaged.into());
    }
    let manifest = Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made_at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        records,
        hash,
        keystore: key::files(&config::read_keystore(source)?).into_iter().chain(HostKeys::file_in(&data_dir)).collect(),
    };
    let path = partial.join(MANIFEST_FILE);
    let text = serde_json::to_vec_pretty(&manifest).map_err(CommandError::Print)?;
    std::fs::write(&path, text).map_err(at(&path))?;
    // The directory appears under its name once it is whole.
    std::fs::rename(&partial, directory).map_err(at(directory))?;
    output.say(&format!("{records} records in {}; the key is not among them", directory.display()), &manifest)
}

/// Makes an empty state directory from the copy in `directory`.
pub(super) fn restore(source: &impl Source, directory: &Path, output: &Output) -> Result<(), CommandError> {
    let data_dir = config::data_dir(source)?;
    let path = directory.join(MANIFEST_FILE);
    let text = std::fs::read(&path).map_err(at(&path))?;
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|source| BackupError::Manifest { path, source })?;
    if manifest.format != FORMAT {
        return Err(BackupError::Format { found: manifest.format }.into());
    }
    let path = directory.join(RECORDS_FILE);
    if measured(&path)? != (manifest.records, manifest.hash) {
        return Err(BackupError::Damaged.into());
    }
    let file = std::fs::File::open(&path).map_err(at(&path))?;
    let records = Records::restore(&data_dir, BufReader::new(file))?;
    output.say(&format!("{records} records restored into {}", data_dir.display()), &manifest)
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::File { path, source }
}

/// Lines and hash of a file.
fn measured(path: &Path) -> Result<(u64, B256), BackupError> {
    use std::io::BufRead as _;

    let mut file = BufReader::new(std::fs::File::open(path).map_err(at(path))?);
    let (mut lines, mut hasher) = (0, Keccak256::new());
    loop {
        let bytes = file.fill_buf().map_err(at(path))?;
        if bytes.is_empty() {
            return Ok((lines, hasher.finalize()));
        }
        lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        hasher.update(bytes);
        let read = bytes.len();
        file.consume(read);
    }
}
