//! Moves of negotiations in this process, for which no sandbox could be made. Their model is reached as the sandbox would have
//! reached it: through the proxy, by the rules of the customer's own sandbox.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sandbox_agent::negotiation::{Provided, negotiate_provided};
use sandbox_agent::provider::{HttpSettings, http_client};
use sandbox_fleet::sandbox::Sandbox;
use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::negotiation::{MoveReport, NegotiateBody};
use sandbox_protocol::{Failure, FailureCode};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::jobs::InProcess;
use crate::outside::Proxy;

/// Argues about moves in this process.
pub(crate) struct OwnProcess {
    proxy: Arc<Proxy>,
    /// What was said of each move, until its end.
    records: PathBuf,
    /// What the operator offers its sandboxes.
    own: BTreeMap<String, String>,
}

impl OwnProcess {
    /// With files below `data_dir`, and what the operator says in `settings`, as `NAME=value`.
    pub(crate) fn new(proxy: Arc<Proxy>, data_dir: PathBuf, settings: &[String]) -> Self {
        let own = settings.iter().filter_map(|setting| setting.split_once('='));
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { proxy, records: data_dir.join("moves"), own }
    }
}

#[async_trait]
impl InProcess for OwnProcess {
    async fn negotiate(
        &self,
        parent: &Sandbox,
        body: NegotiateBody,
        tell: &(dyn Fn(Told) + Send + Sync),
    ) -> Result<MoveReport, Failure> {
        let failed = |error: &(dyn std::error::Error + 'static)| {
            tracing::error!(error, "a move cannot be argued about here");
            Failure::new(FailureCode::Internal, "the operator's own process cannot argue about it")
        };
        let lent = self.proxy.lend(&parent.spec.egress, &body.id).await?;
        let settings = HttpSettings { proxy: Some(lent.url()), is_loopback_direct: false, ..HttpSettings::default() };
        let http = http_client(&settings).map_err(|error| failed(&error))?;
        tokio::fs::create_dir_all(&self.records).await.map_err(|error| failed(&error))?;
        let record = self.records.join(format!("{}.jsonl", body.id));
        // Dropped, it is as a process that died: what was said is there for the next.
        let provided = Provided {
            http,
            own: &self.own,
            record: record.clone(),
            cancel: CancellationToken::new(),
            deadline: Instant::now() + Duration::from_millis(body.timeout_ms),
        };
        let report = negotiate_provided(&body, provided, tell).await;
        if let Err(error) = tokio::fs::remove_file(&record).await {
            tracing::warn!(%error, "what was said about a move is left behind");
        }
        Ok(report)
    }
}
