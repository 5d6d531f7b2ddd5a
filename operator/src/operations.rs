//! What runs beside the work: gauges, heartbeats, the socket for commands. None of it can hold the work up.

use std::sync::Arc;

use alloy::primitives::Address;
use sandbox_fleet::Fleet;
use sandbox_fleet::ports::Agents;
use sandbox_sdk::Chain;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admin::{self, Admin};
use crate::chain::heartbeat::Heartbeat;
use crate::chain::notices::Notices;
use crate::chain::sender::Sender;
use crate::config::Config;
use crate::docker::DockerContainers;
use crate::gauges::Gauges;
use crate::intake::Intake;
use crate::jobs::{Conductor, InProcess};
use crate::metrics::Metrics;
use crate::outside::Proxy;
use crate::records::Records;
use crate::sidecars::SocketSidecars;
use crate::ssh::{Audit, Front, FrontError, LettingIn, SandboxDoors, SshOffer};
use crate::stories::Stories;

/// The parts of a running node that its operation takes. Clones share them.
#[derive(Clone)]
pub(crate) struct Operations {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) fleet: Fleet,
    pub(crate) sender: Sender,
    pub(crate) intake: Intake,
    pub(crate) metrics: Metrics,
    pub(crate) containers: Arc<DockerContainers>,
    pub(crate) proxy: Arc<Proxy>,
    /// What is told of calls.
    pub(crate) stories: Stories,
    /// What the reader of the chain saw of workflows.
    pub(crate) notices: Notices,
    pub(crate) me: Address,
    /// Who argues about moves for which there is no sandbox.
    pub(crate) in_process: Arc<dyn InProcess>,
}

impl Operations {
    /// Who conducts negotiations.
    pub(crate) fn conductor(&self, agents: Arc<dyn Agents>) -> Conductor {
        Conductor {
            fleet: self.fleet.clone(),
            agents,
            records: self.records.clone(),
            stories: self.stories.clone(),
            in_process: self.in_process.clone(),
        }
    }

    /// Lets customers in over SSH, where there is a gateway, until `stop`; what they are told of it.
    pub(crate) fn let_in(
        &self,
        front: Option<Front>,
        sidecars: Arc<SocketSidecars>,
        stop: &CancellationToken,
    ) -> Result<(Option<SshOffer>, Option<LettingIn>), FrontError> {
        let Some(front) = front else { return Ok((None, None)) };
        let audit = Audit::open(front.data_dir())?;
        let (fleet, proxy, stop) = (self.fleet.clone(), self.proxy.clone(), stop.clone());
        let doors = SandboxDoors { fleet, sidecars, proxy, audit, stop: stop.clone() };
        Ok((Some(front.offer()), Some(front.let_in(doors, stop))))
    }

    /// Starts what tells of the node, and lets its operator tell it something. It ends with `stop` and is waited for by nobody.
    pub(crate) fn start(self, config: &Config, head: watch::Receiver<u64>, stop: &CancellationToken) {
        let Self { chain, records, fleet, sender, intake, metrics, containers, proxy, me, .. } = self;
        let capacity = config.offer.capacity;
        let gauges = Gauges {
            chain: chain.clone(),
            records: records.clone(),
            intake: intake.clone(),
            capacity,
            head,
            metrics: metrics.clone(),
            containers,
            proxy,
        };
        tokio::spawn(gauges.run(stop.clone()));
        let heartbeat = Heartbeat {
            chain: chain.clone(),
            sender: sender.clone(),
            fleet: fleet.clone(),
            capacity,
            metrics,
            me,
            service: config.chain.service,
        };
        tokio::spawn(heartbeat.run(config.heartbeat.clone(), stop.clone()));
        let data_dir = config.data_dir.clone();
        tokio::spawn(admin::serve(Admin { chain, records, fleet, sender, intake, me, data_dir }, stop.clone()));
    }
}
