//! What new disks are copies of: a file system made once, with what the image has in its directories.

use std::fs::{File, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use super::{DiskError, tools};

/// The directories of a disk: the agent's two, and the one that the sidecar keeps for itself.
pub(crate) const OUTSIDE_NAMES: [&str; 3] = ["workspace", "home", STORAGE];
const STORAGE: &str = "storage";
/// Who commands run as inside.
const AGENT: u32 = 1_000;
/// Who the sidecar runs as, and what others may do where it keeps its own: nothing.
const SIDECAR: u32 = 0;
const SIDECARS_ALONE: u32 = 0o700;

/// What a disk is copied from.
#[derive(Debug, Clone)]
pub(crate) enum Template {
    /// A file system in a sparse file.
    Image(PathBuf),
    /// A directory.
    Directory(PathBuf),
}

impl Template {
    /// Makes `to` a copy.
    pub(super) async fn copy(&self, to: &Path) -> io::Result<()> {
        match self {
            Self::Image(image) => {
                let (from, to) = (image.clone(), to.to_owned());
                tokio::task::spawn_blocking(move || copy_sparse(&from, &to)).await?
            }
            Self::Directory(dir) => tools::copy_tree(dir, to).await,
        }
    }
}

/// Makes sure that a skeleton has all directories, and whose they are.
pub(crate) fn outline(skeleton: &Path) -> Result<(), DiskError> {
    for name in OUTSIDE_NAMES {
        let path = skeleton.join(name);
        let owner = if name == STORAGE { SIDECAR } else { AGENT };
        let made = std::fs::create_dir_all(&path).and_then(|()| chown(&path, Some(owner), Some(owner)));
        let made = made.and_then(|()| match name {
            STORAGE => std::fs::set_permissions(&path, Permissions::from_mode(SIDECARS_ALONE)),
            _ => Ok(()),
        });
        made.map_err(|source| DiskError::Make { path, source })?;
    }
    Ok(())
}

/// Makes `image` a file system of `size_bytes` with what is in `skeleton`; it appears when it is whole.
pub(super) async fn format(skeleton: &Path, image: &Path, size_bytes: u64) -> Result<(), DiskError> {
    let failed = |source| DiskError::Make { path: image.to_owned(), source };
    let unready = image.with_extension("unready");
    File::create(&unready).and_then(|file| file.set_len(size_bytes)).map_err(failed)?;
    tools::format(&unready, skeleton).await.map_err(failed)?;
    tokio::fs::rename(&unready, image).await.map_err(failed)
}

/// Copies what is written of a file and leaves its holes.
fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let (mut source, mut target) = (File::open(from)?, File::create_new(to)?);
    target.set_len(source.metadata()?.len())?;
    let mut at = 0;
    while let Some(data) = seek(&source, at, Whence::SeekData)? {
        let hole = seek(&source, data, Whence::SeekHole)?.unwrap_or(data);
        let position = u64::try_from(data).map_err(io::Error::other)?;
        source.seek(SeekFrom::Start(position))?;
        target.seek(SeekFrom::Start(position))?;
        io::copy(&mut (&source).take((hole - data).unsigned_abs()), &mut target)?;
        at = hole;
    }
    Ok(())
}

/// `None` behind the last of what is looked for.
fn seek(file: &File, from: i64, whence: Whence) -> io::Result<Option<i64>> {
    match lseek(file, from, whence) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
