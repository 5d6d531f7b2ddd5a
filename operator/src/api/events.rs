//! `GET /v1/events`: what happens to the sandboxes of who asks, as server-sent events that can be taken up again.
//!
//! The log on disk is the only queue: a stream reads on from its last id whenever there is more. So a slow reader costs a
//! place in a file, and is cut off when it does not take what it was sent.

use std::convert::Infallible;
use std::sync::Arc;

use alloy::primitives::Address;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::Stream;
use sandbox_protocol::holdings::{EventsQuery, GapEvent, SandboxEvent};
use sandbox_protocol::session::Scope;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiError;
use super::document::SessionErrors;
use super::extract::InQuery;
use super::seats::{Seat, Seats, taken_up};
use super::session::Session;
use crate::limits::{
    API_STREAM_AGE_MAX, API_STREAM_KEEP_ALIVE, API_STREAM_QUEUE_MAX, API_STREAM_TAKE_MAX, EVENTS_READ_MAX,
};
use crate::records::{EventRecord, Records, RecordsError};

const SANDBOX: &str = "sandbox";
const GAP: &str = "gap";

/// What the route works with.
pub(super) struct Feed {
    records: Records,
    seats: Seats,
    stop: CancellationToken,
}

/// One stream, and how far it is.
struct Follower {
    feed: Arc<Feed>,
    session: Session,
    address: Address,
    /// The last id that was read.
    last: u64,
    /// Whether it goes on with what happens.
    follows: bool,
    out: mpsc::Sender<Event>,
    _seat: Seat,
}

/// Why a stream ends.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("its reader does not take what it is sent, or has left")]
    Reader,
    #[error("its token opens nothing any more")]
    Session,
    #[error(transparent)]
    Records(#[from] RecordsError),
    #[error("an event cannot be written")]
    Event(#[source] axum::Error),
}

impl Feed {
    /// The events in `records`, for those who find a seat, until `stop`.
    pub(super) const fn new(records: Records, seats: Seats, stop: CancellationToken) -> Self {
        Self { records, seats, stop }
    }
}

/// The route, as a value.
pub(super) fn routes() -> OpenApiRouter<Arc<Feed>> {
    OpenApiRouter::new().routes(routes!(follow))
}

/// Follows what happens to the caller's sandboxes: server-sent events of the kinds `sandbox` (data: SandboxEvent, id: its
/// number) and `gap` (data: GapEvent), where the log does not reach back to what was asked for. The stream ends from time to time;
/// take it up again with `Last-Event-ID`.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "events", tag = "sandboxes", security(("token" = [])),
    params(EventsQuery, ("Last-Event-ID" = Option<u64>, Header, description = "The last id that the reader has")),
    responses((status = 200, description = "Events", body = String, content_type = "text/event-stream"), SessionErrors)
)]
async fn follow(
    State(feed): State<Arc<Feed>>,
    session: Session,
    InQuery(query): InQuery<EventsQuery>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let address = session.may(Scope::EventsRead)?;
    let after = taken_up(&headers)?.or(query.after);
    let seat = feed.seats.take(address)?;
    let (out, events) = mpsc::channel(API_STREAM_QUEUE_MAX);
    let last = after.unwrap_or_else(|| *feed.records.last_event().borrow());
    let follower = Follower { feed, session, address, last, follows: query.follow, out, _seat: seat };
    tokio::spawn(follower.run());
    let keep_alive = KeepAlive::new().interval(API_STREAM_KEEP_ALIVE);
    Ok(Sse::new(ReceiverStream::new(events).map(Ok)).keep_alive(keep_alive))
}

impl Follower {
    async fn run(mut self) {
        let (stop, out) = (self.feed.stop.clone(), self.out.clone());
        let address = self.address;
        let ended = tokio::select! {
            ended = self.tell() => ended,
            () = out.closed() => Err(End::Reader),
            () = stop.cancelled() => Ok(()),
            () = sleep(API_STREAM_AGE_MAX) => Ok(()),
        };
        match ended {
            Ok(()) => {}
            Err(End::Reader | End::Session) => tracing::debug!(%address, "a stream of events ended"),
            Err(error) => tracing::error!(%address, error = %crate::error_chain(&error), "a stream of events ended"),
        }
    }

    /// Sends what there is and what comes, for as long as the token is good.
    async fn tell(&mut self) -> Result<(), End> {
        let mut changed = self.feed.records.last_event();
        let mut look_after = interval(API_STREAM_KEEP_ALIVE);
        let newest = *changed.borrow_and_update();
        self.announce_gap(newest).await?;
        loop {
            if !self.session.is_open(&self.feed.records) {
                return Err(End::Session);
            }
            while self.read_on().await? {}
            if !self.follows {
                return Ok(());
            }
            tokio::select! {
                told = changed.changed() => told.map_err(|_| End::Records(RecordsError::Stopped))?,
                _ = look_after.tick() => {}
            }
        }
    }

    /// Says so where the log does not reach back to the reader's last id, or does not know it.
    async fn announce_gap(&mut self, newest: u64) -> Result<(), End> {
        let oldest = self.feed.records.oldest_event()?;
        let until = if self.last > newest { newest } else { oldest.saturating_sub(1) };
        if self.last > newest || self.last < until {
            let gap = GapEvent { after: self.last, until };
            self.send(GAP, until, &gap).await?;
            self.last = until;
        }
        Ok(())
    }

    /// Sends a few events; whether there may be more.
    async fn read_on(&mut self) -> Result<bool, End> {
        let events = self.feed.records.events(self.address, self.last, EVENTS_READ_MAX)?;
        let more = events.len() == EVENTS_READ_MAX;
        for event in events {
            self.send(SANDBOX, event.seq, &told(event)).await?;
        }
        Ok(more)
    }

    async fn send(&mut self, kind: &str, seq: u64, data: &impl Serialize) -> Result<(), End> {
        let event = Event::default().event(kind).id(seq.to_string()).json_data(data).map_err(End::Event)?;
        let sent = timeout(API_STREAM_TAKE_MAX, self.out.send(event)).await;
        sent.map_err(|_| End::Reader)?.map_err(|_| End::Reader)?;
        self.last = self.last.max(seq);
        Ok(())
    }
}

fn told(event: EventRecord) -> SandboxEvent {
    let EventRecord { seq, time_ms, happened } = event;
    SandboxEvent { seq, time_ms, sandbox: happened.sandbox, phase: happened.phase, reason: happened.reason }
}
