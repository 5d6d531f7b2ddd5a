//! `GET /snapshot` and `PUT /snapshot`.

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{CONTENT_TYPE, TRAILER};
use axum::response::{IntoResponse as _, Response};
use sandbox_protocol::snapshot::{ExportQuery, MEDIA_TYPE, REPORT_TRAILER, RestoreQuery, RestoreReply};

use super::error::{ApiError, bad_query};
use crate::snapshot::Snapshots;

pub(super) async fn export(
    State(snapshots): State<Snapshots>,
    query: Result<Query<ExportQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query.map_err(bad_query)?;
    let archive = snapshots.export(query).await?;
    Ok(([(CONTENT_TYPE, MEDIA_TYPE), (TRAILER, REPORT_TRAILER)], Body::new(archive)).into_response())
}

pub(super) async fn restore(
    State(snapshots): State<Snapshots>,
    query: Result<Query<RestoreQuery>, QueryRejection>,
    body: Body,
) -> Result<Json<RestoreReply>, ApiError> {
    let Query(query) = query.map_err(bad_query)?;
    Ok(Json(snapshots.restore(query, body).await?))
}
