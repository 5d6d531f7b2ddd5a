//! The door: requests that the sidecar hands on. Whom it lets in is the sidecar's to decide; here everybody may.

mod error;

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use futures::StreamExt as _;
use hyper_util::service::TowerToHyperService;
use sandbox_process::serve::{self, Queue};
use sandbox_protocol::agent::event::RunEvent;
use sandbox_protocol::agent::{
    ApprovalBody, NEGOTIATE, PROMPT, RUNS, RunKind, RunSummary, RunsBody, SESSIONS, SessionsBody, TASK,
};
use sandbox_protocol::limits::{EVENT_HEARTBEAT_S, RUN_BODY_BYTES_MAX};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::Duration;
use tokio_util::sync::CancellationToken;

use self::error::Refused;
use crate::limits::{CONNECTION_BOUNDS, CONNECTIONS_MAX};
use crate::runs::{End, Run, Runs, RunsError};

const EVENT_STREAM: &str = "text/event-stream";
const LAST_EVENT_ID: &str = "last-event-id";

/// The door.
pub type Doorway = serve::Doorway<TowerToHyperService<Router>, Queue>;

/// The door to these runs, until `stop`.
pub fn doorway(runs: Runs, stop: CancellationToken) -> Doorway {
    Doorway::new(TowerToHyperService::new(router(runs)), Queue::of(CONNECTIONS_MAX), CONNECTION_BOUNDS, stop)
}

fn router(runs: Runs) -> Router {
    Router::new()
        .route(PROMPT, post(prompt))
        .route(TASK, post(task))
        .route(NEGOTIATE, post(negotiate))
        .route(RUNS, get(all))
        .route(&format!("{RUNS}/{{id}}"), get(one))
        .route(&format!("{RUNS}/{{id}}/events"), get(events))
        .route(&format!("{RUNS}/{{id}}/cancel"), post(cancel))
        .route(&format!("{RUNS}/{{id}}/approvals/{{call}}"), post(decide))
        .route(SESSIONS, get(sessions))
        .route(&format!("{SESSIONS}/{{id}}"), delete(forget_session))
        .layer(DefaultBodyLimit::max(RUN_BODY_BYTES_MAX))
        .with_state(runs)
}

async fn prompt(State(runs): State<Runs>, headers: HeaderMap, body: Bytes) -> Result<Response, Refused> {
    answer(&runs, runs.task(RunKind::Prompt, read(&body)?)?, &headers).await
}

async fn task(State(runs): State<Runs>, headers: HeaderMap, body: Bytes) -> Result<Response, Refused> {
    answer(&runs, runs.task(RunKind::Task, read(&body)?)?, &headers).await
}

async fn negotiate(State(runs): State<Runs>, headers: HeaderMap, body: Bytes) -> Result<Response, Refused> {
    answer(&runs, runs.negotiation(read(&body)?)?, &headers).await
}

/// Its events, where they are asked for, or else its end.
async fn answer(runs: &Runs, run: Arc<Run>, headers: &HeaderMap) -> Result<Response, Refused> {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepted.contains(EVENT_STREAM) {
        return stream(runs, &run.record.id, last_event_id(headers)?);
    }
    Ok(match run.end().await {
        Some(End::Reply(reply)) => Json(reply).into_response(),
        Some(End::Report(report)) => Json(&**report).into_response(),
        None => return Err(RunsError::Busy.into()),
    })
}

async fn all(State(runs): State<Runs>) -> Json<RunsBody> {
    Json(RunsBody { runs: runs.all() })
}

async fn one(State(runs): State<Runs>, Path(id): Path<String>) -> Result<Json<RunSummary>, Refused> {
    Ok(Json(runs.run(&id)?.summary()))
}

async fn cancel(State(runs): State<Runs>, Path(id): Path<String>) -> Result<Json<RunSummary>, Refused> {
    let run = runs.run(&id)?;
    run.cancel.cancel();
    Ok(Json(run.summary()))
}

async fn decide(
    State(runs): State<Runs>,
    Path((id, call)): Path<(String, String)>,
    body: Bytes,
) -> Result<StatusCode, Refused> {
    let body: ApprovalBody = read(&body)?;
    runs.decide(&id, &call, body.decision)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn sessions(State(runs): State<Runs>) -> Result<Json<SessionsBody>, Refused> {
    Ok(Json(SessionsBody { sessions: runs.sessions()? }))
}

async fn forget_session(State(runs): State<Runs>, Path(id): Path<String>) -> Result<StatusCode, Refused> {
    runs.forget_session(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Query of a stream of events.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    /// Number of the last event that the reader has.
    after: Option<u64>,
}

async fn events(
    State(runs): State<Runs>,
    Path(id): Path<String>,
    Query(After { after }): Query<After>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    stream(&runs, &id, last_event_id(&headers)?.max(after.unwrap_or_default()))
}

fn stream(runs: &Runs, id: &str, after: u64) -> Result<Response, Refused> {
    // What cannot be read any more ends the stream; its reader comes back and is told why.
    let events = runs.follow(id, after)?.take_while(|read| std::future::ready(read.is_ok()));
    let events = events.filter_map(|read| std::future::ready(read.ok().map(|event| Ok::<_, Infallible>(sse(&event)))));
    let heartbeat = KeepAlive::new().interval(Duration::from_secs(EVENT_HEARTBEAT_S));
    Ok(Sse::new(events).keep_alive(heartbeat).into_response())
}

/// All keys are text and all numbers finite, so an event can be written.
fn sse(event: &RunEvent) -> Event {
    let data = serde_json::to_string(event).unwrap_or_default();
    Event::default().id(event.seq.to_string()).event(event.told.name()).data(data)
}

/// Number of the last event that a reader has; 0 where it says none.
fn last_event_id(headers: &HeaderMap) -> Result<u64, Refused> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(0) };
    let id = value.to_str().ok().and_then(|text| text.parse().ok());
    id.ok_or_else(|| Refused::bad("Last-Event-ID: give the id of an event"))
}

/// A body, strictly.
fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| Refused::bad(error.to_string()))
}
