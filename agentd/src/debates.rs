//! Moves of negotiations: the engine of the `agent` crate, with a provider's model and this sandbox's files.

use std::collections::BTreeMap;
use std::io::Error;
use std::path::Path;

use async_trait::async_trait;
use sandbox_agent::memory::tokenizer_of;
use sandbox_agent::model::ModelError;
use sandbox_agent::negotiation::{Brief, Budget, FileCheckpoints, Room, negotiate};
use sandbox_agent::provider::{Layers, ProviderModel, SettingsError, resolve};
use sandbox_agent::tools::ports::Files as _;
use sandbox_protocol::agent::event::Told;
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

/// Why a move is not argued about.
#[derive(Debug, thiserror::Error)]
enum BeginError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Debates {
    /// With providers reached by `http`, as the sandbox's environment says where no order does, and conversations written to
    /// the workspace.
    pub fn new(http: reqwest::Client, providers: BTreeMap<String, String>, sidecar: Sidecar) -> Self {
        Self { http, providers, sidecar }
    }

    fn model(&self, body: &NegotiateBody) -> Result<ProviderModel, BeginError> {
        let layers = Layers { context: body.provider.as_ref(), order: &body.env, own: &self.providers };
        Ok(ProviderModel::new(resolve(layers, &body.model)?, self.http.clone())?)
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
        let model = match self.model(body) {
            Ok(model) => model,
            Err(error) => return MoveReport::unscored(&body.one.move_id, error.to_string()),
        };
        let settings = model.settings();
        let (tokenizer, price) = (tokenizer_of(&settings.model), settings.prices.of(&settings.model));
        let context_tokens = settings.context_tokens.map(|tokens| tokens as usize);
        let path = place.join(CALLS);
        let opened = tokio::task::spawn_blocking(move || FileCheckpoints::open(&path)).await;
        let checkpoints = match opened.map_err(Error::other).and_then(|opened| opened.map_err(Error::other)) {
            Ok(checkpoints) => checkpoints,
            Err(error) => {
                tracing::error!(%error, "what was said of a move cannot be kept");
                return MoveReport::unscored(&body.one.move_id, "the sandbox's storage fails");
            }
        };
        let room = Room {
            model: &model,
            checkpoints: &checkpoints,
            tell: &|told: Told| desk.tell(told),
            budget: Budget { context_tokens, count: &|text| tokenizer.count(text) },
            price: &|usage| Some(price?.cost_micro_usd(usage)),
            cancel: until.cancel.clone(),
            deadline: Some(until.deadline.into()),
        };
        let mut report = negotiate(&Brief::of(body), &room).await;
        self.save(&mut report).await;
        report
    }
}
