//! The outside of a sandbox on a host that has no way there: nothing leaves, and no snapshot is taken.

use async_trait::async_trait;
use sandbox_fleet::ports::{Egress, PortError, Snapshot, SnapshotOrder, Snapshots};
use sandbox_fleet::request::SnapshotUri;
use sandbox_fleet::sandbox::{Instance, Sandbox};
use sandbox_protocol::FailureCode;

/// No outside.
pub(crate) struct Shut;

#[async_trait]
impl Egress for Shut {
    async fn open(&self, sandbox: &Sandbox, _: &Instance) -> Result<(), PortError> {
        if sandbox.spec.egress.is_empty() { Ok(()) } else { Err(shut("SANDBOX_EGRESS_ALLOW")) }
    }

    async fn close(&self, _: &Sandbox) {}
}

#[async_trait]
impl Snapshots for Shut {
    async fn take(&self, _: &Instance, _: &SnapshotOrder) -> Result<Snapshot, PortError> {
        Err(shut("snapshots"))
    }

    async fn restore(&self, _: &Instance, _: &SnapshotUri) -> Result<(), PortError> {
        Err(shut("snapshots"))
    }
}

fn shut(what: &str) -> PortError {
    PortError::new(FailureCode::Unsupported, format!("{what}: not offered by this operator"), "there is no outside")
}
