//! What customers are told of the gateway, and its port.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use sandbox_gateway::hostkeys::{HostKeyError, HostKeys};
use sandbox_gateway::ports::Doors;
use sandbox_gateway::{Bounds, Gateway};
use sandbox_protocol::ssh::PublicKey;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::audit::{Audit, AuditError};
use super::doors::SandboxDoors;
use crate::config::SshConfig;
use crate::limits::{SSH_AUDIT_FINISH_TIMEOUT, SSH_LEAVE_TIMEOUT};

/// Where customers come over SSH, and by which keys they know the host. Clones share the keys' file.
#[derive(Debug, Clone)]
pub(crate) struct SshOffer {
    host: String,
    port: u16,
    keys: HostKeys,
}

/// The gateway's port, which is listened at before anything is promised.
pub(crate) struct Front {
    listener: TcpListener,
    data_dir: PathBuf,
    offer: SshOffer,
}

/// The gateway at work.
pub(crate) struct LettingIn {
    task: JoinHandle<()>,
    audit: Audit,
}

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrontError {
    /// The port.
    #[error("cannot listen on SSH_BIND")]
    Listen(#[source] io::Error),
    /// The host keys.
    #[error(transparent)]
    Keys(#[from] HostKeyError),
    /// The audit.
    #[error(transparent)]
    Audit(#[from] AuditError),
}

impl SshOffer {
    /// The host.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// The host's keys: the one that signs, then the one that is to follow it.
    pub(crate) fn host_keys(&self) -> Result<Vec<PublicKey>, HostKeyError> {
        self.keys.announced(SystemTime::now())
    }
}

impl LettingIn {
    /// Returns when, after the signal to stop, everybody has left and the audit says so, or the time for it is over.
    pub(crate) async fn ended(self) {
        if timeout(SSH_LEAVE_TIMEOUT, self.task).await.is_err() {
            tracing::warn!("SSH connections were open when the time for them was over");
        }
        let audit = self.audit;
        if let Err(error) = tokio::task::spawn_blocking(move || audit.finish(SSH_AUDIT_FINISH_TIMEOUT)).await {
            tracing::error!(%error, "nobody waited for the audit of the SSH gateway");
        }
    }
}

impl Front {
    /// Listens where `config` says, with the host keys that are kept in `data_dir`; nothing where there is no gateway.
    pub(crate) async fn open(config: Option<&SshConfig>, data_dir: &Path) -> Result<Option<Self>, FrontError> {
        let Some(config) = config else { return Ok(None) };
        let keys = HostKeys::open(data_dir)?;
        let listener = TcpListener::bind(config.bind).await.map_err(FrontError::Listen)?;
        let bound = listener.local_addr().map_err(FrontError::Listen)?;
        let offer = SshOffer { host: config.host.clone(), port: config.port.unwrap_or(bound.port()), keys };
        Ok(Some(Self { listener, data_dir: data_dir.into(), offer }))
    }

    /// Where the gateway keeps what must survive.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// What customers are told.
    pub(crate) fn offer(&self) -> SshOffer {
        self.offer.clone()
    }

    /// Begins to let customers in through `doors`, until `stop`.
    pub(crate) fn let_in(self, doors: SandboxDoors, stop: CancellationToken) -> LettingIn {
        let audit = doors.audit.clone();
        LettingIn { task: tokio::spawn(self.serve(Arc::new(doors), stop)), audit }
    }

    async fn serve(self, doors: Arc<dyn Doors>, stop: CancellationToken) {
        Gateway::new(doors, self.offer.keys, Bounds::default()).serve(self.listener, stop).await;
    }
}
