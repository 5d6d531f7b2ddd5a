//! `GET /events`: what happens in the sandbox, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::Event;
use futures::Stream;
use futures::stream::unfold;
use sandbox_protocol::events::{DROPPED, Dropped, EventsQuery, GAP};
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::limits::EVENT_READERS_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::error::{ApiError, bad_query};
use super::sse::{heartbeat, last_event_id, with_data};
use crate::events::{Events, Reader, Told};

/// What the route shares.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    events: Events,
    room: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(events: Events) -> Self {
        Self { events, room: Arc::new(Semaphore::new(EVENT_READERS_MAX)) }
    }
}

/// One reader, its place among all, and whether there is more for it.
struct Stand {
    reader: Reader,
    more: bool,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn follow(
    State(shared): State<Shared>,
    query: Result<Query<EventsQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let Query(query) = query.map_err(bad_query)?;
    let after = last_event_id(&headers)?.or(query.after);
    let place = Arc::clone(&shared.room)
        .try_acquire_owned()
        .map_err(|_| ApiError::new(SidecarRefusal::Busy, format!("at most {EVENT_READERS_MAX} readers at a time")))?;
    let stand = Stand { reader: shared.events.read(after), more: true, _place: place };
    Ok(Sse::new(unfold(stand, next)).keep_alive(heartbeat()))
}

async fn next(mut stand: Stand) -> Option<(Result<Event, Infallible>, Stand)> {
    if !stand.more {
        return None;
    }
    let event = match stand.reader.next().await {
        Told::Event(event) => with_data(event.happening.name(), &*event).id(event.seq.to_string()),
        Told::Gap(gap) => with_data(GAP, &gap),
        Told::Dropped(reason) => {
            stand.more = false;
            with_data(DROPPED, &Dropped { reason })
        }
    };
    Some((Ok(event), stand))
}
