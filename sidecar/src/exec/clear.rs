//! Clears fresh directories away once their executions have ended.
//!
//! What is in one is the agent's, behind a door that only the agent may open: so a process of the agent's removes it,
//! for many at a time. An empty one needs none.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::Identity;
use super::launch::start;
use crate::limits::{CLEARED_AT_ONCE_MAX, CLEARING_MAX, CLEARINGS_WAITING_MAX};

/// Opens what its owner has closed, and removes it.
const SCRIPT: &str = "chmod -R u+rwX -- \"$@\" 2> /dev/null; exec rm -rf -- \"$@\"";

/// Where directories are named that are to go. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Clearing(mpsc::Sender<PathBuf>);

/// The directories to come.
#[derive(Debug)]
pub(super) struct Cleared(mpsc::Receiver<PathBuf>);

impl Clearing {
    pub(super) fn new() -> (Self, Cleared) {
        let (sender, receiver) = mpsc::channel(CLEARINGS_WAITING_MAX);
        (Self(sender), Cleared(receiver))
    }

    /// Has `directory` go, sooner or later. One that cannot wait stays, and goes with the sandbox's start.
    pub(super) fn clear(&self, directory: PathBuf) {
        if std::fs::remove_dir(&directory).is_err()
            && directory.symlink_metadata().is_ok()
            && let Err(error) = self.0.try_send(directory)
        {
            tracing::warn!(%error, "a fresh directory was left behind");
        }
    }
}

impl Cleared {
    /// Clears until nobody names any more, as `identity` or as the sidecar's own user.
    pub(super) async fn keep(mut self, identity: Option<Identity>) {
        let mut directories = Vec::new();
        while self.0.recv_many(&mut directories, CLEARED_AT_ONCE_MAX).await > 0 {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", SCRIPT, "clear"]).args(directories.drain(..)).env_clear();
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
            match start(command, Path::new("/"), identity).await {
                Ok(mut child) => match timeout(CLEARING_MAX, child.wait()).await {
                    Ok(Ok(status)) if status.success() => {}
                    other => tracing::warn!(?other, "fresh directories were not cleared away"),
                },
                Err(error) => tracing::warn!(%error, "fresh directories were not cleared away"),
            }
        }
    }
}
