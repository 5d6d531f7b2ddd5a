//! The operator's HTTP API: answers to those who asked, quotes and health to everybody.

mod calls;
mod crowd;
mod error;
mod proof;
mod quotes;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use alloy::primitives::Address;
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use hyper_util::service::TowerToHyperService;
use sandbox_fleet::Fleet;
use sandbox_process::serve::{Bounds, Doorway};
use sandbox_sdk::Chain;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::limits::{
    API_CONNECTION_AGE_MAX, API_HEADER_BYTES_MAX, API_HEADER_READ_MAX, API_HEADERS_MAX, API_LAST_REQUEST_MAX,
    DRAIN_TIMEOUT, METRICS_COUNT_TIMEOUT,
};
use crate::metrics::Metrics;
use crate::records::Records;

use calls::Calls;
use crowd::Crowd;
pub(crate) use error::ApiError;
use proof::Asked;
pub(crate) use quotes::QuoteParts;
pub(crate) use quotes::Quoting;

/// What one connection may take.
const BOUNDS: Bounds = Bounds {
    header_bytes_max: API_HEADER_BYTES_MAX,
    headers_max: API_HEADERS_MAX,
    header_read_max: API_HEADER_READ_MAX,
    age_max: API_CONNECTION_AGE_MAX,
    last_request_max: API_LAST_REQUEST_MAX,
};

/// What the routes work with.
pub(crate) struct Api {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) fleet: Fleet,
    pub(crate) head: watch::Receiver<u64>,
    pub(crate) metrics: Metrics,
    /// This operator.
    pub(crate) me: Address,
    pub(crate) quoting: Arc<Quoting>,
    pub(crate) stop: CancellationToken,
}

/// The process ends although requests are open.
#[derive(Debug, thiserror::Error)]
#[error("requests were open when the time for them was over")]
pub(crate) struct Undrained;

/// The routes, as a value.
pub(crate) fn router(api: Arc<Api>) -> Router {
    let (deployment, operator) = (api.chain.deployment(), api.me);
    let asked = Asked { operator, chain_id: deployment.chain_id, core: deployment.core };
    let calls = Arc::new(Calls::new(api.records.clone(), asked, api.stop.clone()));
    let quoting = api.quoting.clone().router();
    Router::new()
        .route("/health", get(async || "ok"))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .with_state(api)
        .merge(calls.router())
        .merge(quoting)
        .fallback(async || ApiError::NoRoute)
}

/// What quotes are made with, put together.
pub(crate) fn quoting(parts: QuoteParts) -> Arc<Quoting> {
    Arc::new(Quoting::new(parts))
}

/// Serves until `stop`, then for a moment longer.
pub(crate) async fn serve(listener: TcpListener, api: Arc<Api>) -> Result<(), Undrained> {
    let stop = api.stop.clone();
    let doorway = Doorway::new(TowerToHyperService::new(router(api)), Crowd::default(), BOUNDS, stop.clone());
    doorway.serve(listener);
    stop.cancelled().await;
    timeout(DRAIN_TIMEOUT, doorway.closed()).await.map_err(|_| Undrained)
}

/// Ready is who can take work: the keeper answers, and the process is not ending.
async fn ready(State(api): State<Arc<Api>>) -> Result<&'static str, ApiError> {
    if api.stop.is_cancelled() || api.fleet.count().await.is_err() {
        return Err(ApiError::NotReady);
    }
    Ok("ready")
}

async fn metrics(State(api): State<Arc<Api>>) -> Result<String, ApiError> {
    let sandboxes = count(&api.fleet).await;
    let head = *api.head.borrow();
    api.metrics.render(head, sandboxes).map_err(|error| ApiError::Internal(Box::new(error)))
}

/// Sandboxes, unless the keeper is slow to say: that is when somebody wants to see the other numbers.
async fn count(fleet: &Fleet) -> Option<usize> {
    timeout(METRICS_COUNT_TIMEOUT, fleet.count()).await.ok()?.ok()
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use sandbox_fleet::Keeper;
    use sandbox_fleet::admission::Capacity;
    use sandbox_fleet::fakes::FakeWorld;
    use sandbox_fleet::request::Resources;

    use super::*;

    #[tokio::test]
    async fn metrics_do_not_wait_for_a_keeper_that_is_busy() {
        let resources = Resources { cpu_cores: 1, memory_mb: 1, disk_gb: 1 };
        let capacity = Capacity { sandboxes: 1, sandboxes_each_max: 1, resources, cpu_cores_each_max: 1 };
        let world = Arc::new(FakeWorld::default());
        let (keeper, fleet) = Keeper::new(capacity, world.ports());
        assert_eq!(count(&fleet).await, None, "it was never started");
        let stop = CancellationToken::new();
        tokio::spawn(keeper.run(Vec::new(), stop.clone()));
        assert_eq!(count(&fleet).await, Some(0));
    }

    #[test]
    fn a_number_of_sandboxes_that_is_not_known_is_the_last_that_was() {
        let metrics = Metrics::new().unwrap();
        metrics.render(1, Some(3)).unwrap();
        let text = metrics.render(2, None).unwrap();
        assert!(text.contains("sandbox_sandboxes 3\n") && text.contains("sandbox_chain_head_block 2\n"), "{text}");
    }
}
