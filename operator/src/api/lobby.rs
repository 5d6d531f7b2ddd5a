//! The API from the first moment: health at once, everything else once the node has found its chain and its engine.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;

use super::ApiError;

/// Where requests wait until there is something to serve. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Lobby(Arc<OnceLock<TowerToHyperService<Router>>>);

impl Lobby {
    /// What is served, as a value.
    pub(super) fn router(&self) -> Router {
        Router::new().route("/health", get(async || "ok")).fallback(enter).with_state(self.clone())
    }

    /// Serves `router` from now on; what came before it stays.
    pub(super) fn open(&self, router: Router) {
        if self.0.set(TowerToHyperService::new(router)).is_err() {
            tracing::error!("the API was opened twice");
        }
    }
}

async fn enter(State(lobby): State<Lobby>, request: Request) -> Response {
    let Some(router) = lobby.0.get() else { return ApiError::Starting.into_response() };
    match router.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
