//! Sandboxes at the host's proxy, each by the rules that its customer wrote.

use std::sync::Arc;

use async_trait::async_trait;
use sandbox_fleet::ports::{Egress, PortError};
use sandbox_fleet::sandbox::{Instance, Sandbox};
use sandbox_outbound::egress::{self, Rules, Usage, VisitError, Visited};
use sandbox_protocol::{Failure, FailureCode, SandboxId};

use super::lend::Lent;
use super::{OutsideConfig, OutsideError};
use crate::places::Places;

/// The proxy. It knows sandboxes by their ids.
pub(crate) struct Proxy {
    egress: egress::Egress,
    places: Places,
}

impl Proxy {
    /// A proxy whose sockets are at these places.
    pub(crate) fn new(config: &OutsideConfig, places: Places) -> Result<Self, OutsideError> {
        Ok(Self { egress: config.egress()?, places })
    }

    /// What all sandboxes have used.
    pub(crate) fn usage(&self) -> Usage {
        self.egress.total()
    }

    /// The proxy by these rules, for a client in this process that is called `name`.
    pub(crate) async fn lend(self: &Arc<Self>, rules_text: &str, name: &str) -> Result<Lent, Failure> {
        let shut = |error: &(dyn std::error::Error + 'static)| {
            tracing::error!(error, "the proxy cannot be lent");
            Failure::new(FailureCode::Engine, "the way out cannot be opened")
        };
        let key = format!("lent-{name}");
        let socket = self.places.run_dir().join(format!("{:016x}.sock", rand::random::<u64>()));
        self.egress.open(key.clone(), socket.clone(), rules(rules_text)?).map_err(|error| shut(&error))?;
        let proxy = self.clone();
        let back = move || {
            let used = proxy.egress.close(&key);
            tracing::debug!(?used, key, "the proxy is not lent any more");
        };
        Lent::open(socket, back).await.map_err(|error| shut(&error))
    }

    /// Connects to a place as the sandbox itself would.
    pub(crate) async fn visit(&self, sandbox: SandboxId, host: &str, port: u16) -> Result<Visited, VisitError> {
        self.egress.visit(&sandbox.to_string(), host, port).await
    }
}

/// Whether a customer's rules can be read.
///
/// # Errors
/// `BadEnv`, which names the entry.
pub(crate) fn check_rules(text: &str) -> Result<(), Failure> {
    rules(text).map(drop)
}

fn rules(text: &str) -> Result<Rules, Failure> {
    let wrong = |error| Failure::new(FailureCode::BadEnv, format!("env_json: SANDBOX_EGRESS_ALLOW: {error}"));
    text.parse().map_err(wrong)
}

#[async_trait]
impl Egress for Proxy {
    async fn open(&self, sandbox: &Sandbox, instance: &Instance) -> Result<(), PortError> {
        let rules =
            rules(&sandbox.spec.egress).map_err(|failure| PortError { source: failure.clone().into(), failure })?;
        let socket = self.places.egress_socket(&instance.vessel);
        let opened = self.egress.open(sandbox.id.to_string(), socket, rules);
        opened.map_err(|error| PortError::new(FailureCode::Engine, "the sandbox's way out cannot be opened", error))
    }

    async fn close(&self, sandbox: &Sandbox) {
        if let Some(usage) = self.egress.close(&sandbox.id.to_string()) {
            tracing::info!(
                sandbox = %sandbox.id, requests = usage.requests, refusals = usage.refusals,
                bytes_up = usage.bytes_up, bytes_down = usage.bytes_down, "egress closed"
            );
        }
    }
}
