//! Tells Tangle's status registry, now and then, that this operator is there for each of its services.
//!
//! The registry is the one that the core names, or the one that was set. A heartbeat that fails is said in the log and in
//! the metrics, and disturbs nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use alloy::primitives::{Address, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::Filter;
use alloy::sol_types::SolEvent;
use sandbox_fleet::Fleet;
use sandbox_fleet::admission::Capacity;
use sandbox_sdk::Chain;
use sandbox_sdk::calls;
use sandbox_sdk::chain::{ReadError, is_active};
use sandbox_sdk::contracts::IExits::IExitsInstance;
use sandbox_sdk::contracts::IStatusRegistry::Metric;
use sandbox_sdk::contracts::ITangleCore::ServiceActivated;
use tokio_util::sync::CancellationToken;

use super::sender::Sender;
use crate::config::HeartbeatConfig;
use crate::limits::{HEARTBEAT_SERVICES_MAX, LOG_RANGE_BLOCKS_MAX, RETRY_PAUSE_MAX};
use crate::metrics::Metrics;

/// The task's parts.
pub(crate) struct Heartbeat {
    pub(crate) chain: Chain,
    pub(crate) sender: Sender,
    pub(crate) fleet: Fleet,
    pub(crate) capacity: Capacity,
    pub(crate) metrics: Metrics,
    pub(crate) me: Address,
    /// Only this service, where one is named.
    pub(crate) service: Option<u64>,
}

/// The services that activations tell of, as far as they were read.
#[derive(Default)]
struct Services {
    next_block: Option<u64>,
    mine: BTreeSet<u64>,
}

impl Heartbeat {
    /// Sends until `stop`; not at all where it is off or the deployment has no registry.
    pub(crate) async fn run(self, config: HeartbeatConfig, stop: CancellationToken) {
        let Some(interval) = config.interval else { return };
        let beating = async {
            let registry = match config.registry {
                Some(registry) => registry,
                None => self.registry().await,
            };
            if registry.is_zero() {
                tracing::info!("the core names no status registry: no heartbeats");
                return;
            }
            self.beat_every(interval, registry).await;
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = beating => {}
        }
    }

    /// The registry that the core names. A core without such a name has none.
    async fn registry(&self) -> Address {
        let core = IExitsInstance::new(self.chain.deployment().core, self.chain.provider());
        loop {
            match core.operatorStatusRegistry().call().await.map_err(ReadError::on("operatorStatusRegistry")) {
                Ok(registry) => return registry,
                Err(ReadError::Refused(_)) => return Address::ZERO,
                Err(error) => tracing::debug!(error = %crate::error_chain(&error), "the registry is asked for again"),
            }
            tokio::time::sleep(RETRY_PAUSE_MAX).await;
        }
    }

    async fn beat_every(&self, interval: Duration, registry: Address) {
        let mut services = Services::default();
        let mut ticks = tokio::time::interval(interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.learn(&mut services).await {
                tracing::warn!(error = %crate::error_chain(&error), "services for heartbeats not read; trying again");
            }
            for service in services.mine.clone() {
                if self.service.is_some_and(|only| only != service) {
                    continue;
                }
                match self.serves(service).await {
                    Ok(true) => self.beat(registry, service).await,
                    Ok(false) => drop(services.mine.remove(&service)),
                    Err(error) => {
                        tracing::warn!(service, error = %crate::error_chain(&error), "no heartbeat: service not read");
                    }
                }
            }
        }
    }

    /// Reads the activations that were not read yet.
    async fn learn(&self, services: &mut Services) -> Result<(), ReadError> {
        let head = self.chain.head().await?;
        let mut next = match services.next_block {
            Some(next) => next,
            None => self.chain.blueprint().deployedBlock().call().await.map_err(ReadError::on("deployedBlock"))?,
        };
        while next <= head {
            let last = head.min(next + LOG_RANGE_BLOCKS_MAX - 1);
            let deployment = self.chain.deployment();
            let filter = Filter::new()
                .address(deployment.core)
                .event_signature(ServiceActivated::SIGNATURE_HASH)
                .topic3(U256::from(deployment.blueprint_id))
                .from_block(next)
                .to_block(last);
            let logs = self.chain.provider().get_logs(&filter).await.map_err(ReadError::node("eth_getLogs"))?;
            let activated = logs.iter().filter_map(|log| log.log_decode::<ServiceActivated>().ok());
            services.mine.extend(activated.map(|log| log.inner.serviceId));
            while services.mine.len() > HEARTBEAT_SERVICES_MAX {
                services.mine.pop_first();
            }
            next = last + 1;
            services.next_block = Some(next);
        }
        Ok(())
    }

    async fn serves(&self, service: u64) -> Result<bool, ReadError> {
        let core = self.chain.core();
        let ours = core.isServiceOperator(service, self.me).call().await.map_err(ReadError::on("isServiceOperator"))?;
        Ok(ours && self.chain.service(service).await?.is_some_and(|found| is_active(&found)))
    }

    async fn beat(&self, registry: Address, service: u64) {
        let beat = calls::heartbeat(self.chain.deployment(), registry, service, &self.reading().await);
        let sent = match self.sender.send(beat).await {
            Ok(Ok(mined)) => {
                tracing::debug!(service, transaction = %mined.transaction, "heartbeat");
                true
            }
            Ok(Err(error)) => {
                tracing::warn!(service, error = %crate::error_chain(&error), "no heartbeat");
                false
            }
            Err(_) => return,
        };
        self.metrics.heartbeat(sent);
    }

    /// What the registry is told besides: how full the operator is.
    async fn reading(&self) -> Vec<Metric> {
        let Ok(taken) = self.fleet.count().await else { return Vec::new() };
        let metric = |name: &str, value: u64| Metric { name: name.to_owned(), value: U256::from(value) };
        vec![metric("sandboxes", taken as u64), metric("capacity", u64::from(self.capacity.sandboxes))]
    }
}
