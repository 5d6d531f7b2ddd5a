//! What can go wrong with the engine, and what the customer is told of it.

use std::io;
use std::path::PathBuf;

use bollard::errors::Error as EngineError;
use sandbox_fleet::ports::PortError;
use sandbox_protocol::{Failure, FailureCode};

use super::disk::DiskError;
use super::hardening::Mismatch;

/// One variant per thing that was asked of the engine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DockerError {
    /// No engine, or none that we can talk to.
    #[error("cannot reach the container engine")]
    Connect(#[source] EngineError),
    /// The image is not on this host.
    #[error("image {image} is not on this host")]
    ImageMissing {
        /// The image.
        image: String,
    },
    /// A container was not created.
    #[error("cannot create container {name}")]
    Create {
        /// Its name.
        name: String,
        /// What the engine said.
        source: EngineError,
    },
    /// A container was not started.
    #[error("cannot start container {name}")]
    Start {
        /// Its name.
        name: String,
        /// What the engine said.
        source: EngineError,
    },
    /// A container was not stopped.
    #[error("cannot stop container {name}")]
    Stop {
        /// Its name.
        name: String,
        /// What the engine said.
        source: EngineError,
    },
    /// A container was not inspected.
    #[error("cannot inspect container {name}")]
    Inspect {
        /// Its name.
        name: String,
        /// What the engine said.
        source: EngineError,
    },
    /// A container or volume was not removed.
    #[error("cannot remove {name}")]
    Remove {
        /// Its name.
        name: String,
        /// What the engine said.
        source: EngineError,
    },
    /// A container did not get another name.
    #[error("cannot rename container {name}")]
    Rename {
        /// The name it has.
        name: String,
        /// What the engine said.
        source: EngineError,
    },
    /// The limits of a container were not changed.
    #[error("cannot change the limits of container {name}")]
    Update {
        /// Its name.
        name: String,
        /// What the engine said.
        source: EngineError,
    },
    /// What belongs to this node was not listed.
    #[error("cannot list containers and volumes")]
    List(#[source] EngineError),
    /// An image was not looked at.
    #[error("cannot inspect image {image}")]
    Image {
        /// Its name.
        image: String,
        /// What the engine said.
        source: EngineError,
    },
    /// What an image has in the directories of a disk was not read.
    #[error("cannot read {path} of image {image}")]
    Archive {
        /// Its name.
        image: String,
        /// The directory.
        path: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The sandbox's disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A container that was just made is not there, or its inspection says too little.
    #[error("container {name} cannot be seen after its start")]
    Vanished {
        /// Its name.
        name: String,
    },
    /// The directory of a sidecar's socket cannot be made or removed.
    #[error("cannot use the socket directory {dir}")]
    SocketDirectory {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The started container is not what was asked for.
    #[error("container {name} is not as hardened as promised")]
    Hardening {
        /// Its name.
        name: String,
        /// The first setting that differs.
        source: Mismatch,
    },
}

impl DockerError {
    fn failure(&self) -> Failure {
        let (code, message) = match self {
            Self::ImageMissing { .. } => (FailureCode::ImageMissing, "the operator's host does not have the image"),
            Self::Hardening { .. } => (FailureCode::Hardening, "the container was not started as hardened as promised"),
            Self::SocketDirectory { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                (FailureCode::DiskFull, "the operator's disk is full")
            }
            Self::Disk(error) if error.is_full() => (FailureCode::DiskFull, "the operator's disk is full"),
            Self::Create { source, .. } | Self::Start { source, .. } if is_disk_full(source) => {
                (FailureCode::DiskFull, "the operator's disk is full")
            }
            Self::Disk(DiskError::Unlike { .. }) => {
                (FailureCode::Hardening, "the sandbox's disk is not the one that was promised")
            }
            Self::Disk(_) => (FailureCode::Engine, "the operator's host could not make the sandbox's disk"),
            Self::Connect(_)
            | Self::List(_)
            | Self::Image { .. }
            | Self::Archive { .. }
            | Self::Rename { .. }
            | Self::Update { .. }
            | Self::Create { .. }
            | Self::Start { .. }
            | Self::Stop { .. }
            | Self::Inspect { .. }
            | Self::Remove { .. }
            | Self::Vanished { .. }
            | Self::SocketDirectory { .. } => (FailureCode::Engine, "the operator's container engine failed"),
        };
        Failure::new(code, message)
    }
}

fn is_disk_full(error: &EngineError) -> bool {
    matches!(error, EngineError::DockerResponseServerError { message, .. } if message.contains("no space left on device"))
}

impl From<DockerError> for PortError {
    fn from(error: DockerError) -> Self {
        let Failure { code, message } = error.failure();
        Self::new(code, message, error)
    }
}
