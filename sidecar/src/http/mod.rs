//! The HTTP edge: routes, the token, what errors look like. Translates, decides nothing.

mod agents;
mod auth;
mod channel;
mod error;
mod events;
mod exec;
mod files;
mod fsp;
mod pty;
mod serve;
mod snapshot;
mod sse;
mod streams;
mod tcp;
mod upgraded;
pub mod worker;

use axum::extract::State;
use axum::routing::{any, get};
use axum::{Json, Router, middleware};
use sandbox_protocol::exec::{HealthReply, SidecarRefusal};
use sandbox_protocol::files::FILES;
use sandbox_protocol::snapshot::ROUTE;

pub use self::auth::{DEMANDS, Demand, Token};
use self::error::ApiError;
pub use self::serve::{Doorway, SocketFile, doorway, open_port, open_socket};
pub use self::streams::Streams;
pub use self::upgraded::Upgraded;
use crate::agents::Agents;
use crate::exec::Engine;
use crate::files::Files;
use crate::fsp::Sessions;
use crate::snapshot::Snapshots;

/// What the routes work with.
#[derive(Debug, Clone)]
pub struct Served {
    /// Runs programs.
    pub engine: Engine,
    /// Speaks the execution protocol.
    pub sessions: Sessions,
    /// Has files served.
    pub files: Files,
    /// Archives and restores.
    pub snapshots: Snapshots,
    /// Terminals, tunnels, channels, events.
    pub streams: Streams,
    /// Does language-model work, where there is storage for it.
    pub agents: Option<Agents>,
}

/// The routes of a sidecar, for callers that show `token`.
pub fn router(served: Served, token: Token) -> Router {
    let Served { engine, sessions, files, snapshots, streams, agents } = served;
    let of_files = Router::new().route(FILES, any(files::forward)).route("/files/{*rest}", any(files::forward));
    let of_snapshots = Router::new().route(ROUTE, get(snapshot::export).put(snapshot::restore)).with_state(snapshots);
    let guarded = Router::new()
        .merge(exec::routes())
        .merge(fsp::routes(sessions, streams.upgraded.clone()))
        .merge(of_files.with_state(files))
        .merge(of_snapshots)
        .merge(streams.routes())
        .merge(agents::routes(agents))
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

async fn no_route() -> ApiError {
    ApiError::new(SidecarRefusal::NotFound, "no such route")
}

async fn no_method() -> ApiError {
    ApiError::new(SidecarRefusal::MethodNotAllowed, "the route does not know this method")
}
