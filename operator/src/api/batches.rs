//! `/v1/services/{service}/batches/{id}`: what this operator knows of a batch of who asks.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use sandbox_protocol::batch::{BatchId, BatchReport, BatchStatus};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::session::Scope;
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiError;
use super::document::SessionErrors;
use super::extract::InPath;
use super::session::Session;
use crate::jobs::{CollectError, Collector, Wanted};
use crate::limits::API_CHAIN_TIMEOUT;

/// The route, as a value.
pub(super) fn routes() -> OpenApiRouter<Arc<Collector>> {
    OpenApiRouter::new().routes(routes!(show))
}

/// Shows a batch of the caller's: this operator's own parts with their items, also while they are carried out, and of the others'
/// what the chain tells. Parts are kept for a while after their end, as they say.
#[utoipa::path(
    get, path = "/v1/services/{service}/batches/{id}", operation_id = "batch", tag = "batches", security(("token" = [])),
    params(("service" = u64, Path, description = "Service id"), ("id" = String, Path, description = "Id of the batch")),
    responses(
        (status = 200, description = "The batch as far as this operator knows", body = BatchReport),
        (status = 404, description = "This operator has no part of such a batch of the caller's", body = ErrorBody),
        SessionErrors,
    )
)]
async fn show(
    State(collector): State<Arc<Collector>>,
    session: Session,
    InPath((service, batch)): InPath<(u64, BatchId)>,
) -> Result<Json<BatchReport>, ApiError> {
    let wanted = Wanted { owner: session.may(Scope::CallsRead)?, service, batch };
    let report = timeout(API_CHAIN_TIMEOUT, collector.report(wanted)).await;
    let report = report.map_err(|_| ApiError::TooSlow("node"))?.map_err(|error| match error {
        CollectError::Records(error) => ApiError::from(error),
        CollectError::Chain(error) => ApiError::Chain(error),
    })?;
    match report.status {
        BatchStatus::Running | BatchStatus::Done => Ok(Json(report)),
        BatchStatus::Unknown => Err(ApiError::NoBatch),
    }
}
