//! The engine as its operator looks at it: what it is, what it has, which containers are a node's. Nothing is changed.

use std::collections::HashMap;
use std::path::PathBuf;

use bollard::Docker;
use bollard::query_parameters::ListContainersOptionsBuilder;

use super::DockerError;
use super::hardening::NODE_LABEL;
use crate::limits::CHECK_TIMEOUT;

/// An engine to be looked at.
pub(crate) struct Survey(Docker);

/// What an engine says of itself.
#[derive(Debug, Clone)]
pub(crate) struct EngineFacts {
    pub(crate) version: String,
    pub(crate) runtimes: Vec<String>,
    pub(crate) default_runtime: String,
    /// Where it keeps images and volumes.
    pub(crate) root_dir: PathBuf,
}

/// A container of a node.
#[derive(Debug, Clone, serde::Serialize)]
pub(crate) struct FoundContainer {
    pub(crate) name: String,
    /// The sandbox that it is, or its name in the pool.
    pub(crate) sandbox: String,
    /// `running`, `exited`, as the engine says.
    pub(crate) state: String,
}

impl Survey {
    /// Connects to the engine at `host` (`unix:///…`).
    pub(crate) async fn connect(host: &str) -> Result<Self, DockerError> {
        let path = host.strip_prefix("unix://").unwrap_or(host);
        let engine = Docker::connect_with_unix(path, CHECK_TIMEOUT.as_secs(), bollard::API_DEFAULT_VERSION)
            .map_err(DockerError::Connect)?;
        Ok(Self(engine.negotiate_version().await.map_err(DockerError::Connect)?))
    }

    /// What it says of itself.
    pub(crate) async fn facts(&self) -> Result<EngineFacts, DockerError> {
        let info = self.0.info().await.map_err(DockerError::Connect)?;
        let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        runtimes.sort();
        Ok(EngineFacts {
            version: info.server_version.unwrap_or_default(),
            runtimes,
            default_runtime: info.default_runtime.unwrap_or_default(),
            root_dir: info.docker_root_dir.unwrap_or_default().into(),
        })
    }

    /// Whether it has the image.
    pub(crate) async fn has_image(&self, image: &str) -> Result<bool, DockerError> {
        match self.0.inspect_image(image).await {
            Ok(_) => Ok(true),
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => Ok(false),
            Err(error) => Err(DockerError::Connect(error)),
        }
    }

    /// The containers of the node with this tag.
    pub(crate) async fn containers(&self, tag: &str) -> Result<Vec<FoundContainer>, DockerError> {
        let ending = format!("-{tag}");
        let filters = HashMap::from([("label", vec![format!("{NODE_LABEL}={tag}")])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found = self.0.list_containers(Some(options)).await.map_err(DockerError::Connect)?;
        let mut found: Vec<_> = found
            .into_iter()
            .map(|container| {
                let name = container.names.unwrap_or_default().concat().trim_start_matches('/').to_owned();
                let sandbox = name.strip_suffix(&ending).unwrap_or_default().to_owned();
                let state = container.state.map(|state| state.to_string()).unwrap_or_default();
                FoundContainer { name, sandbox, state }
            })
            .collect();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }
}
