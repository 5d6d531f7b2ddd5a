//! `/v1/sandboxes`: the sandboxes of who asks, and what is done to them without a job.
//!
//! Every command names the caller as the owner, so a stranger's sandbox is one that does not exist.

use std::sync::Arc;
use std::time::Duration;

use alloy::primitives::Address;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use sandbox_fleet::ports::Snapshots;
use sandbox_fleet::request::{SnapshotUri, SnapshotWish};
use sandbox_fleet::sandbox::Sandbox;
use sandbox_fleet::{Fleet, Unfinished};
use sandbox_protocol::SandboxId;
use sandbox_protocol::holdings::{
    ResumeBody, SandboxBody, SandboxesBody, SandboxesQuery, SnapshotBody, SnapshotRequest,
};
use sandbox_protocol::http::ErrorBody;
use sandbox_protocol::session::Scope;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::document::SessionErrors;
use super::extract::{InBody, InPath, InQuery, PerhapsInBody};
use super::session::Session;
use super::{ApiError, page};
use crate::limits::{
    API_ACT_TIMEOUT, API_KEEPER_TIMEOUT, API_SMALL_BODY_BYTES_MAX, API_SNAPSHOTS_MAX, SNAPSHOT_TIMEOUT,
};
use crate::records;

/// What the routes work with.
pub(super) struct Holdings {
    fleet: Fleet,
    snapshots: Arc<dyn Snapshots>,
    /// Snapshots that are taken at a time.
    at_once: Semaphore,
}

impl Holdings {
    /// The sandboxes of `fleet`.
    pub(super) const fn new(fleet: Fleet, snapshots: Arc<dyn Snapshots>) -> Self {
        Self { fleet, snapshots, at_once: Semaphore::const_new(API_SNAPSHOTS_MAX) }
    }
}

/// The routes, as a value.
pub(super) fn routes() -> OpenApiRouter<Arc<Holdings>> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, delete))
        .routes(routes!(stop))
        .routes(routes!(resume))
        .routes(routes!(snapshot))
}

/// Lists the caller's sandboxes by id, also those that ended lately.
#[utoipa::path(
    get, path = "/v1/sandboxes", operation_id = "sandboxes", tag = "sandboxes", security(("token" = [])),
    params(SandboxesQuery), responses((status = 200, description = "A page of them", body = SandboxesBody), SessionErrors)
)]
async fn list(
    State(holdings): State<Arc<Holdings>>,
    session: Session,
    InQuery(query): InQuery<SandboxesQuery>,
) -> Result<Json<SandboxesBody>, ApiError> {
    let owner = session.may(Scope::SandboxesRead)?;
    let limit = page(query.limit)?;
    let all = within(API_KEEPER_TIMEOUT, holdings.fleet.list(owner)).await?;
    let behind = all.iter().filter(|sandbox| query.cursor.is_none_or(|cursor| sandbox.id > cursor));
    let mut wanted = behind.filter(|sandbox| is_wanted(sandbox, &query));
    let sandboxes: Vec<SandboxBody> = wanted.by_ref().take(limit).map(body).collect();
    let next = wanted.next().and_then(|_| sandboxes.last().map(|last| last.id));
    Ok(Json(SandboxesBody { sandboxes, next }))
}

/// Shows a sandbox.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}", operation_id = "sandbox", tag = "sandboxes", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the sandbox")),
    responses(
        (status = 200, description = "The sandbox", body = SandboxBody),
        (status = 404, description = "The caller has no such sandbox here", body = ErrorBody),
        SessionErrors,
    )
)]
async fn show(
    State(holdings): State<Arc<Holdings>>,
    session: Session,
    InPath(id): InPath<SandboxId>,
) -> Result<Json<SandboxBody>, ApiError> {
    let owner = session.may(Scope::SandboxesRead)?;
    let found = within(API_KEEPER_TIMEOUT, holdings.fleet.find(id, owner)).await?;
    Ok(Json(body(&found)))
}

/// Deletes a sandbox and everything in it.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}", operation_id = "sandbox_delete", tag = "sandboxes", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the sandbox")),
    responses(
        (status = 200, description = "Nothing is left of it", body = SandboxBody),
        (status = 202, description = "It is being deleted", body = SandboxBody),
        (status = 404, description = "The caller has no such sandbox here", body = ErrorBody),
        SessionErrors,
    )
)]
async fn delete(
    State(holdings): State<Arc<Holdings>>,
    session: Session,
    InPath(id): InPath<SandboxId>,
) -> Result<(StatusCode, Json<SandboxBody>), ApiError> {
    let owner = session.may(Scope::SandboxesWrite)?;
    holdings.done_or_begun((id, owner), holdings.fleet.delete(id, owner)).await
}

/// Stops a sandbox; what is in it stays.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/stop", operation_id = "sandbox_stop", tag = "sandboxes", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the sandbox")),
    responses(
        (status = 200, description = "It rests", body = SandboxBody),
        (status = 202, description = "It is being stopped", body = SandboxBody),
        (status = 404, description = "The caller has no such sandbox here", body = ErrorBody),
        (status = 422, description = "It cannot be stopped", body = ErrorBody),
        SessionErrors,
    )
)]
async fn stop(
    State(holdings): State<Arc<Holdings>>,
    session: Session,
    InPath(id): InPath<SandboxId>,
) -> Result<(StatusCode, Json<SandboxBody>), ApiError> {
    let owner = session.may(Scope::SandboxesWrite)?;
    holdings.done_or_begun((id, owner), holdings.fleet.stop(id, owner)).await
}

/// Starts a stopped sandbox again, with what a snapshot holds where one is named.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/resume", operation_id = "sandbox_resume", tag = "sandboxes", security(("token" = [])),
    params(("id" = String, Path, description = "Id of the sandbox")), request_body = Option<ResumeBody>,
    responses(
        (status = 200, description = "It runs", body = SandboxBody),
        (status = 202, description = "It is being started", body = SandboxBody),
        (status = 404, description = "The caller has no such sandbox here", body = ErrorBody),
        (status = 422, description = "It cannot be resumed, or not with this snapshot", body = ErrorBody),
        SessionErrors,
    )
)]
async fn resume(
    State(holdings): State<Arc<Holdings>>,
    session: Session,
    InPath(id): InPath<SandboxId>,
    PerhapsInBody(asked): PerhapsInBody<ResumeBody, API_SMALL_BODY_BYTES_MAX>,
) -> Result<(StatusCode, Json<SandboxBody>), ApiError> {
    let owner = session.may(Scope::SandboxesWrite)?;
    let from =
        SnapshotUri::parse("snapshot_uri", &asked.snapshot_uri.unwrap_or_default()).map_err(ApiError::NotDone)?;
    holdings.done_or_begun((id, owner), holdings.fleet.resume(id, owner, from)).await
}

/// Writes what is in a running sandbox to a place, and returns once it is there. Who hangs up gets no snapshot.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/snapshot", operation_id = "sandbox_snapshot", tag = "sandboxes",
    security(("token" = [])),
    params(("id" = String, Path, description = "Id of the sandbox")), request_body = SnapshotRequest,
    responses(
        (status = 200, description = "The snapshot", body = SnapshotBody),
        (status = 404, description = "The caller has no such sandbox here", body = ErrorBody),
        (status = 422, description = "It does not run, or the place is refused", body = ErrorBody),
        SessionErrors,
    )
)]
async fn snapshot(
    State(holdings): State<Arc<Holdings>>,
    session: Session,
    InPath(id): InPath<SandboxId>,
    InBody(asked): InBody<SnapshotRequest, API_SMALL_BODY_BYTES_MAX>,
) -> Result<Json<SnapshotBody>, ApiError> {
    let owner = session.may(Scope::SandboxesWrite)?;
    let wish = SnapshotWish::parse(&asked.destination, asked.include_workspace, asked.include_state);
    let wish = wish.map_err(ApiError::NotDone)?;
    let visit = within(API_KEEPER_TIMEOUT, holdings.fleet.visit(id, owner)).await?;
    let order = wish.of(&visit.sandbox.spec).map_err(ApiError::NotDone)?;
    let _turn = holdings.at_once.try_acquire().map_err(|_| ApiError::Busy("too many snapshots are taken"))?;
    let taken = timeout(SNAPSHOT_TIMEOUT, holdings.snapshots.take(&visit.sandbox, &visit.instance, &order)).await;
    let taken = taken.map_err(|_| ApiError::TooSlow("store for snapshots"))?.map_err(|error| {
        tracing::warn!(sandbox = %id, error = %crate::error_chain(&error), "no snapshot");
        ApiError::NotDone(error.failure)
    })?;
    Ok(Json(SnapshotBody { snapshot_uri: taken.uri.as_str().to_owned(), size_bytes: taken.size_bytes }))
}

impl Holdings {
    /// The sandbox once it is as asked, or as it is when that takes longer than a request may: it goes on by itself.
    async fn done_or_begun(
        &self,
        (id, owner): (SandboxId, Address),
        act: impl Future<Output = Result<Sandbox, Unfinished>>,
    ) -> Result<(StatusCode, Json<SandboxBody>), ApiError> {
        if let Ok(done) = timeout(API_ACT_TIMEOUT, act).await {
            return Ok((StatusCode::OK, Json(body(&done?))));
        }
        let found = within(API_KEEPER_TIMEOUT, self.fleet.find(id, owner)).await?;
        Ok((StatusCode::ACCEPTED, Json(body(&found))))
    }
}

/// The keeper's answer, unless it takes too long.
pub(super) async fn within<T>(
    bound: Duration,
    answer: impl Future<Output = Result<T, Unfinished>>,
) -> Result<T, ApiError> {
    Ok(timeout(bound, answer).await.map_err(|_| ApiError::TooSlow("sandbox keeper"))??)
}

fn is_wanted(sandbox: &Sandbox, query: &SandboxesQuery) -> bool {
    let in_phase = query.phase.as_deref().is_none_or(|phase| phase == sandbox.phase.name());
    let labelled = query.label.as_deref().is_none_or(|label| match label.split_once('=') {
        Some((name, value)) => sandbox.spec.labels.get(name).is_some_and(|found| found == value),
        None => sandbox.spec.labels.contains_key(label),
    });
    in_phase && labelled
}

fn body(sandbox: &Sandbox) -> SandboxBody {
    let (spec, instance) = (&sandbox.spec, sandbox.phase.instance());
    SandboxBody {
        id: sandbox.id,
        owner: sandbox.owner,
        phase: sandbox.phase.name().to_owned(),
        reason: records::reason(sandbox),
        name: Some(spec.name.clone()).filter(|name| !name.is_empty()),
        labels: spec.labels.clone(),
        image: spec.image.clone(),
        cpu_cores: spec.resources.cpu_cores,
        memory_mb: spec.resources.memory_mb,
        disk_gb: spec.resources.disk_gb,
        expires_at_block: sandbox.expires_at_block,
        runtime: instance.map(|instance| instance.runtime.clone()),
        image_digest: instance.map(|instance| instance.image_digest.clone()),
    }
}
