//! Containers with what they need on this host: socket directory and disk, made before them and removed after them.
//!
//! A container keeps the name of its vessel in a label, so that whoever finds it by its own name finds these as well.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;

use bollard::models::ContainerInspectResponse;
use sandbox_fleet::request::Resources;
use sandbox_fleet::sandbox::{Instance, Sandbox};
use tokio::sync::Mutex;

use super::disk::{DiskQuota, OUTSIDE_NAMES, Template};
use super::engine::{Engine, Name};
use super::hardening::{self, CUSTOMERS, Ground, NODE_LABEL, Shape, Storage};
use super::{DockerError, skeleton};

/// How much of an image's digest names its templates.
const DIGEST_LETTERS: usize = 16;
/// How containers begin that are never started.
pub(super) const SKELETON_PREFIX: &str = "skel-";

/// The engine and this host around it.
pub(super) struct Host {
    pub(super) engine: Engine,
    pub(super) ground: Ground,
    /// The node's default, where it is not the engine's.
    pub(super) runtime: Option<String>,
    /// Images whose directories are laid out; held while one is.
    pub(super) laid_out: Mutex<HashSet<String>>,
}

/// What a container is asked to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) image: String,
    pub(super) resources: Resources,
    /// The node's default without one.
    pub(super) runtime: Option<String>,
    /// Labels of its own.
    pub(super) labels: BTreeMap<String, String>,
}

impl From<&Sandbox> for Wanted {
    fn from(sandbox: &Sandbox) -> Self {
        let spec = &sandbox.spec;
        // What a customer notes on a sandbox of its own is for the customer alone.
        let labels = if sandbox.child.is_some() { spec.labels.clone() } else { BTreeMap::new() };
        Self { image: spec.image.clone(), resources: spec.resources, runtime: spec.runtime.clone(), labels }
    }
}

impl Host {
    /// The label that everything of this node carries.
    pub(super) fn label(&self) -> String {
        format!("{NODE_LABEL}={}", self.ground.places.tag())
    }

    /// Creates a container that is called like its vessel, with its disk and socket directory; does not start it.
    pub(super) async fn build(&self, vessel: &str, wanted: &Wanted) -> Result<Name, DockerError> {
        self.make_socket_dir(vessel)?;
        let template = self.template(&wanted.image, wanted.resources.disk_gb).await?;
        self.ground.disks.make(vessel, &template).await?;
        self.ground.disks.mount(vessel).await?;
        let shape = Shape {
            vessel: vessel.into(),
            image: wanted.image.clone(),
            resources: wanted.resources,
            runtime: wanted.runtime.clone().or_else(|| self.runtime.clone()),
            storage: Storage::Disk(self.ground.disks.quota()),
            labels: wanted.labels.clone(),
        };
        self.engine.create(vessel, hardening::container(&shape, &self.ground)).await
    }

    /// What new disks are copied from, made where it is missing: takes a moment the first time.
    pub(super) async fn template(&self, image: &str, disk_gb: u64) -> Result<Template, DockerError> {
        let digest = self.engine.image(image).await?;
        let hex = digest.rsplit(':').next().unwrap_or_default();
        let key: String = hex.chars().take(DIGEST_LETTERS).collect();
        let mut laid_out = self.laid_out.lock().await;
        if !laid_out.contains(&key) {
            let container = format!("{SKELETON_PREFIX}{key}-{}", self.ground.places.tag());
            let labels = hardening::node_labels(&self.ground);
            let skeleton = self.ground.disks.skeleton(&key);
            skeleton::lay_out(&self.engine, image, &skeleton, (&container, labels)).await?;
            laid_out.insert(key.clone());
        }
        Ok(self.ground.disks.template(&key, disk_gb).await?)
    }

    /// Brings a container that exists to where it is as `wanted`: started, with its limits, and inspected.
    pub(super) async fn settle(&self, name: &str, wanted: &Wanted) -> Result<Instance, DockerError> {
        let mut found = self.found(name).await?;
        if !runs(&found) {
            self.prepare(name, &found).await?;
            self.engine.start(name).await?;
            found = self.found(name).await?;
        }
        if let Some(limits) = hardening::limits_to_change(wanted.resources, &found) {
            self.engine.update(name, limits).await?;
            found = self.found(name).await?;
        }
        self.verified(name, wanted, &found)
    }

    /// Finds a container that ran, and starts it if it is stopped. `None`: it does not exist.
    pub(super) async fn look(&self, name: &str, wanted: &Wanted) -> Result<Option<Instance>, DockerError> {
        let Some(found) = self.engine.inspect(name).await? else { return Ok(None) };
        self.prepare(name, &found).await?;
        match self.verified(name, wanted, &found) {
            Ok(instance) => {
                if !runs(&found) {
                    self.engine.start(name).await?;
                }
                Ok(Some(instance))
            }
            // What is not as hardened as promised does not run; what is in it is kept.
            Err(error) => {
                if runs(&found) {
                    self.engine.stop(name).await?;
                }
                Err(error)
            }
        }
    }

    /// Stops a container and lets go of its disk, which stays. `false`: it does not exist.
    pub(super) async fn rest(&self, name: &str) -> Result<bool, DockerError> {
        let Some(found) = self.engine.inspect(name).await? else { return Ok(false) };
        self.engine.stop(name).await?;
        self.ground.disks.unmount(hardening::vessel(&found).unwrap_or(name)).await?;
        Ok(true)
    }

    /// Removes a container with all it has, or what is left of one. The container goes last: it tells what it has.
    /// Says by what that was found.
    pub(super) async fn clear(&self, name: &str) -> Result<String, DockerError> {
        let found = self.engine.inspect(name).await?;
        if found.as_ref().is_some_and(runs) {
            self.engine.kill(name).await?;
        }
        let vessel = found.as_ref().and_then(hardening::vessel).unwrap_or(name).to_owned();
        self.clear_vessel(&vessel).await?;
        let volumes = found.as_ref().is_none_or(|found| hardening::storage(found) == Storage::Volumes);
        self.engine.remove(name).await?;
        if volumes {
            for kind in OUTSIDE_NAMES.into_iter().take(CUSTOMERS) {
                self.engine.remove_volume(&hardening::volume(&vessel, kind)).await?;
            }
        }
        Ok(vessel)
    }

    /// Removes disk and socket directory of a vessel that no running container uses.
    pub(super) async fn clear_vessel(&self, vessel: &str) -> Result<(), DockerError> {
        self.ground.disks.remove(vessel).await?;
        let dir = self.ground.places.socket_dir(vessel);
        match std::fs::remove_dir_all(&dir) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(DockerError::SocketDirectory { dir, source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// After a reboot of the host nothing is mounted and the socket's directory is gone: without them the engine starts
    /// nothing.
    async fn prepare(&self, name: &str, found: &ContainerInspectResponse) -> Result<(), DockerError> {
        let vessel = hardening::vessel(found).unwrap_or(name);
        self.make_socket_dir(vessel)?;
        Ok(self.ground.disks.mount(vessel).await?)
    }

    fn make_socket_dir(&self, vessel: &str) -> Result<(), DockerError> {
        let dir = self.ground.places.socket_dir(vessel);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|source| DockerError::SocketDirectory { dir, source })
    }

    async fn found(&self, name: &str) -> Result<ContainerInspectResponse, DockerError> {
        self.engine.inspect(name).await?.ok_or_else(|| vanished(name))
    }

    fn verified(&self, name: &str, wanted: &Wanted, found: &ContainerInspectResponse) -> Result<Instance, DockerError> {
        let vessel = hardening::vessel(found).unwrap_or(name).to_owned();
        let shape = Shape {
            vessel: vessel.clone(),
            image: wanted.image.clone(),
            resources: wanted.resources,
            runtime: wanted.runtime.clone(),
            storage: hardening::storage(found),
            labels: wanted.labels.clone(),
        };
        hardening::verify(&shape, &self.ground, found)
            .map_err(|source| DockerError::Hardening { name: name.into(), source })?;
        if shape.storage.quota() == Some(DiskQuota::Loop) {
            self.ground.disks.check(&vessel, wanted.resources.disk_gb)?;
        }
        let host = found.host_config.as_ref();
        let runtime = host.and_then(|host| host.runtime.clone()).ok_or_else(|| vanished(name))?;
        let image_digest = found.image.clone().ok_or_else(|| vanished(name))?;
        let token = hardening::token(found).ok_or_else(|| vanished(name))?;
        Ok(Instance { runtime, image_digest, vessel, token })
    }
}

fn runs(found: &ContainerInspectResponse) -> bool {
    found.state.as_ref().and_then(|state| state.running).unwrap_or(false)
}

fn vanished(name: &str) -> DockerError {
    DockerError::Vanished { name: name.into() }
}
