//! Where snapshots go to and come from: S3, IPFS, web servers and directories, behind one pair of verbs.
//!
//! A snapshot is a stream of unknown length. It is hashed while it flows, never whole in memory and never on a disk on
//! the way. What comes back is verified while it flows: a reader never ends well over other bytes than were put.
//! Web servers are named by customers, so every connection to one goes by the guard; S3 and IPFS are the operator's
//! own, of which customers name only buckets, keys and contents.
//!
//! Not here: what the bytes mean, who may restore what (but see [`Stores::admit`]), and how long a source may take.

mod error;
mod feed;
mod file;
mod intake;
mod ipfs;
mod location;
mod manifest;
mod s3;
mod verified;
mod web;

use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncRead;

pub use self::error::{BlobError, Difference, Store, Whose};
pub use self::file::RootError;
use self::intake::Intake;
pub use self::ipfs::IpfsConfig;
pub use self::location::{Location, LocationError, Place};
pub use self::manifest::Expected;
pub use self::s3::S3Config;
pub use self::verified::Verified;
use crate::address::Guard;
use crate::limits::{ANSWER_MAX, STALL_MAX};

/// What an operator offers.
#[derive(Debug)]
pub struct StoresConfig {
    /// The operator's S3, if any.
    pub s3: Option<S3Config>,
    /// The operator's IPFS node, if any.
    pub ipfs: Option<IpfsConfig>,
    /// Directories that `file://` may name, with all that is beneath them.
    pub file_roots: Vec<PathBuf>,
    /// By which web servers are reached.
    pub guard: Guard,
    /// Certificates, in PEM, that are trusted besides the system's.
    pub trusted_pem: Option<Vec<u8>>,
    /// How long is waited for servers.
    pub patience: Patience,
}

/// How long is waited for servers.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For an answer after the request was sent.
    pub answer_max: Duration,
    /// For any progress of a transfer.
    pub stall_max: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { answer_max: ANSWER_MAX, stall_max: STALL_MAX }
    }
}

/// Why an operator's stores cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum StoresError {
    /// A directory on the list cannot be used.
    #[error("directory of snapshots")]
    Root(#[from] RootError),
    /// No certificates can be read from what is to be trusted.
    #[error("certificates to be trusted")]
    Certificates(#[source] reqwest::Error),
    /// The client for the operator's IPFS node.
    #[error("client of the IPFS node")]
    Ipfs(#[source] reqwest::Error),
}

/// A snapshot that has been put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// From where it can be got again, hash included. Of a web address without its query, which may be a signature.
    pub uri: String,
    /// Over all bytes.
    pub sha256: [u8; 32],
    /// All bytes.
    pub size_bytes: u64,
}

/// Every place that snapshots can go to and come from.
#[derive(Debug)]
pub struct Stores {
    s3: Option<s3::S3>,
    ipfs: Option<ipfs::Ipfs>,
    files: file::Files,
    web: web::Web,
}

impl Stores {
    /// Opens the directories; connects nowhere.
    ///
    /// # Errors
    /// [`StoresError`].
    pub fn new(config: StoresConfig) -> Result<Self, StoresError> {
        let trusted = config.trusted_pem.as_deref().map(reqwest::Certificate::from_pem_bundle).transpose();
        let trusted = trusted.map_err(StoresError::Certificates)?.unwrap_or_default();
        let patience = config.patience;
        let ipfs = config.ipfs.map(|config| ipfs::Ipfs::new(config, patience)).transpose();
        Ok(Self {
            s3: config.s3.map(|config| s3::S3::new(config, patience)),
            ipfs: ipfs.map_err(StoresError::Ipfs)?,
            files: file::Files::open(&config.file_roots)?,
            web: web::Web::new(config.guard, trusted, patience),
        })
    }

    /// Whether `tenant` may name `location`. In S3 and directories, which customers share, keys and the paths beneath
    /// a root begin with the tenant's name; without this call any customer may read and overwrite what is another's.
    ///
    /// # Errors
    /// [`BlobError::OtherTenant`], and those of places that are not offered.
    pub fn admit(&self, location: &Location, tenant: &str) -> Result<(), BlobError> {
        let own = |path: &str| path.split_once('/').is_some_and(|(first, rest)| first == tenant && !rest.is_empty());
        let admitted = match location.place() {
            Place::S3 { key, .. } => own(key),
            Place::File(path) => self.files.beneath(path)?.to_str().is_some_and(own),
            Place::Ipfs | Place::IpfsContent { .. } | Place::Web(_) => true,
        };
        if admitted { Ok(()) } else { Err(BlobError::OtherTenant) }
    }

    /// Puts all of `source`. An announced size is held to; web servers that want to know it beforehand (presigned
    /// URLs of S3 do) refuse longer streams than a few MiB without it, and uploads to S3 use parts of one size with it.
    ///
    /// # Errors
    /// [`BlobError`]; then nothing readable is left at the place, except that a web server may have kept what it got.
    pub async fn put(
        &self,
        location: &Location,
        source: impl AsyncRead + Send + Unpin,
        size_hint: Option<u64>,
    ) -> Result<Stored, BlobError> {
        let intake = Intake::new(source, size_hint);
        match location.place() {
            Place::S3 { bucket, key } => self.s3()?.put(bucket, key, intake).await,
            Place::Ipfs => self.ipfs()?.put(intake).await,
            Place::IpfsContent { .. } => Err(BlobError::NoDestination),
            Place::Web(url) => self.web.put(url, intake).await,
            Place::File(path) => self.files.put(path, intake).await,
        }
        .map(|put| put.named(location))
    }

    /// A reader of what is at `location`, which fails at its end unless it was what is expected: by the location's
    /// own hash, else by the manifest beside it.
    ///
    /// # Errors
    /// [`BlobError`]; the reader's are [`BlobError`]s too, as [`BlobError::within`] tells.
    pub async fn get(&self, location: &Location) -> Result<(Verified, Expected), BlobError> {
        let known = location.sha256().map(|sha256| Expected { sha256, size_bytes: None });
        let (chunks, expected) = match location.place() {
            Place::S3 { bucket, key } => self.s3()?.get(bucket, key, known).await?,
            Place::Ipfs => return Err(BlobError::NoSource),
            Place::IpfsContent { cid, path } => {
                self.ipfs()?.get(cid, path.as_deref(), known.ok_or(BlobError::Unverifiable)?).await?
            }
            Place::Web(url) => self.web.get(url, known.ok_or(BlobError::Unverifiable)?).await?,
            Place::File(path) => self.files.get(path, known).await?,
        };
        Ok((Verified::new(chunks, expected), expected))
    }

    fn s3(&self) -> Result<&s3::S3, BlobError> {
        self.s3.as_ref().ok_or(BlobError::NotOffered { store: Store::S3 })
    }

    fn ipfs(&self) -> Result<&ipfs::Ipfs, BlobError> {
        self.ipfs.as_ref().ok_or(BlobError::NotOffered { store: Store::Ipfs })
    }
}

/// What has been put, before it is named. IPFS names its contents itself.
struct Put {
    flowed: intake::Flowed,
    cid: Option<cid::Cid>,
}

impl Put {
    fn named(self, location: &Location) -> Stored {
        let intake::Flowed { sha256, size_bytes } = self.flowed;
        let place = self.cid.map_or_else(|| location.without_query(), |cid| format!("ipfs://{cid}"));
        Stored { uri: format!("{place}#sha256={}", hex::encode(sha256)), sha256, size_bytes }
    }
}
