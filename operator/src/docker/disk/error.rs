//! What can go wrong with a sandbox's disk.

use std::io;
use std::path::PathBuf;

/// One variant per thing that is done for a disk.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    /// Not a place for disks.
    #[error("cannot keep disks in {dir}")]
    Directory {
        /// The place.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// This host gives no loop devices.
    #[error("DISK_QUOTA=loop, but this host mounts no disk images; DISK_QUOTA=none does without quotas")]
    NoLoop(#[source] Box<DiskError>),
    /// Less room on the host than must stay free.
    #[error("{free_bytes} bytes are free in {dir}, less than must stay so")]
    HostFull {
        /// Where.
        dir: PathBuf,
        /// How much.
        free_bytes: u64,
    },
    /// An image or directory was not made.
    #[error("cannot make disk {path}")]
    Make {
        /// The disk.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A disk was not mounted.
    #[error("cannot mount disk {path}")]
    Mount {
        /// The image.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A disk was not unmounted.
    #[error("cannot unmount disk {path}")]
    Unmount {
        /// Where it is mounted.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A disk was not removed.
    #[error("cannot remove disk {path}")]
    Remove {
        /// The disk.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A disk was not looked at.
    #[error("cannot look at disk {path}")]
    Look {
        /// The disk.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The disk is not what was promised.
    #[error("disk {path} {what}")]
    Unlike {
        /// The disk.
        path: PathBuf,
        /// In what.
        what: String,
    },
}

impl DiskError {
    /// Whether the operator's own disk is full.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::HostFull { .. } => true,
            Self::Make { source, .. } | Self::Directory { source, .. } | Self::Mount { source, .. } => {
                source.kind() == io::ErrorKind::StorageFull
            }
            Self::NoLoop(_) | Self::Unmount { .. } | Self::Remove { .. } | Self::Look { .. } | Self::Unlike { .. } => {
                false
            }
        }
    }
}
