//! Sandboxes as containers of a Docker engine: the only folder that knows it.
//!
//! Everything is found by name, so every operation may be repeated. What was started is inspected, and what the
//! inspection shows, not what was asked for, decides whether the sandbox is as hardened as promised.

mod error;
mod hardening;
mod survey;

use std::os::unix::fs::DirBuilderExt;

use async_trait::async_trait;
use bollard::Docker;
use bollard::errors::Error as EngineError;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, RemoveContainerOptionsBuilder, RemoveVolumeOptions,
    StartContainerOptions, StopContainerOptions,
};
use sandbox_fleet::ports::{Containers, PortError};
use sandbox_fleet::sandbox::{Instance, Sandbox};
use sandbox_protocol::SandboxId;

pub(crate) use error::DockerError;
pub(crate) use survey::{EngineFacts, FoundContainer, Survey};

use crate::limits::ENGINE_TIMEOUT;
use crate::places::Places;

/// What a sandbox has besides its container.
const VOLUMES: [&str; 2] = ["workspace", "home"];

/// A Docker engine on this host.
pub(crate) struct DockerContainers {
    engine: Docker,
    places: Places,
    runtime: Option<String>,
}

impl DockerContainers {
    /// Connects to the engine at `host` (`unix:///…`) and agrees on a version with it.
    pub(crate) async fn connect(host: &str, places: Places, runtime: Option<String>) -> Result<Self, DockerError> {
        let path = host.strip_prefix("unix://").unwrap_or(host);
        let engine = Docker::connect_with_unix(path, ENGINE_TIMEOUT.as_secs(), bollard::API_DEFAULT_VERSION)
            .map_err(DockerError::Connect)?;
        let engine = engine.negotiate_version().await.map_err(DockerError::Connect)?;
        Ok(Self { engine, places, runtime })
    }

    async fn make(&self, sandbox: &Sandbox) -> Result<Instance, DockerError> {
        let name = self.places.name(sandbox.id);
        self.make_socket_dir(&name)?;
        let body = hardening::container(sandbox, &self.places, self.runtime.as_deref());
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        match self.engine.create_container(Some(options), body).await {
            // Made by a former attempt.
            Ok(_) | Err(EngineError::DockerResponseServerError { status_code: 409, .. }) => {}
            Err(EngineError::DockerResponseServerError { status_code: 404, .. }) => {
                return Err(DockerError::ImageMissing { image: sandbox.spec.image.clone() });
            }
            Err(source) => return Err(DockerError::Create { name, source }),
        }
        self.start(&name).await?;
        let found = self.inspect(&name).await?.ok_or(DockerError::Vanished { name })?;
        self.verified(sandbox, &found)
    }

    async fn look(&self, sandbox: &Sandbox) -> Result<Option<Instance>, DockerError> {
        let name = self.places.name(sandbox.id);
        let Some(found) = self.inspect(&name).await? else { return Ok(None) };
        let running = found.state.as_ref().and_then(|state| state.running).unwrap_or(false);
        match self.verified(sandbox, &found) {
            Ok(instance) if running => Ok(Some(instance)),
            Ok(instance) => {
                // After a reboot of the host the directory is gone, and without it the engine starts nothing.
                self.make_socket_dir(&name)?;
                self.start(&name).await?;
                Ok(Some(instance))
            }
            // What is not as hardened as promised does not run; what is in it is kept.
            Err(error) if running => {
                self.stop(&name).await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn make_socket_dir(&self, vessel: &str) -> Result<(), DockerError> {
        let dir = self.places.socket_dir(vessel);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|source| DockerError::SocketDirectory { dir, source })
    }

    async fn rest(&self, id: SandboxId) -> Result<bool, DockerError> {
        let name = self.places.name(id);
        self.stop(&name).await?;
        Ok(self.inspect(&name).await?.is_some())
    }

    async fn clear(&self, id: SandboxId) -> Result<(), DockerError> {
        let name = self.places.name(id);
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let removed = self.engine.remove_container(&name, Some(options)).await;
        absent_is_fine(removed).map_err(|source| DockerError::Remove { name: name.clone(), source })?;
        for volume in VOLUMES {
            let volume = format!("{name}-{volume}");
            let removed = self.engine.remove_volume(&volume, None::<RemoveVolumeOptions>).await;
            absent_is_fine(removed).map_err(|source| DockerError::Remove { name: volume, source })?;
        }
        let dir = self.places.socket_dir(&name);
        match std::fs::remove_dir_all(&dir) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(DockerError::SocketDirectory { dir, source })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    async fn start(&self, name: &str) -> Result<(), DockerError> {
        let started = self.engine.start_container(name, None::<StartContainerOptions>).await;
        match started {
            // 304: it runs already.
            Ok(()) | Err(EngineError::DockerResponseServerError { status_code: 304, .. }) => Ok(()),
            Err(source) => Err(DockerError::Start { name: name.into(), source }),
        }
    }

    async fn stop(&self, name: &str) -> Result<(), DockerError> {
        let stopped = self.engine.stop_container(name, None::<StopContainerOptions>).await;
        absent_is_fine(stopped).map_err(|source| DockerError::Stop { name: name.into(), source })
    }

    async fn inspect(&self, name: &str) -> Result<Option<ContainerInspectResponse>, DockerError> {
        match self.engine.inspect_container(name, None::<InspectContainerOptions>).await {
            Ok(found) => Ok(Some(found)),
            Err(EngineError::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
            Err(source) => Err(DockerError::Inspect { name: name.into(), source }),
        }
    }

    fn verified(&self, sandbox: &Sandbox, found: &ContainerInspectResponse) -> Result<Instance, DockerError> {
        let name = self.places.name(sandbox.id);
        hardening::verify(sandbox, &self.places, found)
            .map_err(|source| DockerError::Hardening { name: name.clone(), source })?;
        let host = found.host_config.as_ref();
        let runtime = host.and_then(|host| host.runtime.clone()).ok_or(DockerError::Vanished { name: name.clone() })?;
        let image_digest = found.image.clone().ok_or(DockerError::Vanished { name: name.clone() })?;
        let token = hardening::token(found).ok_or(DockerError::Vanished { name: name.clone() })?;
        Ok(Instance { runtime, image_digest, vessel: name, token })
    }
}

#[async_trait]
impl Containers for DockerContainers {
    async fn provision(&self, sandbox: &Sandbox) -> Result<Instance, PortError> {
        Ok(self.make(sandbox).await?)
    }

    async fn adopt(&self, sandbox: &Sandbox) -> Result<Option<Instance>, PortError> {
        Ok(self.look(sandbox).await?)
    }

    async fn halt(&self, sandbox: &Sandbox) -> Result<bool, PortError> {
        Ok(self.rest(sandbox.id).await?)
    }

    async fn remove(&self, sandbox: &Sandbox) -> Result<(), PortError> {
        Ok(self.clear(sandbox.id).await?)
    }
}

fn absent_is_fine(removed: Result<(), EngineError>) -> Result<(), EngineError> {
    match removed {
        Err(EngineError::DockerResponseServerError { status_code: 404, .. }) => Ok(()),
        other => other,
    }
}
