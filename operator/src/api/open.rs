//! What anybody may know: health, readiness, counters, and the API's own description.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use sandbox_fleet::Fleet;
use sandbox_protocol::http::ErrorBody;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::document::OpenErrors;
use super::{ApiError, document};
use crate::limits::API_KEEPER_TIMEOUT;
use crate::metrics::Metrics;

/// What the routes work with.
pub(super) struct Open {
    pub(super) fleet: Fleet,
    pub(super) head: watch::Receiver<u64>,
    pub(super) metrics: Metrics,
    pub(super) stop: CancellationToken,
}

/// The routes, as a value.
pub(super) fn routes() -> OpenApiRouter<Arc<Open>> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(ready))
        .routes(routes!(metrics))
        .routes(routes!(description))
}

/// Whether the process lives.
#[utoipa::path(
    get, path = "/health", operation_id = "health", tag = "operator",
    responses((status = 200, description = "It does", body = String, content_type = "text/plain"))
)]
async fn health() -> &'static str {
    "ok"
}

/// Whether the operator can take work: its keeper answers, and the process is not ending.
#[utoipa::path(
    get, path = "/ready", operation_id = "ready", tag = "operator",
    responses(
        (status = 200, description = "It can", body = String, content_type = "text/plain"),
        (status = 503, description = "It is starting or ending", body = ErrorBody),
    )
)]
async fn ready(State(open): State<Arc<Open>>) -> Result<&'static str, ApiError> {
    let counted = timeout(API_KEEPER_TIMEOUT, open.fleet.count()).await;
    if open.stop.is_cancelled() || !matches!(counted, Ok(Ok(_))) {
        return Err(ApiError::NotReady);
    }
    Ok("ready")
}

/// Counters, for Prometheus.
#[utoipa::path(
    get, path = "/metrics", operation_id = "metrics", tag = "operator",
    responses((status = 200, description = "Counters", body = String, content_type = "text/plain"), OpenErrors)
)]
async fn metrics(State(open): State<Arc<Open>>) -> Result<String, ApiError> {
    let sandboxes = count(&open.fleet).await;
    let head = *open.head.borrow();
    open.metrics.render(head, sandboxes).map_err(|error| ApiError::Internal(Box::new(error)))
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", operation_id = "openapi", tag = "operator",
    responses((status = 200, description = "What is offered here", content_type = "application/json"), OpenErrors)
)]
async fn description() -> Result<impl IntoResponse, ApiError> {
    let text = document::text().map_err(|error| ApiError::Internal(Box::new(error)))?;
    Ok(([(CONTENT_TYPE, "application/json")], text))
}

/// Sandboxes, unless the keeper is slow to say: that is when somebody wants to see the other numbers.
async fn count(fleet: &Fleet) -> Option<usize> {
    timeout(API_KEEPER_TIMEOUT, fleet.count()).await.ok()?.ok()
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
