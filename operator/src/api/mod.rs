//! The operator's HTTP API: answers to those who asked, health to everybody.

mod calls;
mod error;
mod proof;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use sandbox_fleet::Fleet;
use sandbox_sdk::Chain;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::limits::DRAIN_TIMEOUT;
use crate::metrics::Metrics;
use crate::records::Records;

pub(crate) use error::ApiError;

/// What the routes work with.
pub(crate) struct Api {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) fleet: Fleet,
    pub(crate) head: watch::Receiver<u64>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

/// The routes, as a value.
pub(crate) fn router(api: Arc<Api>) -> Router {
    Router::new()
        .route("/health", get(async || "ok"))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/services/{service}/calls/{call}", get(calls::show))
        .fallback(async || ApiError::NoRoute)
        .with_state(api)
}

/// Serves until `stop`, then for a moment longer.
pub(crate) async fn serve(listener: TcpListener, api: Arc<Api>) -> std::io::Result<()> {
    let stop = api.stop.clone();
    let stopped = stop.clone();
    let serving = axum::serve(listener, router(api)).with_graceful_shutdown(async move { stopped.cancelled().await });
    let drained = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN_TIMEOUT).await;
    };
    tokio::select! {
        served = serving => served,
        () = drained => Ok(()),
    }
}

/// Ready is who can take work: the keeper answers, and the process is not ending.
async fn ready(State(api): State<Arc<Api>>) -> Result<&'static str, ApiError> {
    if api.stop.is_cancelled() || api.fleet.count().await.is_err() {
        return Err(ApiError::NotReady);
    }
    Ok("ready")
}

async fn metrics(State(api): State<Arc<Api>>) -> Result<String, ApiError> {
    let sandboxes = api.fleet.count().await.map_err(|_| ApiError::NotReady)?;
    let head = *api.head.borrow();
    api.metrics.render(head, sandboxes).map_err(|error| ApiError::Internal(Box::new(error)))
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
