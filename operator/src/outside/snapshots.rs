//! Snapshots on their way: out of a sandbox's sidecar into a store, and back.
//!
//! Nothing is kept here. What flows is hashed by the store's writer and checked by its reader; the sidecar checks it once
//! more before it puts anything in place of what is there.

use std::sync::Arc;

use async_trait::async_trait;
use sandbox_fleet::ports::{PortError, Snapshot, SnapshotOrder, Snapshots};
use sandbox_fleet::request::SnapshotUri;
use sandbox_fleet::sandbox::{Instance, Sandbox};
use sandbox_outbound::blobs::{self, BlobError, Location, Whose};
use sandbox_protocol::snapshot::{ExportQuery, Sha256};
use sandbox_protocol::{Failure, FailureCode};

use tokio::sync::{Semaphore, SemaphorePermit};

use super::{OutsideConfig, OutsideError};
use crate::limits::SNAPSHOTS_AT_ONCE_MAX;
use crate::sidecars::{SnapshotError, SocketSidecars, outdated};

/// The stores, and the sidecars that they are filled from.
pub(crate) struct Stores {
    stores: blobs::Stores,
    sidecars: Arc<SocketSidecars>,
    /// Each transfer takes buffers, whoever asked for it: jobs and the API share these.
    at_once: Semaphore,
}

impl Stores {
    /// The stores of this host.
    pub(crate) fn new(config: &OutsideConfig, sidecars: Arc<SocketSidecars>) -> Result<Self, OutsideError> {
        Ok(Self { stores: config.stores()?, sidecars, at_once: Semaphore::const_new(SNAPSHOTS_AT_ONCE_MAX) })
    }

    /// Waits for room; who asks bounds the wait.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, PortError> {
        let turn = self.at_once.acquire().await;
        turn.map_err(|closed| PortError::new(FailureCode::Internal, "the operator takes no snapshots", closed))
    }

    /// The place that a customer named, if it may name it.
    fn place(&self, sandbox: &Sandbox, uri: &SnapshotUri) -> Result<Location, PortError> {
        let location = Location::parse(uri.as_str())
            .map_err(|error| PortError::new(FailureCode::SnapshotRefused, error.to_string(), error))?;
        let tenant = format!("{:#x}", sandbox.owner);
        self.stores.admit(&location, &tenant).map_err(|error| refused(error, FailureCode::SnapshotRefused))?;
        Ok(location)
    }
}

#[async_trait]
impl Snapshots for Stores {
    async fn take(
        &self,
        sandbox: &Sandbox,
        instance: &Instance,
        wanted: &SnapshotOrder,
    ) -> Result<Snapshot, PortError> {
        let location = self.place(sandbox, &wanted.destination)?;
        let _turn = self.turn().await?;
        let query = ExportQuery { workspace: wanted.workspace, state: wanted.state };
        let stream = self.sidecars.export(instance, query).await.map_err(of_sidecar)?;
        let stored = self.stores.put(&location, stream, None).await;
        let stored = stored.map_err(|error| refused(error, FailureCode::SnapshotRefused))?;
        let uri = SnapshotUri::parse("snapshot_uri", &stored.uri)
            .map_err(|failure| PortError { source: failure.clone().into(), failure })?;
        Ok(Snapshot { uri: uri.unwrap_or_else(|| wanted.destination.clone()), size_bytes: stored.size_bytes })
    }

    async fn restore(&self, sandbox: &Sandbox, instance: &Instance, from: &SnapshotUri) -> Result<(), PortError> {
        let location = self.place(sandbox, from)?;
        let _turn = self.turn().await?;
        let unreadable = |error| refused(error, FailureCode::SnapshotUnreadable);
        let (stream, expected) = self.stores.get(&location).await.map_err(unreadable)?;
        self.sidecars.restore(instance, Sha256(expected.sha256), stream).await.map_err(of_sidecar)
    }
}

/// What a store's error means to who named the place.
fn refused(error: BlobError, code: FailureCode) -> PortError {
    let code = match error.whose() {
        Whose::Caller => code,
        Whose::Operator => FailureCode::SnapshotStore,
    };
    PortError::new(code, error.to_string(), error)
}

/// What a sidecar's error means to who asked.
fn of_sidecar(error: SnapshotError) -> PortError {
    let (code, message) = match &error {
        SnapshotError::Outdated => {
            let Failure { code, message } = outdated();
            (code, message)
        }
        SnapshotError::Refused(body) => (FailureCode::SnapshotUnreadable, body.error.message.clone()),
        SnapshotError::Full(body) => (FailureCode::DiskQuota, body.error.message.clone()),
        SnapshotError::Busy => (FailureCode::SandboxBusy, "another snapshot of the sandbox is under way".to_owned()),
        SnapshotError::Source(source) => match BlobError::within(source) {
            Some(found) => (FailureCode::SnapshotUnreadable, found.to_string()),
            None => (FailureCode::SnapshotUnreadable, "the snapshot broke off".to_owned()),
        },
        SnapshotError::Exchange(_) => (FailureCode::SandboxUnreachable, "the sandbox does not answer".to_owned()),
    };
    PortError::new(code, message, error)
}
