//! What an image has in the directories of a disk, laid out for templates: a new disk begins with it, as a volume
//! of the engine's would.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::process::Stdio;

use bollard::models::{ContainerCreateBody, HostConfig};
use futures::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::DockerError;
use super::disk::{DiskError, OUTSIDE_NAMES, outline};
use super::engine::{Engine, status};
use super::hardening::INSIDE;
use crate::limits::DISK_TOOL_TIMEOUT;

/// Copies the directories of `image` to `skeleton`, by a container that is never started.
pub(super) async fn lay_out(
    engine: &Engine,
    image: &str,
    skeleton: &Path,
    (container, labels): (&str, HashMap<String, String>),
) -> Result<(), DockerError> {
    let failed = |source| DiskError::Make { path: skeleton.into(), source };
    match std::fs::remove_dir_all(skeleton) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error).into()),
        Ok(()) | Err(_) => std::fs::create_dir_all(skeleton).map_err(failed)?,
    }
    let body = ContainerCreateBody {
        image: Some(image.into()),
        labels: Some(labels),
        host_config: Some(HostConfig { network_mode: Some("none".into()), ..HostConfig::default() }),
        ..ContainerCreateBody::default()
    };
    engine.create(container, body).await?;
    let copied = copy(engine, container, image, skeleton).await;
    engine.remove(container).await?;
    copied?;
    Ok(outline(skeleton)?)
}

async fn copy(engine: &Engine, container: &str, image: &str, skeleton: &Path) -> Result<(), DockerError> {
    for (inside, outside) in INSIDE.into_iter().zip(OUTSIDE_NAMES) {
        let failed = |source| DockerError::Archive { image: image.into(), path: inside, source };
        let unpacking = unpack(engine, container, inside, skeleton);
        let unpacked = tokio::time::timeout(DISK_TOOL_TIMEOUT, unpacking).await.map_err(io::Error::from);
        unpacked.and_then(|unpacked| unpacked).map_err(failed)?;
        let name = Path::new(inside).file_name().unwrap_or_default();
        let unpacked = skeleton.join(name);
        if name != outside && unpacked.exists() {
            std::fs::rename(unpacked, skeleton.join(outside)).map_err(failed)?;
        }
    }
    Ok(())
}

/// Unpacks a directory of the container; one that it has not is none.
async fn unpack(engine: &Engine, container: &str, inside: &str, to: &Path) -> io::Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--preserve-permissions", "--numeric-owner", "--file=-", "--directory"]).arg(to);
    let mut tar = tar.stdin(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut input = tar.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut archive = std::pin::pin!(engine.archive(container, inside));
    while let Some(bytes) = archive.next().await {
        match bytes {
            Err(error) if status(&error) == Some(404) => return Ok(()),
            bytes => input.write_all(&bytes.map_err(io::Error::other)?).await?,
        }
    }
    drop(input);
    let ended = tar.wait().await?;
    if ended.success() { Ok(()) } else { Err(io::Error::other(format!("tar: {ended}"))) }
}
