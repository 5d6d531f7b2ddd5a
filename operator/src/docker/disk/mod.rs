//! What a sandbox writes to: one disk for its workspace, its home and what its sidecar keeps, of a size that it cannot
//! exceed.
//!
//! A disk is a sparse file with a file system in it: it takes of the host what is written, and the file system is full
//! when it is full. The host mounts it; the container is given three of its directories. They exist only in the
//! mounted disk: the engine starts nothing on a disk that is not there. Everything is found by the vessel's name, so
//! every operation may be repeated after a crash at any instant. The kernel lets go of the loop device with the mount.

mod error;
mod template;
mod tools;

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use nix::sys::statvfs::statvfs;

pub(crate) use error::DiskError;
pub(crate) use template::{OUTSIDE_NAMES, Template, outline};

use crate::failpoint::Failpoint;
use crate::limits::{HOST_FREE_BYTES_MIN, UNMOUNT_PAUSE, UNMOUNT_TRIES_MAX};

/// Bytes of what requests count disk in.
const GIB: u64 = 1024 * 1024 * 1024;
/// Ending of an image's name.
const IMAGE_EXTENSION: &str = "img";
/// Where templates are, beside the disks.
const TEMPLATES: &str = "templates";
/// A disk that is made at the start to see whether it can be.
const PROBE: &str = "probe";

/// How a disk is kept to its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskQuota {
    /// By a mounted image of that size.
    Loop,
    /// Not at all: it is a directory.
    None,
}

impl DiskQuota {
    /// The word of settings and labels.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::None => "none",
        }
    }
}

impl FromStr for DiskQuota {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Loop, Self::None].into_iter().find(|quota| quota.as_str() == text).ok_or("give loop or none")
    }
}

/// The disks of this node.
#[derive(Debug, Clone)]
pub(crate) struct Disks {
    dir: Arc<Path>,
    /// How new ones are kept to their size.
    quota: DiskQuota,
    failpoint: Failpoint,
}

impl Disks {
    /// Disks below `data_dir`, after one was made, mounted and removed for a trial, for which there must be room.
    ///
    /// # Errors
    /// [`DiskError::NoLoop`] where images cannot be mounted here.
    pub(crate) async fn open(data_dir: &Path, quota: DiskQuota, failpoint: Failpoint) -> Result<Self, DiskError> {
        let dir = data_dir.join("disks");
        let wrong = |source| DiskError::Directory { dir: dir.clone(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(wrong)?;
        // Made anew when asked for: images may have changed since the last life.
        absent_is_fine(std::fs::remove_dir_all(dir.join(TEMPLATES))).map_err(wrong)?;
        let disks = Self { dir: dir.canonicalize().map_err(wrong)?.into(), quota, failpoint };
        match quota {
            DiskQuota::None => {
                tracing::warn!("DISK_QUOTA=none: a sandbox may write more than the disk it was promised")
            }
            DiskQuota::Loop => match disks.try_out().await {
                // That passes, and what is served or deleted needs no new disk.
                Err(error) if error.is_full() => {
                    tracing::error!(error = %crate::error_chain(&error), "no sandbox is made before there is room");
                }
                tried => tried.map_err(|error| DiskError::NoLoop(Box::new(error)))?,
            },
        }
        Ok(disks)
    }

    /// Disks in `dir`, for tests of what names them.
    #[cfg(test)]
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.into(), quota: DiskQuota::Loop, failpoint: Failpoint::default() }
    }

    /// How new disks are kept to their size.
    pub(crate) const fn quota(&self) -> DiskQuota {
        self.quota
    }

    async fn try_out(&self) -> Result<(), DiskError> {
        self.remove(PROBE).await?;
        let skeleton = self.skeleton(PROBE);
        outline(&skeleton)?;
        let template = self.template(PROBE, 1).await?;
        self.make(PROBE, &template).await?;
        let mounted = match self.mount(PROBE).await {
            Ok(()) => self.check(PROBE, 1),
            Err(error) => Err(error),
        };
        self.remove(PROBE).await?;
        mounted
    }

    /// Where what an image has in the directories is laid out before templates are made of it.
    pub(crate) fn skeleton(&self, image: &str) -> PathBuf {
        self.dir.join(TEMPLATES).join(image).join("skeleton")
    }

    /// What disks of this size for this image are copied from; made where it is missing, from the skeleton.
    pub(crate) async fn template(&self, image: &str, disk_gb: u64) -> Result<Template, DiskError> {
        let skeleton = self.skeleton(image);
        match self.quota {
            DiskQuota::None => Ok(Template::Directory(skeleton)),
            DiskQuota::Loop => {
                let path = self.dir.join(TEMPLATES).join(image).join(format!("{disk_gb}.{IMAGE_EXTENSION}"));
                if !path.exists() {
                    template::format(&skeleton, &path, disk_gb.saturating_mul(GIB)).await?;
                }
                Ok(Template::Image(path))
            }
        }
    }

    /// Makes the vessel's disk. Repeatable: one that exists stays as it is.
    pub(crate) async fn make(&self, vessel: &str, template: &Template) -> Result<(), DiskError> {
        let path = match template {
            Template::Image(_) => self.image(vessel),
            Template::Directory(_) => self.mount_point(vessel),
        };
        if path.exists() {
            return Ok(());
        }
        let _step = self.failpoint.step("disk", "make");
        self.spare_the_host()?;
        // Whole or not at all.
        let unready = self.dir.join(format!("{vessel}.new"));
        let failed = |source| DiskError::Make { path: path.clone(), source };
        remove_any(&unready).await.map_err(failed)?;
        template.copy(&unready).await.map_err(failed)?;
        tokio::fs::rename(&unready, &path).await.map_err(failed)
    }

    /// Refuses where the host itself would run full.
    fn spare_the_host(&self) -> Result<(), DiskError> {
        let dir = || self.dir.to_path_buf();
        let found = statvfs(&*self.dir).map_err(|errno| DiskError::Look { path: dir(), source: errno.into() })?;
        let free_bytes = found.blocks_available().saturating_mul(found.fragment_size());
        if free_bytes < HOST_FREE_BYTES_MIN {
            return Err(DiskError::HostFull { dir: dir(), free_bytes });
        }
        Ok(())
    }

    /// Mounts the vessel's disk, where it is an image. Repeatable.
    pub(crate) async fn mount(&self, vessel: &str) -> Result<(), DiskError> {
        let (image, point) = (self.image(vessel), self.mount_point(vessel));
        if !image.exists() || self.is_mounted(vessel)? {
            return Ok(());
        }
        let _step = self.failpoint.step("disk", "mount");
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&point);
        made.map_err(|source| DiskError::Mount { path: image.clone(), source })?;
        tools::mount(&image, &point).await.map_err(|source| DiskError::Mount { path: image, source })
    }

    /// Lets go of the mount, where there is one; what is on the disk stays. Repeatable.
    pub(crate) async fn unmount(&self, vessel: &str) -> Result<(), DiskError> {
        let point = self.mount_point(vessel);
        let failed = |source| DiskError::Unmount { path: point.clone(), source };
        for attempt in 0..UNMOUNT_TRIES_MAX {
            if !self.is_mounted(vessel)? {
                return Ok(());
            }
            let _step = self.failpoint.step("disk", "unmount");
            // What still holds it after that is no sandbox; the kernel lets go when it does.
            let last = attempt + 1 == UNMOUNT_TRIES_MAX;
            match tools::unmount(&point, last).await {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && !last => {
                    tokio::time::sleep(UNMOUNT_PAUSE).await;
                }
                unmounted => unmounted.map_err(failed)?,
            }
        }
        if self.is_mounted(vessel)? { Err(failed(io::ErrorKind::ResourceBusy.into())) } else { Ok(()) }
    }

    /// Removes whatever exists of the vessel's disk. Repeatable. Its container must not run any more.
    pub(crate) async fn remove(&self, vessel: &str) -> Result<(), DiskError> {
        self.unmount(vessel).await?;
        let _step = self.failpoint.step("disk", "remove");
        for path in [self.image(vessel), self.mount_point(vessel), self.dir.join(format!("{vessel}.new"))] {
            remove_any(&path).await.map_err(|source| DiskError::Remove { path, source })?;
        }
        Ok(())
    }

    /// Compares the vessel's disk with what was promised.
    pub(crate) fn check(&self, vessel: &str, disk_gb: u64) -> Result<(), DiskError> {
        let image = self.image(vessel);
        let unlike = |what: String| DiskError::Unlike { path: image.clone(), what };
        let found = std::fs::metadata(&image).map_err(|source| DiskError::Look { path: image.clone(), source })?;
        if found.len() != disk_gb.saturating_mul(GIB) {
            return Err(unlike(format!("has {} bytes, not {disk_gb} GiB", found.len())));
        }
        if !self.is_mounted(vessel)? {
            return Err(unlike("is not mounted".into()));
        }
        let point = self.mount_point(vessel);
        let look = |source| DiskError::Look { path: point.clone(), source };
        let device = std::fs::metadata(&point).map_err(look)?.dev();
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let backing = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/loop/backing_file"));
        let backing = backing.map_err(look)?;
        if Path::new(backing.trim_end()) != image {
            return Err(unlike(format!("is hidden by {}", backing.trim_end())));
        }
        Ok(())
    }

    /// The directory that becomes `inside` in the container: `workspace`, `home` or `storage`.
    pub(crate) fn outside(&self, vessel: &str, name: &str) -> PathBuf {
        self.mount_point(vessel).join(name)
    }

    /// Vessels of which something is here.
    pub(crate) fn vessels(&self) -> Result<Vec<String>, DiskError> {
        let look = |source| DiskError::Look { path: self.dir.to_path_buf(), source };
        let mut vessels = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(look)? {
            let name = entry.map_err(look)?.file_name();
            let Some(name) = name.to_str() else { continue };
            let vessel = name.strip_suffix(".img").or_else(|| name.strip_suffix(".new")).unwrap_or(name);
            if vessel != TEMPLATES {
                vessels.push(vessel.to_owned());
            }
        }
        vessels.sort();
        vessels.dedup();
        Ok(vessels)
    }

    fn image(&self, vessel: &str) -> PathBuf {
        self.dir.join(format!("{vessel}.{IMAGE_EXTENSION}"))
    }

    fn mount_point(&self, vessel: &str) -> PathBuf {
        self.dir.join(vessel)
    }

    /// Whether something is mounted there: it is on another device than what it is in.
    fn is_mounted(&self, vessel: &str) -> Result<bool, DiskError> {
        let point = self.mount_point(vessel);
        let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev());
        let look = |source| DiskError::Look { path: point.clone(), source };
        match device(&point) {
            Ok(found) => Ok(found != device(&self.dir).map_err(look)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(look(error)),
        }
    }
}

/// Removes a file or a directory with all that is in it.
async fn remove_any(path: &Path) -> io::Result<()> {
    match tokio::fs::symlink_metadata(path).await {
        Ok(found) if found.is_dir() => absent_is_fine(tokio::fs::remove_dir_all(path).await),
        Ok(_) => absent_is_fine(tokio::fs::remove_file(path).await),
        Err(error) => absent_is_fine(Err(error)),
    }
}

fn absent_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
