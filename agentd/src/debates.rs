//! Moves of negotiations: the engine of the `agent` crate, with this sandbox's files.

use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use sandbox_agent::negotiation::{Provided, negotiate_provided};
use sandbox_agent::tools::ports::Files as _;
use sandbox_protocol::agent::negotiation::{LOGS_DIRECTORY, MoveReport, NegotiateBody};

use crate::backend::Desk;
use crate::hands::Sidecar;
use crate::negotiator::{Negotiator, Until};
use crate::runs::CALLS;

/// Has moves argued about by a provider's model.
#[derive(Debug, Clone)]
pub struct Debates {
    http: reqwest::Client,
    providers: BTreeMap<String, String>,
    sidecar: Sidecar,
}

impl Debates {
    /// With providers reached by `http`, as the sandbox's environment says where no order does, and conversations written to
    /// the workspace.
    pub fn new(http: reqwest::Client, providers: BTreeMap<String, String>, sidecar: Sidecar) -> Self {
        Self { http, providers, sidecar }
    }

    /// Writes the conversations where the customer and the operator find them.
    async fn save(&self, report: &mut MoveReport) {
        for (name, bytes) in report.logs.files() {
            let path = format!("{LOGS_DIRECTORY}/{name}");
            if let Err(error) = self.sidecar.write(&path, &bytes, None).await {
                report.warnings.push(format!("{path} was not written: {error}"));
            }
        }
    }
}

#[async_trait]
impl Negotiator for Debates {
    async fn negotiate(&self, body: &NegotiateBody, place: &Path, until: &Until, desk: &dyn Desk) -> MoveReport {
        let provided = Provided {
            http: self.http.clone(),
            own: &self.providers,
            record: place.join(CALLS),
            cancel: until.cancel.clone(),
            deadline: until.deadline.into(),
        };
        let mut report = negotiate_provided(body, provided, &|told| desk.tell(told)).await;
        self.save(&mut report).await;
        report
    }
}
