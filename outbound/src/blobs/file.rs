//! Directories of the operator's list. Every path is opened beneath its root by the kernel's own rules, so that
//! neither `..` nor a symbolic link leads out of it, whatever is being renamed meanwhile.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::BytesMut;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use futures::{StreamExt, TryStreamExt};
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_blocking;
use tokio_util::io::ReaderStream;

use super::Put;
use super::error::{BlobError, Store};
use super::intake::Intake;
use super::manifest::{self, Expected};
use super::verified::Chunks;
use crate::limits::{CHUNK_BYTES, MANIFEST_BYTES_MAX};

/// Ending of the names of drafts.
const DRAFT_SUFFIX: &str = ".partial";

/// Why a directory cannot be one of the list.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// It is no absolute path.
    #[error("{} is not absolute", path.display())]
    Relative {
        /// As configured.
        path: PathBuf,
    },
    /// It is not there or may not be used.
    #[error("{} cannot be opened", path.display())]
    Open {
        /// As configured.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

#[derive(Debug)]
struct Root {
    /// As configured, which is what customers write.
    path: PathBuf,
    directory: Arc<Dir>,
}

/// The list.
#[derive(Debug)]
pub(super) struct Files {
    roots: Vec<Root>,
}

impl Files {
    pub(super) fn open(roots: &[PathBuf]) -> Result<Self, RootError> {
        Ok(Self { roots: roots.iter().map(|path| Root::open(path)).collect::<Result<_, _>>()? })
    }

    /// `path` from its root on.
    pub(super) fn beneath<'a>(&self, path: &'a Path) -> Result<&'a Path, BlobError> {
        self.locate(path).map(|(_, beneath)| beneath)
    }

    /// The innermost root that holds `path`.
    fn locate<'a>(&self, path: &'a Path) -> Result<(Arc<Dir>, &'a Path), BlobError> {
        if self.roots.is_empty() {
            return Err(BlobError::NotOffered { store: Store::File });
        }
        let holding = self.roots.iter().filter_map(|root| Some((root, path.strip_prefix(&root.path).ok()?)));
        let (root, beneath) =
            holding.min_by_key(|(_, beneath)| beneath.as_os_str().len()).ok_or(BlobError::OutsideRoots)?;
        if beneath.as_os_str().is_empty() {
            return Err(BlobError::NotFile);
        }
        Ok((Arc::clone(&root.directory), beneath))
    }

    pub(super) async fn put<R>(&self, path: &Path, mut intake: Intake<R>) -> Result<Put, BlobError>
    where
        R: AsyncRead + Send + Unpin,
    {
        let (root, beneath) = self.locate(path)?;
        let beneath = beneath.to_owned();
        let (directory, name) = blocking(move || parent(&root, &beneath)).await?;
        let mut draft = Draft::create(&directory, name.clone()).await?;
        let mut buffer = BytesMut::with_capacity(CHUNK_BYTES);
        while !intake.has_ended() {
            intake.fill(&mut buffer, CHUNK_BYTES).await?;
            draft.file.write_all(&buffer).await.map_err(BlobError::Disk)?;
            buffer.clear();
        }
        let flowed = intake.flowed();
        let mut beside = Draft::create(&directory, format!("{name}{}", manifest::SUFFIX)).await?;
        let text = manifest::write(&flowed, SystemTime::now());
        beside.file.write_all(&text).await.map_err(BlobError::Disk)?;
        // The snapshot first: one without its manifest is refused, a manifest without its snapshot is nothing.
        draft.publish().await?;
        beside.publish().await?;
        Ok(Put { flowed, cid: None })
    }

    pub(super) async fn get(&self, path: &Path, known: Option<Expected>) -> Result<(Chunks, Expected), BlobError> {
        let (root, beneath) = self.locate(path)?;
        let file = open(Arc::clone(&root), beneath.to_owned()).await?;
        let expected = match known {
            Some(expected) => expected,
            None => read_manifest(root, beneath).await?,
        };
        let chunks = ReaderStream::with_capacity(file, CHUNK_BYTES).map_err(BlobError::Disk);
        Ok((chunks.boxed(), expected))
    }
}

impl Root {
    fn open(path: &Path) -> Result<Self, RootError> {
        if !path.is_absolute() {
            return Err(RootError::Relative { path: path.to_owned() });
        }
        let opened = Dir::open_ambient_dir(path, ambient_authority());
        let directory = opened.map_err(|source| RootError::Open { path: path.to_owned(), source })?;
        Ok(Self { path: path.components().collect(), directory: Arc::new(directory) })
    }
}

/// A file under another name until it is whole; removed if that never comes.
struct Draft {
    directory: Arc<Dir>,
    file: File,
    draft_name: String,
    name: String,
    published: bool,
}

impl Draft {
    async fn create(directory: &Arc<Dir>, name: String) -> Result<Self, BlobError> {
        let directory = Arc::clone(directory);
        let draft_name = format!(".{:016x}{DRAFT_SUFFIX}", rand::random::<u64>());
        let (held, draft) = (Arc::clone(&directory), draft_name.clone());
        let file = blocking(move || sweep(&held).and_then(|()| claim(&held, &draft)).map_err(BlobError::Disk));
        let file = File::from_std(file.await?);
        Ok(Self { directory, file, draft_name, name, published: false })
    }

    /// On the disk and under its name, or not at all.
    async fn publish(mut self) -> Result<(), BlobError> {
        self.file.flush().await.map_err(BlobError::Disk)?;
        self.file.sync_all().await.map_err(BlobError::Disk)?;
        let directory = Arc::clone(&self.directory);
        let (from, to) = (self.draft_name.clone(), self.name.clone());
        blocking(move || {
            directory.rename(from, &directory, to).map_err(refusal)?;
            directory.open(".").and_then(|directory| directory.sync_all()).map_err(BlobError::Disk)
        })
        .await?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.published
            && let Err(error) = self.directory.remove_file(&self.draft_name)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = self.draft_name, %error, "an unfinished snapshot is left behind");
        }
    }
}

/// A new file, which shows by its lock that somebody writes it. Where there are no locks nothing is swept either.
fn claim(directory: &Dir, name: &str) -> io::Result<std::fs::File> {
    loop {
        let file = directory.open_with(name, OpenOptions::new().write(true).create_new(true))?.into_std();
        if let Err(error) = file.lock() {
            tracing::debug!(%error, "drafts cannot be locked here");
        }
        // A sweep may have come before the lock.
        if file.metadata()?.nlink() > 0 {
            return Ok(file);
        }
    }
}

/// Removes the drafts that nobody writes any more, since their process died.
fn sweep(directory: &Dir) -> io::Result<()> {
    for entry in directory.entries()? {
        let name = entry?.file_name();
        let Some(name) = name.to_str().filter(|name| is_draft(name)) else { continue };
        // A snapshot that is called like a draft has its manifest beside it.
        let is_whole = directory.exists(format!("{name}{}", manifest::SUFFIX));
        let unwritten = |file: cap_std::fs::File| file.into_std().try_lock().is_ok();
        if !is_whole && directory.open(name).is_ok_and(unwritten) {
            directory.remove_file(name).or_else(absent_is_fine)?;
        }
    }
    Ok(())
}

fn is_draft(name: &str) -> bool {
    let digits = name.strip_prefix('.').and_then(|name| name.strip_suffix(DRAFT_SUFFIX));
    digits.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn absent_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// The directory of `beneath`, made where it is missing, and its name there.
fn parent(root: &Arc<Dir>, beneath: &Path) -> Result<(Arc<Dir>, String), BlobError> {
    let name = beneath.file_name().and_then(OsStr::to_str).ok_or(BlobError::NotFile)?.to_owned();
    let directory = match beneath.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        None => Arc::clone(root),
        Some(parent) => {
            root.create_dir_all(parent).map_err(refusal)?;
            Arc::new(root.open_dir(parent).map_err(refusal)?)
        }
    };
    match directory.symlink_metadata(&name) {
        Ok(found) if !found.is_file() => Err(BlobError::NotFile),
        Ok(_) => Ok((directory, name)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((directory, name)),
        Err(error) => Err(refusal(error)),
    }
}

/// A file to be read. It is looked at before it is opened, since devices and pipes act on being opened.
async fn open(root: Arc<Dir>, beneath: PathBuf) -> Result<File, BlobError> {
    let file = blocking(move || {
        if !root.metadata(&beneath).map_err(refusal)?.is_file() {
            return Err(BlobError::NotFile);
        }
        root.open(&beneath).map_err(refusal)
    });
    Ok(File::from_std(file.await?.into_std()))
}

async fn read_manifest(root: Arc<Dir>, beneath: &Path) -> Result<Expected, BlobError> {
    let mut beside = beneath.as_os_str().to_owned();
    beside.push(manifest::SUFFIX);
    let file = match open(root, beside.into()).await {
        Err(BlobError::NotFound { .. }) => return Err(BlobError::Unverifiable),
        file => file?,
    };
    let mut text = Vec::new();
    file.take(MANIFEST_BYTES_MAX as u64 + 1).read_to_end(&mut text).await.map_err(BlobError::Disk)?;
    if text.len() > MANIFEST_BYTES_MAX { Err(BlobError::Manifest) } else { manifest::read(&text) }
}

/// A link that leads out of the root is answered by the kernel as one that is not permitted.
fn refusal(error: io::Error) -> BlobError {
    match error.kind() {
        io::ErrorKind::NotFound => BlobError::NotFound { store: Store::File },
        io::ErrorKind::PermissionDenied => BlobError::Denied { store: Store::File },
        io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory | io::ErrorKind::AlreadyExists => BlobError::NotFile,
        _ => BlobError::Disk(error),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, BlobError> {
    spawn_blocking(work).await.map_err(|error| BlobError::Disk(error.into()))?
}
