//! Reads the state now and then for those metrics that are not counted where something happens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sandbox_fleet::admission::Capacity;
use sandbox_fleet::sandbox::{Phase, Sandbox};
use sandbox_sdk::Chain;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::docker::DockerContainers;
use crate::intake::Intake;
use crate::limits::GAUGES_PAUSE;
use crate::metrics::{Metrics, Reading};
use crate::outside::Proxy;
use crate::records::{CallRecord, Progress, Records, RecordsError};

/// The task's parts.
pub(crate) struct Gauges {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) intake: Intake,
    pub(crate) capacity: Capacity,
    pub(crate) head: watch::Receiver<u64>,
    pub(crate) metrics: Metrics,
    pub(crate) containers: Arc<DockerContainers>,
    pub(crate) proxy: Arc<Proxy>,
}

impl Gauges {
    /// Reads until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let reading = async {
            let mut head_time_s = 0;
            loop {
                if let Ok(time_s) = self.chain.time().await {
                    head_time_s = time_s;
                }
                match self.state() {
                    Ok(state) => self.metrics.read(&Reading { head_age_s: age_s(head_time_s), ..state }),
                    Err(error) => {
                        tracing::warn!(error = %crate::error_chain(&error), "the state for metrics is not read");
                    }
                }
                let egress = self.proxy.usage();
                self.metrics.host(self.containers.pool_counts().ready, egress.bytes_up + egress.bytes_down);
                tokio::time::sleep(GAUGES_PAUSE).await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = reading => {}
        }
    }

    fn state(&self) -> Result<Reading, RecordsError> {
        let calls = self.records.open_calls()?;
        let sandboxes = self.records.sandboxes()?;
        let cursor = self.records.cursor()?.unwrap_or_default();
        Ok(Reading {
            queued: calls.iter().filter(|call| matches!(call.progress, Progress::Seen)).count(),
            open: calls.len(),
            outbox: calls.iter().filter_map(CallRecord::answer).count(),
            head_age_s: 0.0,
            behind: (*self.head.borrow() + 1).saturating_sub(cursor),
            phases: phases(&sandboxes),
            resources: resources(&sandboxes, self.capacity),
            draining: self.intake.is_closed(),
        })
    }
}

fn phases(sandboxes: &[Sandbox]) -> BTreeMap<&'static str, usize> {
    let mut phases = BTreeMap::new();
    for sandbox in sandboxes.iter().filter(|sandbox| !sandbox.phase.is_final()) {
        *phases.entry(sandbox.phase.name()).or_default() += 1;
    }
    phases
}

/// What there is and what is taken. A resting sandbox takes its place and its disk, nothing else.
fn resources(sandboxes: &[Sandbox], capacity: Capacity) -> BTreeMap<&'static str, (u64, u64)> {
    let held = || sandboxes.iter().filter(|sandbox| !sandbox.phase.is_final());
    let awake = || held().filter(|sandbox| !matches!(sandbox.phase, Phase::Stopped(_)));
    let all = capacity.resources;
    BTreeMap::from([
        ("sandboxes", (capacity.sandboxes.into(), held().count() as u64)),
        ("cpu_cores", (all.cpu_cores, awake().map(|sandbox| sandbox.spec.resources.cpu_cores).sum())),
        ("memory_mb", (all.memory_mb, awake().map(|sandbox| sandbox.spec.resources.memory_mb).sum())),
        ("disk_gb", (all.disk_gb, held().map(|sandbox| sandbox.spec.resources.disk_gb).sum())),
    ])
}

fn age_s(block_time_s: u64) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs_f64() - block_time_s as f64).max(0.0)
}
