//! `/files`: passed on to the worker that is the agent, and its answers passed back. What is asked is the worker's to
//! understand; here is only who may ask, how many, and for how long.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::Method;
use axum::http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, IF_RANGE, RANGE,
    TRANSFER_ENCODING,
};
use axum::http::request::Parts;
use axum::response::Response;
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use sandbox_process::link::{Driver, link};
use sandbox_protocol::files::FilesRefusal;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::ApiError;
use crate::files::{Connection, Files, Held};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// What of a request the worker is told, besides method, path and query.
const PASSED: [HeaderName; 7] = [CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH, IF_RANGE, LAST_EVENT_ID, RANGE];

pub(super) async fn forward(State(files): State<Files>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    // The worker may be about to end without anybody knowing yet; one who only reads need not learn of it.
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    if reads && let Some(answer) = ask(&files, &parts, Body::empty()).await? {
        return Ok(answer);
    }
    ask(&files, &parts, body).await?.ok_or_else(|| FilesRefusal::WorkerLost.into())
}

/// The worker's answer; `None` where it was ended before there was one.
async fn ask(files: &Files, parts: &Parts, body: Body) -> Result<Option<Response>, ApiError> {
    let Connection { stream, place } = files.connect().await?;
    let Ok((mut sender, driver)) = link(stream).await else { return Ok(None) };
    let sent = CancellationToken::new();
    let request = passed(parts, Sent { body, _sent: sent.clone().drop_guard() });
    let overdue = async {
        sent.cancelled().await;
        sleep(place.answer_max()).await;
    };
    let answer = tokio::select! {
        answer = sender.send_request(request) => answer,
        () = overdue => {
            tracing::warn!("the worker for files does not answer and is ended");
            place.end_worker();
            return Err(FilesRefusal::WorkerLost.into());
        }
    };
    let (mut parts, body) = match answer {
        Ok(answer) => answer.into_parts(),
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "a request about files was lost");
            // A body that broke off says nothing about the worker.
            if !error.is_user() {
                place.end_worker();
            }
            return Ok(None);
        }
    };
    for own in [CONNECTION, TRANSFER_ENCODING] {
        parts.headers.remove(own);
    }
    let due = Box::pin(sleep(place.answer_max()));
    Ok(Some(Response::from_parts(parts, Body::new(Relayed { body, due, place, _driver: driver }))))
}

fn passed(parts: &Parts, body: Sent) -> Request<Sent> {
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.uri_mut() = parts.uri.clone();
    let headers = PASSED.into_iter().filter_map(|name| parts.headers.get(&name).map(|value| (name, value.clone())));
    request.headers_mut().extend(headers.collect::<Vec<(HeaderName, HeaderValue)>>());
    request
}

/// A request's body, which tells when the worker has it, or will get no more of it.
struct Sent {
    body: Body,
    _sent: DropGuard,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An answer's body. It ends well only where the worker's did.
struct Relayed {
    body: Incoming,
    /// When the worker must have gone on.
    due: Pin<Box<Sleep>>,
    place: Held,
    _driver: Driver,
}

/// The worker did not go on with its answer.
#[derive(Debug, thiserror::Error)]
#[error("the worker for files was lost")]
struct Stalled;

impl HttpBody for Relayed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let due = Instant::now() + self.place.answer_max();
            self.due.as_mut().reset(due);
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        if self.due.as_mut().poll(context).is_ready() {
            self.place.end_worker();
            return Poll::Ready(Some(Err(axum::Error::new(Stalled))));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
