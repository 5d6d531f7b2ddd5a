//! The process that archives, from its start to what it tells at its end.

use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::error::SnapshotError;
use crate::archive::{Job, Told};
use crate::exec::{self, Identity};
use crate::limits::TOLD_BYTES_MAX;

/// A running process; it is killed where this is dropped.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
}

impl Worker {
    pub(super) async fn start(
        program: &Path,
        job: &Job,
        identity: Option<Identity>,
        stdin: Stdio,
    ) -> Result<Self, SnapshotError> {
        let mut command = Command::new(program);
        command
            .arg0("sandbox-sidecar")
            .args(job.arguments())
            .env_clear()
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Ok(Self { child: exec::start(command, Path::new("/"), identity).await? })
    }

    /// To be dropped at the end of what it is to read.
    pub(super) fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    pub(super) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// What it tells at its end. Stdout must have been read to the end.
    pub(super) async fn end(&mut self) -> Result<Told, SnapshotError> {
        let mut line = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            stderr.take(TOLD_BYTES_MAX).read_to_end(&mut line).await.map_err(|_| SnapshotError::Lost)?;
        }
        let status = self.child.wait().await.map_err(|_| SnapshotError::Lost)?;
        match serde_json::from_slice(&line) {
            Ok(told @ Told::Failed(_)) => Ok(told),
            Ok(told) if status.success() => Ok(told),
            Ok(_) | Err(_) => {
                tracing::warn!(%status, told = %String::from_utf8_lossy(&line), "a snapshot's process has no outcome");
                Err(SnapshotError::Lost)
            }
        }
    }

    /// Ends it, with what it has started.
    pub(super) async fn kill(&mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::warn!(%error, "a snapshot's process was not killed");
        }
    }
}
