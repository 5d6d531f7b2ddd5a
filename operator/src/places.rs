//! Where a sandbox's things are on this host. Shared by the two adapters that meet at its socket.

use std::path::{Path, PathBuf};

use alloy::primitives::{Address, keccak256};
use sandbox_protocol::SandboxId;

use crate::limits::SOCKET_PATH_BYTES_MAX;

/// What the sidecar's socket is called in its directory.
pub(crate) const SOCKET_FILE: &str = "sidecar.sock";
/// What the socket of its way out is called there.
pub(crate) const EGRESS_SOCKET_FILE: &str = "egress.sock";

/// Names and paths, made from a node's own tag so that several nodes may share one engine.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    run_dir: PathBuf,
    tag: String,
}

/// The directory for sockets is too deep.
#[derive(Debug, thiserror::Error)]
#[error("socket paths under {run_dir} exceed {SOCKET_PATH_BYTES_MAX} bytes; choose a shorter RUN_DIR")]
pub(crate) struct TooDeep {
    run_dir: PathBuf,
}

impl Places {
    /// Places below `run_dir` for the node that keeps the state `state_id` of this core.
    ///
    /// Chain and core alone would not do: two local chains have both in common, and may share an engine.
    pub(crate) fn new(run_dir: &Path, core: Address, state_id: u64) -> Result<Self, TooDeep> {
        let hash = keccak256([core.as_slice(), &state_id.to_be_bytes()].concat());
        let places = Self { run_dir: run_dir.into(), tag: hex::encode(&hash[..4]) };
        let longest = format!("sbx-{0}-{0}-255-{1}/{SOCKET_FILE}", u64::MAX, places.tag);
        if run_dir.as_os_str().len() + 1 + longest.len() > SOCKET_PATH_BYTES_MAX {
            return Err(TooDeep { run_dir: run_dir.into() });
        }
        Ok(places)
    }

    /// Tells this node's containers from others'.
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    /// The directory that all socket directories are in.
    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Name of the sandbox's container.
    pub(crate) fn name(&self, id: SandboxId) -> String {
        format!("{id}-{}", self.tag)
    }

    /// The directory that a vessel's sidecar has its socket in.
    pub(crate) fn socket_dir(&self, vessel: &str) -> PathBuf {
        self.run_dir.join(vessel)
    }

    /// Vessels of this node of which a socket directory is there.
    pub(crate) fn vessels(&self) -> Vec<String> {
        let ending = format!("-{}", self.tag);
        let entries = std::fs::read_dir(&self.run_dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.ends_with(&ending)).collect()
    }

    /// The socket through which everything leaves it that may.
    pub(crate) fn egress_socket(&self, vessel: &str) -> PathBuf {
        self.socket_dir(vessel).join(EGRESS_SOCKET_FILE)
    }

    /// The sidecar's socket.
    pub(crate) fn socket(&self, vessel: &str) -> PathBuf {
        self.socket_dir(vessel).join(SOCKET_FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_directory_that_nodes_share_each_sees_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let [ours, theirs] = [1, 2].map(|state| Places::new(dir.path(), Address::ZERO, state).unwrap());
        assert_eq!(ours.vessels(), Vec::<String>::new());
        for places in [&ours, &theirs] {
            std::fs::create_dir(places.socket_dir(&format!("pool-1-{}", places.tag()))).unwrap();
        }
        assert_eq!(ours.vessels(), [format!("pool-1-{}", ours.tag())]);
    }

    #[test]
    fn a_directory_in_which_some_socket_could_not_be_bound_is_refused() {
        let longest = format!("sbx-{0}-{0}-255-00000000/{SOCKET_FILE}", u64::MAX).len();
        let fits = "/".to_owned() + &"d".repeat(SOCKET_PATH_BYTES_MAX - longest - 2);
        assert!(Places::new(Path::new(&fits), Address::ZERO, 1).is_ok());
        assert!(Places::new(Path::new(&(fits + "d")), Address::ZERO, 1).is_err());
    }
}
