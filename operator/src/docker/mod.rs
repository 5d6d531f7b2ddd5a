//! Sandboxes as containers of a Docker engine: the only folder that knows it.
//!
//! Everything is found by name, so every operation may be repeated. What was started is inspected, and what the
//! inspection shows, not what was asked for, decides whether the sandbox is as hardened as promised. A create takes a
//! container of the [`pool`] where one fits; [`sweep`] removes what belongs to nobody.

mod disk;
mod engine;
mod error;
mod hardening;
mod host;
mod pool;
mod skeleton;
mod survey;
mod sweep;

use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::sync::Arc;

use async_trait::async_trait;
use sandbox_fleet::admission::Capacity;
use sandbox_fleet::ports::{Containers, PortError, Sidecars};
use sandbox_fleet::request::Resources;
use sandbox_fleet::sandbox::{Instance, Sandbox};
use sandbox_protocol::limits::{CPU_CORES_DEFAULT, DISK_GB_DEFAULT, MEMORY_MB_DEFAULT};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

pub(crate) use disk::{DiskError, DiskQuota, Disks};
pub(crate) use error::DockerError;
pub(crate) use pool::PoolCounts;
pub(crate) use survey::{EngineFacts, FoundContainer, Survey};

use crate::config::EngineConfig;
use crate::error_chain;
use crate::failpoint::Failpoint;
use crate::limits::SWEEP_PAUSE;
use crate::places::Places;
use engine::{Engine, Name};
use hardening::Ground;
use host::{Host, Wanted};
use pool::{Pool, Refill};

/// A Docker engine on this host.
pub(crate) struct DockerContainers {
    host: Arc<Host>,
    pool: Arc<Pool>,
}

/// Who may have something here.
#[async_trait]
pub(crate) trait Census: Send + Sync + 'static {
    /// The sandboxes that live: of which something may exist, now or later.
    ///
    /// # Errors
    /// It is not known; that says nothing of any sandbox.
    async fn living(&self) -> Result<Vec<Sandbox>, Box<dyn Error + Send + Sync>>;

    /// Whether what is in no record was in none ever: not so where the records came from a copy.
    ///
    /// # Errors
    /// It is not known.
    async fn is_whole(&self) -> Result<bool, Box<dyn Error + Send + Sync>>;
}

/// What keeps the host as it should be while the node runs.
pub(crate) struct Upkeep {
    /// Who may have something here.
    pub(crate) census: Arc<dyn Census>,
    /// The sidecars of the pool's containers.
    pub(crate) sidecars: Arc<dyn Sidecars>,
    /// What the pool stays within.
    pub(crate) capacity: Capacity,
}

impl DockerContainers {
    /// Connects to the engine that `config` names.
    pub(crate) async fn connect(
        config: &EngineConfig,
        places: Places,
        disks: Disks,
        failpoint: Failpoint,
    ) -> Result<Self, DockerError> {
        let engine = Engine::connect(&config.host, failpoint).await?;
        name_missing_runtimes(&engine, config).await?;
        let ground = Ground { places, disks, settings: config.settings.clone().into() };
        let host = Host { engine, ground, runtime: config.runtime.clone(), laid_out: Mutex::default() };
        let host = Arc::new(host);
        let resources =
            Resources { cpu_cores: CPU_CORES_DEFAULT, memory_mb: MEMORY_MB_DEFAULT, disk_gb: DISK_GB_DEFAULT };
        let image = config.menu.images.default.clone();
        let common = Wanted { image, resources, runtime: None, labels: BTreeMap::new() };
        // Before anything is served: the first create need not wait for it.
        if let Err(error) = host.template(&common.image, common.resources.disk_gb).await {
            tracing::warn!(error = %error_chain(&error), "there is no template for disks yet");
        }
        let pool = Arc::new(Pool::new(host.clone(), config.pool_size, common));
        Ok(Self { host, pool })
    }

    /// Sweeps and refills until `stop`; then the pool is emptied.
    pub(crate) async fn keep(self: Arc<Self>, upkeep: Upkeep, stop: CancellationToken) {
        let Upkeep { census, sidecars, capacity } = upkeep;
        let refill = Refill { pool: self.pool.clone(), sidecars, census: census.clone(), capacity };
        let sweeping = async {
            loop {
                if let Err(error) = sweep::sweep(&self.host, &self.pool, census.as_ref()).await {
                    tracing::warn!(error = %error_chain(&error), "nothing is swept");
                }
                tokio::time::sleep(SWEEP_PAUSE).await;
            }
        };
        let filled = refill.run(stop);
        tokio::select! {
            () = filled => {}
            () = sweeping => {}
        }
        let PoolCounts { ready, claimed, cold, failed } = self.pool_counts();
        tracing::info!(ready, claimed, cold, failed, "the pool is empty");
    }

    /// What the pool did so far.
    pub(crate) fn pool_counts(&self) -> PoolCounts {
        self.pool.counts()
    }

    async fn make(&self, name: &str, wanted: &Wanted) -> Result<Instance, DockerError> {
        let _serving = self.pool.serving();
        while let Some(vessel) = self.pool.take(wanted) {
            match self.host.engine.rename(&vessel, name).await {
                Ok(Name::Had) => {}
                // Made by a former attempt.
                Ok(Name::Taken) => {
                    self.pool.give_back(vessel);
                    return self.host.settle(name, wanted).await;
                }
                Ok(Name::Absent) => {
                    self.pool.forget(&vessel);
                    continue;
                }
                // It may bear either name now; the sweep finds it by both.
                Err(error) => {
                    self.pool.forget(&vessel);
                    return Err(error);
                }
            }
            match self.host.settle(name, wanted).await {
                Ok(instance) => {
                    self.pool.count_claimed();
                    return Ok(instance);
                }
                Err(error) => {
                    tracing::warn!(vessel, error = %error_chain(&error), "a container of the pool is of no use");
                    self.host.clear(name).await?;
                    self.pool.forget(&vessel);
                }
            }
        }
        self.pool.count_cold();
        if self.host.engine.inspect(name).await?.is_none() {
            self.host.build(name, wanted).await?;
        }
        self.host.settle(name, wanted).await
    }
}

/// A runtime that the engine does not know is no reason to end, but one to speak of: what asks for it will fail.
async fn name_missing_runtimes(engine: &Engine, config: &EngineConfig) -> Result<(), DockerError> {
    let known = engine.info().await?.runtimes.unwrap_or_default();
    let asked: HashSet<&String> = config.menu.runtimes.iter().chain(&config.runtime).collect();
    for runtime in asked.into_iter().filter(|runtime| !known.contains_key(*runtime)) {
        tracing::error!(runtime, "the container engine has no such runtime: sandboxes that ask for it will fail");
    }
    Ok(())
}

#[async_trait]
impl Containers for DockerContainers {
    async fn provision(&self, sandbox: &Sandbox) -> Result<Instance, PortError> {
        Ok(self.make(&self.name(sandbox), &Wanted::from(sandbox)).await?)
    }

    async fn adopt(&self, sandbox: &Sandbox) -> Result<Option<Instance>, PortError> {
        Ok(self.host.look(&self.name(sandbox), &Wanted::from(sandbox)).await?)
    }

    async fn halt(&self, sandbox: &Sandbox) -> Result<bool, PortError> {
        Ok(self.host.rest(&self.name(sandbox)).await?)
    }

    async fn remove(&self, sandbox: &Sandbox) -> Result<(), PortError> {
        let vessel = self.host.clear(&self.name(sandbox)).await?;
        self.pool.forget(&vessel);
        Ok(())
    }
}

impl DockerContainers {
    fn name(&self, sandbox: &Sandbox) -> String {
        self.host.ground.places.name(sandbox.id)
    }
}
