//! `/exec`: commands, whole, as a stream, or alone; and those that run or ran.

use std::convert::Infallible;

use axum::Json;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Query, State};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as SentEvent, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures::Stream;
use sandbox_protocol::exec::{
    ByteText, DetachedReply, ExecBody, ExecSummary, ExecsBody, GapEvent, KillQuery, OutputEvent, SidecarRefusal,
};
use sandbox_protocol::limits::EXEC_BODY_BYTES_MAX;
use tokio::time::timeout;

use super::error::ApiError;
use super::sse::{heartbeat, last_event_id, with_data};
use crate::exec::{Engine, Event, Execution, Manner, Reader, Told};
use crate::limits::BODY_READ_MAX;

pub(super) fn routes() -> Router<Engine> {
    Router::new().route("/exec", post(begin).get(list)).route("/exec/{id}", get(show).delete(kill))
}

async fn begin(State(engine): State<Engine>, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let body = read(body).await?;
    let manner = match (body.detach, wants_events(&headers)) {
        (true, _) => Manner::Detached,
        (false, true) => Manner::Streamed,
        (false, false) => Manner::Whole,
    };
    if manner == Manner::Whole {
        return Ok(Json(engine.execute(body).await?).into_response());
    }
    let execution = engine.begin_request(body, manner)?.execution;
    if manner == Manner::Streamed {
        return Ok(events(execution.reader(0)));
    }
    let reply = DetachedReply { id: execution.id().to_owned() };
    Ok((StatusCode::ACCEPTED, Json(reply)).into_response())
}

async fn list(State(engine): State<Engine>) -> Json<ExecsBody> {
    Json(ExecsBody { executions: engine.list().iter().map(|execution| summary(execution)).collect() })
}

/// What became of one: now, or as it comes.
async fn show(State(engine): State<Engine>, Path(id): Path<String>, headers: HeaderMap) -> Result<Response, ApiError> {
    let execution = engine.find(&id)?;
    if !wants_events(&headers) {
        return Ok(Json(summary(&execution)).into_response());
    }
    let after = last_event_id(&headers)?.unwrap_or_default();
    Ok(events(execution.reader(after)))
}

/// Ends one, or sends a signal to it.
async fn kill(
    State(engine): State<Engine>,
    Path(id): Path<String>,
    Query(query): Query<KillQuery>,
) -> Result<Json<ExecSummary>, ApiError> {
    let execution = engine.find(&id)?;
    match query.signal {
        None => execution.cancel(),
        Some(signal) => {
            execution.signal(signal).map_err(|error| ApiError::new(SidecarRefusal::Conflict, error.to_string()))?
        }
    }
    Ok(Json(summary(&execution)))
}

fn wants_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    accepted.flat_map(|accept| accept.split(',')).any(|kind| kind.trim().starts_with("text/event-stream"))
}

fn summary(execution: &Execution) -> ExecSummary {
    let standing = execution.standing();
    let age = standing.over_at.map_or_else(|| execution.accepted().elapsed(), |over| over - execution.accepted());
    ExecSummary {
        id: execution.id().to_owned(),
        command: execution.headline().to_owned(),
        status: standing.status,
        ended: standing.ended,
        error: standing.error.map(|error| ApiError::from(error).into_body()),
        age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        last_seq: execution.last_seq(),
    }
}

fn events(reader: Reader) -> Response {
    Sse::new(stream(reader)).keep_alive(heartbeat()).into_response()
}

fn stream(reader: Reader) -> impl Stream<Item = Result<SentEvent, Infallible>> {
    futures::stream::unfold(reader, async |mut reader| {
        let told = reader.next().await?;
        Some((Ok(event(told)), reader))
    })
}

fn event(told: Told) -> SentEvent {
    match told {
        Told::Gap { from_seq, to_seq, bytes } => {
            with_data("gap", &GapEvent { from_seq, to_seq, bytes }).id(to_seq.to_string())
        }
        Told::Event { seq, event } => match event {
            Event::Status(status) => with_data("status", &status),
            Event::Output(stream, bytes) => with_data(stream.name(), &OutputEvent { base64: ByteText(bytes.into()) }),
            Event::Result(ended) => with_data("result", &ended),
            Event::Failed(error) => with_data("error", &ApiError::from(error).into_body()),
        }
        .id(seq.to_string()),
    }
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
