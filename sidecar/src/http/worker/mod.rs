//! The worker for files: a process that has become the agent and answers what the sidecar passes on.
//!
//! It takes connections from its stdin, holds no secret, and ends when the sidecar closes that. Here requests become
//! calls of [`crate::files`]; nothing is decided.

mod content;
mod range;
mod watch;

use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use hyper_util::service::TowerToHyperService;
use nix::sys::stat::{Mode, umask};
use sandbox_process::serve::{Doorway, Gate};
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::files::{
    CONTENT, FILES, FileEntry, FilesQuery, LIST, ListQuery, ListReply, MKDIR, MOVE, RemoveQuery, RemoveReply, STAT,
    StatQuery, WATCH,
};
use sandbox_protocol::limits::FILES_RUNNING_MAX;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::error::ApiError;
use super::{no_method, no_route};
use crate::files::{self, FilesError, Handed, Roots, Served};
use crate::limits::{CONNECTION_BOUNDS, FILES_BODY_BYTES_MAX};

/// Lives as the worker until the sidecar closes stdin.
///
/// # Errors
/// Stdin is no socket, or the process has no threads left.
pub fn run(served: &Served) -> io::Result<()> {
    // Modes of new files are given whole.
    umask(Mode::empty());
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(FILES_RUNNING_MAX).build()?;
    let ended = runtime.block_on(serve(served));
    // Nobody waits for what is under way any more.
    runtime.shutdown_background();
    ended
}

async fn serve(served: &Served) -> io::Result<()> {
    let closed = CancellationToken::new();
    let channel = io::stdin().as_fd().try_clone_to_owned()?;
    let handed = Handed::new(channel, closed.clone())?;
    let router = router(Roots::open(&served.workspace, &served.home));
    let doorway = Doorway::new(TowerToHyperService::new(router), Open, CONNECTION_BOUNDS, closed);
    doorway.serve(handed);
    doorway.closed().await;
    Ok(())
}

/// The sidecar admits; here everybody is.
#[derive(Debug, Clone)]
struct Open;

impl Gate<()> for Open {
    type Pass = ();

    async fn admit(&self, (): &()) -> Option<()> {
        Some(())
    }
}

/// The roots, or why there are none: every request is told.
type Shared = Arc<Result<Roots, FilesError>>;

/// The routes of the worker.
pub fn router(roots: Result<Roots, FilesError>) -> Router {
    Router::new()
        .route(CONTENT, get(content::read).put(content::write))
        .route(LIST, get(list))
        .route(STAT, get(stat))
        .route(MOVE, post(rename))
        .route(MKDIR, post(mkdir))
        .route(FILES, delete(remove))
        .route(WATCH, get(watch::watch))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(Arc::new(roots))
}

async fn list(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Result<Json<ListReply>, ApiError> {
    let query = parsed::<ListQuery>(query)?;
    on_roots(shared, move |roots| files::list(&roots.place(&query.path)?, query.limit, query.cursor.as_ref()))
        .await
        .map(Json)
}

async fn stat(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Result<Json<FileEntry>, ApiError> {
    let query = parsed::<StatQuery>(query)?;
    on_roots(shared, move |roots| files::stat(&roots.place(&query.path)?)).await.map(Json)
}

async fn remove(State(shared): State<Shared>, RawQuery(query): RawQuery) -> Result<Json<RemoveReply>, ApiError> {
    let query = parsed::<RemoveQuery>(query)?;
    on_roots(shared, move |roots| files::remove(&roots.place(&query.path)?, query.recursive)).await.map(Json)
}

async fn rename(State(shared): State<Shared>, body: Body) -> Result<StatusCode, ApiError> {
    let body = read(body).await?;
    on_roots(shared, move |roots| files::rename(roots, &body)).await.map(|()| StatusCode::NO_CONTENT)
}

async fn mkdir(State(shared): State<Shared>, body: Body) -> Result<StatusCode, ApiError> {
    let body = read(body).await?;
    on_roots(shared, move |roots| files::mkdir(roots, &body)).await.map(|()| StatusCode::NO_CONTENT)
}

fn parsed<Q: FilesQuery>(query: Option<String>) -> Result<Q, ApiError> {
    Ok(Q::parse(query.as_deref().unwrap_or_default())?)
}

async fn read<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    let bad = |message: String| ApiError::new(SidecarRefusal::BadRequest, message);
    let bytes = to_bytes(body, FILES_BODY_BYTES_MAX).await.map_err(|error| {
        let too_large = error.into_inner().is::<http_body_util::LengthLimitError>();
        let code = if too_large { SidecarRefusal::TooLarge } else { SidecarRefusal::BadRequest };
        ApiError::new(code, format!("the body broke off, or is longer than {FILES_BODY_BYTES_MAX} bytes"))
    })?;
    serde_json::from_slice(&bytes).map_err(|error| bad(error.to_string()))
}

/// Does what waits for disks where nothing else waits for it.
async fn on_roots<T: Send + 'static>(
    shared: Shared,
    work: impl FnOnce(&Roots) -> Result<T, FilesError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = spawn_blocking(move || work((*shared).as_ref().map_err(|error| *error)?)).await;
    Ok(done.map_err(|_| defect())??)
}

fn defect() -> ApiError {
    ApiError::new(SidecarRefusal::Internal, "the worker for files has a defect")
}
