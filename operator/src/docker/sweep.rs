//! Removes what carries this node's tag and belongs to nobody: neither to a sandbox that lives nor to the pool.
//!
//! A request to the engine that we gave up may still be carried out, and a crash may come between any two steps. What
//! there is is listed first and who owns it asked afterwards: an owner is on record before anything of it is made.

use std::collections::HashSet;

use super::host::{Host, SKELETON_PREFIX};
use super::pool::Pool;
use super::{Census, DockerError, hardening};
use crate::error_chain;

/// Why a sweep did not take place.
#[derive(Debug, thiserror::Error)]
pub(super) enum SweepError {
    /// What there is is not known.
    #[error("cannot list what there is")]
    Look(#[from] DockerError),
    /// Whose it is is not known.
    #[error("cannot list the sandboxes that live")]
    Census(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// A container as it was listed.
struct Listed {
    name: String,
    vessel: String,
}

/// Removes what is nobody's. Without knowledge of both sides nothing is removed.
/// Records that came from a copy know too little for it.
pub(super) async fn sweep(host: &Host, pool: &Pool, census: &dyn Census) -> Result<(), SweepError> {
    if !census.is_whole().await.map_err(SweepError::Census)? {
        tracing::warn!("the records came from a copy: what they do not know is left alone; `operator adopt` lists it");
        return Ok(());
    }
    let mut vessels: HashSet<String> = host.ground.disks.vessels().map_err(DockerError::from)?.into_iter().collect();
    vessels.extend(host.ground.places.vessels());
    let volumes = host.engine.volumes(&host.label()).await?;
    let containers = listed(host).await?;

    let living = census.living().await.map_err(SweepError::Census)?;
    let living: HashSet<String> = living.iter().map(|sandbox| host.ground.places.name(sandbox.id)).collect();
    let owned = |vessel: &str| living.contains(vessel) || pool.knows(vessel);

    let mut in_use = HashSet::new();
    for container in containers {
        let Listed { name, vessel } = &container;
        let pooled = name == vessel && pool.knows(name);
        if living.contains(name) || living.contains(vessel) || pooled {
            in_use.insert(container.vessel);
        } else if container.name.starts_with(SKELETON_PREFIX) {
            remove_skeleton(host, &container.name).await;
        } else {
            tracing::warn!(container = container.name, "a container that belongs to no sandbox is removed");
            let cleared = host.clear(&container.name).await.map(drop);
            pool.forget(&container.vessel);
            tell(&container.name, cleared);
        }
    }
    for vessel in vessels.iter().filter(|vessel| !owned(vessel) && !in_use.contains(*vessel)) {
        tracing::info!(vessel, "a disk or socket directory that belongs to no sandbox is removed");
        tell(vessel, host.clear_vessel(vessel).await);
    }
    let kept = |volume: &String| living.iter().any(|name| volume.starts_with(&format!("{name}-")));
    for volume in volumes.iter().filter(|volume| !kept(volume)) {
        tell(volume, host.engine.remove_volume(volume).await);
    }
    Ok(())
}

async fn listed(host: &Host) -> Result<Vec<Listed>, DockerError> {
    let containers = host.engine.containers(&host.label()).await?;
    let listed = containers.into_iter().filter_map(|container| {
        let name = container.names?.into_iter().next()?.trim_start_matches('/').to_owned();
        let vessel = container.labels.and_then(|mut labels| labels.remove(hardening::VESSEL_LABEL));
        Some(Listed { vessel: vessel.unwrap_or_else(|| name.clone()), name })
    });
    Ok(listed.collect())
}

/// Unless it is in use right now.
async fn remove_skeleton(host: &Host, name: &str) {
    if let Ok(_nobody) = host.laid_out.try_lock() {
        tell(name, host.engine.remove(name).await);
    }
}

fn tell(what: &str, removed: Result<(), DockerError>) {
    if let Err(error) = removed {
        tracing::warn!(what, error = %error_chain(&error), "left for the next sweep");
    }
}
