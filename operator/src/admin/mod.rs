//! What the operator's own commands ask of the running node, over a Unix socket in the state directory.
//!
//! The records are one process's at a time, so commands reach them through that process. The socket is for the account that
//! runs the node; who can open it could read the records as well.

mod client;
mod lists;

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alloy::primitives::{Address, B256};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use sandbox_fleet::Fleet;
use sandbox_sdk::{Chain, calls};
use serde::{Deserialize, Serialize};
use tokio::net::UnixListener;
use tokio_util::io::ReaderStream;
use tokio_util::sync::CancellationToken;

pub(crate) use client::{AdminError, Node};
pub(crate) use lists::{CallLine, SandboxLine, calls_of, sandboxes_of};

use crate::chain::sender::Sender;
use crate::intake::Intake;
use crate::records::{Records, RecordsError};

/// What the socket is called in the state directory.
const SOCKET_FILE: &str = "admin.sock";
/// How many records a copy has.
const RECORDS_HEADER: &str = "x-records";

/// What the routes work with.
pub(crate) struct Admin {
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) fleet: Fleet,
    pub(crate) sender: Sender,
    pub(crate) intake: Intake,
    pub(crate) me: Address,
    pub(crate) data_dir: PathBuf,
}

/// How far a node is with what it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeState {
    /// It takes nothing new.
    pub(crate) draining: bool,
    /// Calls that are not at their end.
    pub(crate) open_calls: usize,
    /// Sandboxes that are not at their end.
    pub(crate) sandboxes: usize,
    /// Whose containers are this node's.
    pub(crate) state_id: u64,
}

/// Whether the node is to take nothing new.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct DrainBody {
    pub(crate) drain: bool,
}

/// What became of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Drained {
    pub(crate) state: NodeState,
    /// The transaction that told customers, where one was needed.
    pub(crate) transaction: Option<B256>,
}

/// Which calls.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CallsQuery {
    #[serde(default)]
    pub(crate) open: bool,
}

/// Why a command was not carried out. Its reader is the operator: causes and all.
#[derive(Debug, thiserror::Error)]
enum RouteError {
    #[error("cannot use the records")]
    Records(#[from] RecordsError),
    #[error("cannot make a file for the copy")]
    File(#[source] io::Error),
    #[error("the node drains, but customers were not told; try again")]
    Pause(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl IntoResponse for RouteError {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, crate::error_chain(&self)).into_response()
    }
}

/// Serves until `stop`.
pub(crate) async fn serve(admin: Admin, stop: CancellationToken) {
    let path = admin.data_dir.join(SOCKET_FILE);
    let listener = match bind(&admin.data_dir) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(%error, socket = %path.display(), "no commands are taken: the socket cannot be made");
            return;
        }
    };
    let served = axum::serve(listener, router(Arc::new(admin))).with_graceful_shutdown(stop.cancelled_owned()).await;
    if let Err(error) = served.and_then(|()| std::fs::remove_file(&path)) {
        tracing::warn!(%error, "the command socket ended");
    }
}

/// Bound out of others' sight, then moved into its place, where it is the owner's from the first instant.
fn bind(data_dir: &Path) -> io::Result<UnixListener> {
    let hidden = data_dir.join(".admin");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&hidden)?;
    let bound = hidden.join("s");
    if bound.exists() {
        std::fs::remove_file(&bound)?;
    }
    let listener = UnixListener::bind(&bound)?;
    std::fs::set_permissions(&bound, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&bound, data_dir.join(SOCKET_FILE))?;
    Ok(listener)
}

fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/state", get(state))
        .route("/sandboxes", get(sandboxes))
        .route("/calls", get(calls))
        .route("/drain", post(drain))
        .route("/adopt", post(adopt))
        .route("/backup", get(backup))
        .with_state(admin)
}

impl Admin {
    fn state(&self) -> Result<NodeState, RecordsError> {
        NodeState::of(&self.records, self.intake.is_closed())
    }

    /// Tells customers whether this operator takes anything new, unless they know.
    async fn pause(&self, paused: bool) -> Result<Option<B256>, RouteError> {
        let published = self.chain.operator(self.me).await.map_err(|error| RouteError::Pause(error.into()))?;
        if published.paused == paused {
            return Ok(None);
        }
        let sent = self.sender.send(calls::set_paused(self.chain.deployment(), paused)).await;
        let sent = sent.map_err(|stopped| RouteError::Pause(stopped.into()))?;
        Ok(Some(sent.map_err(|error| RouteError::Pause(error.into()))?.transaction))
    }
}

impl NodeState {
    /// By the records.
    pub(crate) fn of(records: &Records, draining: bool) -> Result<Self, RecordsError> {
        let sandboxes = records.sandboxes()?;
        Ok(Self {
            draining,
            open_calls: records.open_calls()?.len(),
            sandboxes: sandboxes.iter().filter(|sandbox| !sandbox.phase.is_final()).count(),
            state_id: records.state_id()?,
        })
    }
}

async fn state(State(admin): State<Arc<Admin>>) -> Result<Json<NodeState>, RouteError> {
    Ok(Json(admin.state()?))
}

async fn sandboxes(State(admin): State<Arc<Admin>>) -> Result<Json<Vec<SandboxLine>>, RouteError> {
    Ok(Json(sandboxes_of(&admin.records)?))
}

async fn calls(
    State(admin): State<Arc<Admin>>,
    Query(query): Query<CallsQuery>,
) -> Result<Json<Vec<CallLine>>, RouteError> {
    Ok(Json(calls_of(&admin.records, query.open)?))
}

/// Nothing new is taken from here on, whether or not customers can be told at once.
async fn drain(State(admin): State<Arc<Admin>>, Json(body): Json<DrainBody>) -> Result<Json<Drained>, RouteError> {
    admin.intake.set_closed(body.drain);
    tracing::info!(drain = body.drain, "told whether to take anything new");
    let transaction = admin.pause(body.drain).await?;
    Ok(Json(Drained { state: admin.state()?, transaction }))
}

/// Has every sandbox that should be there inspected; what merely stopped is started again.
async fn adopt(State(admin): State<Arc<Admin>>) -> Result<Json<Vec<SandboxLine>>, RouteError> {
    for sandbox in admin.records.sandboxes()? {
        if !sandbox.phase.is_final() {
            admin.fleet.check(sandbox.id).await;
        }
    }
    Ok(Json(sandboxes_of(&admin.records)?))
}

async fn backup(State(admin): State<Arc<Admin>>) -> Result<Response, RouteError> {
    let (file, records) = copied(&admin.records, &admin.data_dir).await?;
    let body = Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(file)));
    Ok(([(RECORDS_HEADER, records.to_string())], body).into_response())
}

/// A copy of the records in a file without a name, to be read from its begin, and the number of records.
async fn copied(records: &Records, dir: &Path) -> Result<(std::fs::File, u64), RouteError> {
    let path = dir.join(format!(".copy-{:016x}", rand::random::<u64>()));
    let made = std::fs::File::options().create_new(true).read(true).write(true).open(&path);
    let file = made.map_err(RouteError::File)?;
    std::fs::remove_file(&path).map_err(RouteError::File)?;
    let writing = file.try_clone().map_err(RouteError::File)?;
    let count = records.copy_to(writing).await?;
    Ok((file, count))
}
