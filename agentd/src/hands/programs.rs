//! Programs, by the execution protocol: begun once, and taken up again by their ids.

use async_trait::async_trait;
use sandbox_agent::tools::ports::{Execution, Ran, Sandbox, SandboxError};
use sandbox_fsp::{FspError, Lease, Outcome, Place};
use sandbox_protocol::fsp::{ErrorCode, Execute, Extra, Limits};

use super::Sidecar;
use crate::limits::OUTPUT_BYTES_MAX;

#[async_trait]
impl Sandbox for Sidecar {
    async fn run(&self, execution: Execution) -> Result<Ran, SandboxError> {
        let lease = self.pool().checkout().await?;
        let (id, attach_only) = (execution.id.clone(), execution.attach_only);
        let running = begun(&lease, execution).await;
        let unknown = |error| match error {
            FspError::Server { code: ErrorCode::UnknownExecution, .. } | FspError::Lost { .. } if attach_only => {
                SandboxError::Unknown
            }
            error => SandboxError::Fsp(error),
        };
        let running = running.map_err(unknown)?;
        // Whoever drops this wants it ended, not only unheard.
        let kept = Kept { lease: Some(lease), id };
        let outcome = running.outcome(OUTPUT_BYTES_MAX).await;
        kept.let_go();
        Ok(ran(outcome.map_err(unknown)?))
    }
}

async fn begun(lease: &Lease, execution: Execution) -> Result<sandbox_fsp::Execution, FspError> {
    let Execution { id, language, code, cwd, stdin, env, timeout_ms, memory_mb, attach_only } = execution;
    if attach_only {
        return lease.attach(&id, Place::default(), Some(timeout_ms)).await;
    }
    let limits = Limits { timeout_ms, memory_mb, ..Limits::default() };
    let extra = Extra { cwd, ..Extra::default() };
    lease.execute(Execute { id, language, code, stdin, env, limits, extra }).await
}

fn ran(outcome: Outcome) -> Ran {
    Ran {
        ended: outcome.status,
        exit_code: outcome.exit_code,
        stdout: String::from_utf8_lossy(&outcome.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&outcome.stderr).into_owned(),
        truncated: outcome.dropped_bytes + outcome.lost_bytes > 0,
    }
}

/// An execution that is cancelled when this is dropped.
struct Kept {
    lease: Option<Lease>,
    id: String,
}

impl Kept {
    fn let_go(mut self) {
        self.lease = None;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let (Some(lease), id) = (self.lease.take(), std::mem::take(&mut self.id)) else { return };
        tokio::spawn(async move {
            if let Err(error) = lease.cancel(&id).await {
                tracing::debug!(%error, "an execution that nobody wants is not cancelled");
            }
        });
    }
}
