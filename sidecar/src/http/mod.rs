//! The HTTP edge: routes, the token, what errors look like. Translates, decides nothing.

mod auth;
mod error;
mod events;
mod pty;
mod serve;
mod snapshot;
mod streams;
mod tcp;
mod upgraded;

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use sandbox_protocol::exec::{ExecBody, HealthReply, SidecarRefusal};
use sandbox_protocol::limits::EXEC_BODY_BYTES_MAX;
use sandbox_protocol::snapshot::ROUTE;
use tokio::time::timeout;

pub use self::auth::Token;
use self::error::ApiError;
pub use self::serve::{Doorway, SocketFile, doorway, open_port, open_socket};
pub use self::streams::Streams;
pub use self::upgraded::Upgraded;
use crate::exec::Engine;
use crate::limits::BODY_READ_MAX;
use crate::snapshot::Snapshots;

/// The routes of a sidecar whose commands `engine` runs, for callers that show `token`.
pub fn router(engine: Engine, snapshots: Snapshots, streams: Streams, token: Token) -> Router {
    let of_files = Router::new().route(ROUTE, get(snapshot::export).put(snapshot::restore)).with_state(snapshots);
    let guarded = Router::new()
        .route("/exec", post(exec))
        .merge(of_files)
        .merge(streams.routes())
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn_with_state(token, auth::demand_token));
    Router::new().route("/health", get(health)).method_not_allowed_fallback(no_method).merge(guarded).with_state(engine)
}

async fn health(State(engine): State<Engine>) -> Json<HealthReply> {
    Json(HealthReply {
        status: "ok".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        running: engine.running(),
    })
}

async fn exec(State(engine): State<Engine>, body: Body) -> Result<Response, ApiError> {
    let body = read(body).await?;
    let reply = engine.execute(body).await?;
    Ok(Json(Arc::unwrap_or_clone(reply)).into_response())
}

async fn read(body: Body) -> Result<ExecBody, ApiError> {
    let bytes = timeout(BODY_READ_MAX, to_bytes(body, EXEC_BODY_BYTES_MAX))
        .await
        .map_err(|_| ApiError::new(SidecarRefusal::BadRequest, "the body came too slowly"))?
        .map_err(unread)?;
    serde_json::from_slice(&bytes).map_err(|error| ApiError::new(SidecarRefusal::BadRequest, error.to_string()))
}

/// A body that is too long, or one whose sender broke off.
fn unread(error: axum::Error) -> ApiError {
    if error.into_inner().is::<http_body_util::LengthLimitError>() {
        return ApiError::new(SidecarRefusal::TooLarge, format!("at most {EXEC_BODY_BYTES_MAX} bytes"));
    }
    ApiError::new(SidecarRefusal::BadRequest, "the body broke off")
}

async fn no_route() -> ApiError {
    ApiError::new(SidecarRefusal::NotFound, "no such route")
}

async fn no_method() -> ApiError {
    ApiError::new(SidecarRefusal::MethodNotAllowed, "the route does not know this method")
}
