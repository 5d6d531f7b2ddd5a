//! What is asked of the engine: each request bounded in time, each answer with its meaning.

use std::collections::HashMap;

use bollard::Docker;
use bollard::errors::Error as EngineError;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerSummary, ContainerUpdateBody, SystemInfo,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, DownloadFromContainerOptionsBuilder, InspectContainerOptions, KillContainerOptions,
    ListContainersOptionsBuilder, ListVolumesOptionsBuilder, RemoveContainerOptionsBuilder, RemoveVolumeOptions,
    RenameContainerOptionsBuilder, StartContainerOptions, StopContainerOptions,
};
use bytes::Bytes;
use futures::Stream;

use super::DockerError;
use crate::failpoint::{Failpoint, Step};
use crate::limits::ENGINE_TIMEOUT;

/// A Docker engine on this host.
#[derive(Clone)]
pub(super) struct Engine {
    docker: Docker,
    failpoint: Failpoint,
}

/// Whether a name could be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// It is the container's now.
    Had,
    /// Another container has it.
    Taken,
    /// The container does not exist.
    Absent,
}

impl Engine {
    /// Connects to the engine at `host` (`unix:///…`) and agrees on a version with it.
    pub(super) async fn connect(host: &str, failpoint: Failpoint) -> Result<Self, DockerError> {
        let path = host.strip_prefix("unix://").unwrap_or(host);
        let docker = Docker::connect_with_unix(path, ENGINE_TIMEOUT.as_secs(), bollard::API_DEFAULT_VERSION)
            .map_err(DockerError::Connect)?;
        let docker = docker.negotiate_version().await.map_err(DockerError::Connect)?;
        Ok(Self { docker, failpoint })
    }

    fn step(&self, what: &'static str) -> Step {
        self.failpoint.step("engine", what)
    }

    /// What the engine says of itself.
    pub(super) async fn info(&self) -> Result<SystemInfo, DockerError> {
        self.docker.info().await.map_err(DockerError::Connect)
    }

    /// The digest of an image on this host.
    pub(super) async fn image(&self, image: &str) -> Result<String, DockerError> {
        let missing = || DockerError::ImageMissing { image: image.into() };
        match self.docker.inspect_image(image).await {
            Ok(found) => found.id.ok_or_else(missing),
            Err(error) if status(&error) == Some(404) => Err(missing()),
            Err(source) => Err(DockerError::Image { image: image.into(), source }),
        }
    }

    /// Creates a container; [`Name::Taken`] where one of that name exists.
    pub(super) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<Name, DockerError> {
        let _step = self.step("create");
        let image = body.image.clone().unwrap_or_default();
        let options = CreateContainerOptionsBuilder::new().name(name).build();
        match self.docker.create_container(Some(options), body).await {
            Ok(_) => Ok(Name::Had),
            Err(error) if status(&error) == Some(409) => Ok(Name::Taken),
            Err(error) if status(&error) == Some(404) => Err(DockerError::ImageMissing { image }),
            Err(source) => Err(DockerError::Create { name: name.into(), source }),
        }
    }

    /// Starts a container, unless it runs.
    pub(super) async fn start(&self, name: &str) -> Result<(), DockerError> {
        let _step = self.step("start");
        match self.docker.start_container(name, None::<StartContainerOptions>).await {
            Err(error) if status(&error) == Some(304) => Ok(()),
            started => started.map_err(|source| DockerError::Start { name: name.into(), source }),
        }
    }

    /// Asks a container to end, and ends it when it does not. Harmless where it does not run or exist.
    pub(super) async fn stop(&self, name: &str) -> Result<(), DockerError> {
        let _step = self.step("stop");
        match self.docker.stop_container(name, None::<StopContainerOptions>).await {
            Err(error) if matches!(status(&error), Some(304 | 404)) => Ok(()),
            stopped => stopped.map_err(|source| DockerError::Stop { name: name.into(), source }),
        }
    }

    /// Ends a container at once. Harmless where it does not run or exist.
    pub(super) async fn kill(&self, name: &str) -> Result<(), DockerError> {
        let _step = self.step("kill");
        match self.docker.kill_container(name, None::<KillContainerOptions>).await {
            Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(()),
            killed => killed.map_err(|source| DockerError::Stop { name: name.into(), source }),
        }
    }

    /// Gives a container another name.
    pub(super) async fn rename(&self, from: &str, to: &str) -> Result<Name, DockerError> {
        let _step = self.step("rename");
        let options = RenameContainerOptionsBuilder::new().name(to).build();
        match self.docker.rename_container(from, options).await {
            Ok(()) => Ok(Name::Had),
            Err(error) if status(&error) == Some(409) => Ok(Name::Taken),
            Err(error) if status(&error) == Some(404) => Ok(Name::Absent),
            Err(source) => Err(DockerError::Rename { name: from.into(), source }),
        }
    }

    /// Changes the limits of a container, running or not.
    pub(super) async fn update(&self, name: &str, limits: ContainerUpdateBody) -> Result<(), DockerError> {
        let _step = self.step("update");
        let updated = self.docker.update_container(name, limits).await;
        updated.map_err(|source| DockerError::Update { name: name.into(), source })
    }

    /// What the engine says of a container; `None` where it does not exist.
    pub(super) async fn inspect(&self, name: &str) -> Result<Option<ContainerInspectResponse>, DockerError> {
        match self.docker.inspect_container(name, None::<InspectContainerOptions>).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(source) => Err(DockerError::Inspect { name: name.into(), source }),
        }
    }

    /// Removes a container. Harmless where it does not exist.
    pub(super) async fn remove(&self, name: &str) -> Result<(), DockerError> {
        let _step = self.step("remove");
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        gone(name, self.docker.remove_container(name, Some(options)).await)
    }

    /// Removes a volume. Harmless where it does not exist.
    pub(super) async fn remove_volume(&self, name: &str) -> Result<(), DockerError> {
        let _step = self.step("remove volume");
        gone(name, self.docker.remove_volume(name, None::<RemoveVolumeOptions>).await)
    }

    /// The containers with this label, running or not.
    pub(super) async fn containers(&self, label: &str) -> Result<Vec<ContainerSummary>, DockerError> {
        let options = ListContainersOptionsBuilder::new().all(true).filters(&labelled(label)).build();
        self.docker.list_containers(Some(options)).await.map_err(DockerError::List)
    }

    /// Names of the volumes with this label.
    pub(super) async fn volumes(&self, label: &str) -> Result<Vec<String>, DockerError> {
        let options = ListVolumesOptionsBuilder::new().filters(&labelled(label)).build();
        let found = self.docker.list_volumes(Some(options)).await.map_err(DockerError::List)?;
        Ok(found.volumes.unwrap_or_default().into_iter().map(|volume| volume.name).collect())
    }

    /// A directory of a container as a tar stream.
    pub(super) fn archive(&self, name: &str, path: &str) -> impl Stream<Item = Result<Bytes, EngineError>> {
        let options = DownloadFromContainerOptionsBuilder::new().path(path).build();
        self.docker.download_from_container(name, Some(options))
    }
}

/// The engine's HTTP status, where it answered with one.
pub(super) fn status(error: &EngineError) -> Option<u16> {
    match error {
        EngineError::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

fn labelled(label: &str) -> HashMap<&'static str, Vec<&str>> {
    HashMap::from([("label", vec![label])])
}

fn gone(name: &str, removed: Result<(), EngineError>) -> Result<(), DockerError> {
    match removed {
        Err(error) if status(&error) == Some(404) => Ok(()),
        other => other.map_err(|source| DockerError::Remove { name: name.into(), source }),
    }
}
