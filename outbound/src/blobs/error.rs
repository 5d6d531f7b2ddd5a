//! Why a snapshot did not get where it was to go, and whose matter that is.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::address::AddressError;

/// A kind of place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// The operator's S3.
    S3,
    /// The operator's IPFS node.
    Ipfs,
    /// A web server that the customer names.
    Web,
    /// The operator's directories.
    File,
}

/// Who can do something about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The customer, by naming another place or bytes.
    Caller,
    /// The operator.
    Operator,
}

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The operator has no such store.
    #[error("this operator offers no {store}")]
    NotOffered {
        /// Which.
        store: Store,
    },
    /// The operator's S3 account is not for this bucket.
    #[error("this operator offers no bucket of that name")]
    BucketNotOffered,
    /// Outside the directories of the operator's list.
    #[error("the path is not in a directory that this operator offers")]
    OutsideRoots,
    /// The place belongs to another customer, or to none.
    #[error("the path must begin with the customer's own name")]
    OtherTenant,
    /// Contents of IPFS are named by themselves and cannot be written to.
    #[error("ipfs:// takes no content id as a destination")]
    NoDestination,
    /// A bare `ipfs://` names nothing.
    #[error("ipfs:// names a content id as a source")]
    NoSource,
    /// The guard of addresses refuses, or finds nobody.
    #[error("the web server cannot be reached")]
    Address(#[from] AddressError),
    /// Without TLS, at a host that the operator does not except.
    #[error("http:// is not offered for this host; use https://")]
    PlainHttp,
    /// There is nothing at the place.
    #[error("there is nothing at this place in {store}")]
    NotFound {
        /// Where.
        store: Store,
    },
    /// Neither file nor free name.
    #[error("there is something other than a file at this path")]
    NotFile,
    /// The place refuses access.
    #[error("{store} denies access to this place")]
    Denied {
        /// Which.
        store: Store,
    },
    /// The operator's own credentials are refused.
    #[error("{store} refuses the operator's credentials")]
    Credentials {
        /// Which.
        store: Store,
        /// What it says.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Another answer than the protocol has for success.
    #[error("{store} answered with status {status}")]
    Status {
        /// Which.
        store: Store,
        /// Of HTTP.
        status: u16,
    },
    /// A server that wants to know the size before the first byte.
    #[error("the web server takes no upload of unknown size")]
    LengthRequired,
    /// A redirect that is not followed.
    #[error("the web server redirects where no snapshot goes: {0}")]
    Redirect(&'static str),
    /// No connection, or a broken one.
    #[error("{store} cannot be reached or broke off")]
    Broken {
        /// Which.
        store: Store,
        /// How.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Nothing moved for too long.
    #[error("{store} made no progress for {limit:?}")]
    TooSlow {
        /// Which.
        store: Store,
        /// How long was waited.
        limit: Duration,
    },
    /// An answer that cannot be read.
    #[error("{store} answered something else than was asked")]
    Answer {
        /// Which.
        store: Store,
    },
    /// The operator's disk.
    #[error("the operator's disk")]
    Disk(#[source] io::Error),
    /// The snapshot could not be read where it comes from.
    #[error("the snapshot could not be read to its end")]
    Source(#[source] io::Error),
    /// The snapshot has another size than announced.
    #[error("the snapshot was announced with {announced_bytes} bytes and has other {read_bytes} or more")]
    NotAsAnnounced {
        /// Before.
        announced_bytes: u64,
        /// When it was noticed.
        read_bytes: u64,
    },
    /// Longer than the store can hold.
    #[error("the snapshot is longer than {store} takes")]
    TooLarge {
        /// Which.
        store: Store,
    },
    /// Neither hash nor manifest.
    #[error("unverifiable: neither `#sha256=` in the location nor a manifest beside the snapshot")]
    Unverifiable,
    /// The manifest cannot be read.
    #[error("the manifest beside the snapshot cannot be read")]
    Manifest,
    /// Other bytes than expected.
    #[error("the snapshot is not what was expected: its {0} differs")]
    Differs(Difference),
}

/// In what a snapshot differs from what was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// More or fewer bytes.
    Size,
    /// As many, but others.
    Sha256,
}

impl BlobError {
    /// Whose matter it is.
    #[must_use]
    pub const fn whose(&self) -> Whose {
        match self {
            Self::NotOffered { .. }
            | Self::BucketNotOffered
            | Self::OutsideRoots
            | Self::OtherTenant
            | Self::NoDestination
            | Self::NoSource
            | Self::PlainHttp
            | Self::NotFound { .. }
            | Self::NotFile
            | Self::Denied { .. }
            | Self::LengthRequired
            | Self::Redirect(_)
            | Self::TooLarge { .. }
            | Self::Unverifiable
            | Self::Manifest
            | Self::Differs(_)
            | Self::Address(
                AddressError::Host(_)
                | AddressError::Url
                | AddressError::NotPublic { .. }
                | AddressError::Lookup { .. }
                | AddressError::Addresses { .. }
                | AddressError::Connect { .. }
                | AddressError::TooSlow { .. },
            ) => Whose::Caller,
            Self::Status { store, .. }
            | Self::Broken { store, .. }
            | Self::TooSlow { store, .. }
            | Self::Answer { store } => store.whose(),
            Self::Address(AddressError::Resolver(_))
            | Self::Credentials { .. }
            | Self::Disk(_)
            | Self::Source(_)
            | Self::NotAsAnnounced { .. } => Whose::Operator,
        }
    }

    /// Whether the same transfer may succeed when it is begun anew.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Address(error) => !error.is_refusal(),
            Self::Status { status, .. } => *status >= 500 || *status == 429 || *status == 408,
            Self::Broken { .. } | Self::TooSlow { .. } | Self::Disk(_) | Self::Source(_) => true,
            Self::NotOffered { .. }
            | Self::BucketNotOffered
            | Self::OutsideRoots
            | Self::OtherTenant
            | Self::NoDestination
            | Self::NoSource
            | Self::PlainHttp
            | Self::NotFound { .. }
            | Self::NotFile
            | Self::Denied { .. }
            | Self::Credentials { .. }
            | Self::LengthRequired
            | Self::Redirect(_)
            | Self::Answer { .. }
            | Self::NotAsAnnounced { .. }
            | Self::TooLarge { .. }
            | Self::Unverifiable
            | Self::Manifest
            | Self::Differs(_) => false,
        }
    }

    /// The one that a reader of a snapshot failed with.
    #[must_use]
    pub fn within(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// What a client of HTTP ran into.
    pub(super) fn of_client(store: Store, limit: Duration, error: reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::TooSlow { store, limit };
        }
        Self::Broken { store, source: error.without_url().into() }
    }
}

impl From<BlobError> for io::Error {
    fn from(error: BlobError) -> Self {
        Self::other(error)
    }
}

impl Store {
    /// Who chose the server.
    const fn whose(self) -> Whose {
        match self {
            Self::Web => Whose::Caller,
            Self::S3 | Self::Ipfs | Self::File => Whose::Operator,
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::S3 => "S3",
            Self::Ipfs => "IPFS",
            Self::Web => "the web server",
            Self::File => "directory",
        })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Size => "size",
            Self::Sha256 => "SHA-256",
        })
    }
}
