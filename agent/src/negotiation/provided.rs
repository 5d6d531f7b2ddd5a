//! A move with everything that it takes: a provider's model and a file for what is said.

use std::collections::BTreeMap;
use std::io::Error;
use std::path::PathBuf;

use sandbox_protocol::agent::event::Told;
use sandbox_protocol::agent::negotiation::{MoveReport, NegotiateBody};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::brief::{Brief, Budget, Room};
use super::debate::negotiate;
use super::file::FileCheckpoints;
use crate::memory::tokenizer_of;
use crate::model::ModelError;
use crate::provider::{Layers, ProviderModel, SettingsError, resolve};

/// Where a move's model is, and how long there is.
#[derive(Debug, Clone)]
pub struct Provided<'a> {
    /// By which providers are reached.
    pub http: reqwest::Client,
    /// Settings of providers where the order names none.
    pub own: &'a BTreeMap<String, String>,
    /// File of what was said; a move that was begun with it goes on.
    pub record: PathBuf,
    /// Cancelled when nobody wants the report any more.
    pub cancel: CancellationToken,
    /// When its time is over.
    pub deadline: Instant,
}

/// Why a move is not begun.
#[derive(Debug, thiserror::Error)]
enum BeginError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Has a move argued about and scored by a provider's model.
pub async fn negotiate_provided(
    body: &NegotiateBody,
    provided: Provided<'_>,
    tell: &(dyn Fn(Told) + Send + Sync),
) -> MoveReport {
    let model = match model(body, &provided) {
        Ok(model) => model,
        Err(error) => return MoveReport::unscored(&body.one.move_id, error.to_string()),
    };
    let Provided { record, cancel, deadline, .. } = provided;
    let opened = spawn_blocking(move || FileCheckpoints::open(&record)).await;
    let checkpoints = match opened.map_err(Error::other).and_then(|opened| opened.map_err(Error::other)) {
        Ok(checkpoints) => checkpoints,
        Err(error) => {
            tracing::error!(%error, "what is said about a move cannot be kept");
            return MoveReport::unscored(&body.one.move_id, "what is said cannot be kept");
        }
    };
    let settings = model.settings();
    let (tokenizer, price) = (tokenizer_of(&settings.model), settings.prices.of(&settings.model));
    let room = Room {
        model: &model,
        checkpoints: &checkpoints,
        tell,
        budget: Budget {
            context_tokens: settings.context_tokens.map(|tokens| tokens as usize),
            count: &|text| tokenizer.count(text),
        },
        price: &|usage| Some(price?.cost_micro_usd(usage)),
        cancel,
        deadline: Some(deadline),
    };
    negotiate(&Brief::of(body), &room).await
}

fn model(body: &NegotiateBody, provided: &Provided<'_>) -> Result<ProviderModel, BeginError> {
    let layers = Layers { context: body.provider.as_ref(), order: &body.env, own: provided.own };
    Ok(ProviderModel::new(resolve(layers, &body.model)?, provided.http.clone())?)
}
