//! A call as server-sent events: each state that it comes to, until the answer that its reader waits for, and in between
//! what is told of its work.
//!
//! A state is a whole [`CallBody`](sandbox_protocol::http::CallBody), named by it, so a reader that takes the stream up again
//! is told what is true now and misses nothing that matters. An id says both how far the call was and which was the last event
//! of its work.

use std::convert::Infallible;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures::Stream;
use sandbox_protocol::http::CallStatus;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use super::{Calls, Want, body, status};
use crate::api::ApiError;
use crate::api::seats::Seat;
use crate::api::session::Session;
use crate::limits::{API_STREAM_AGE_MAX, API_STREAM_KEEP_ALIVE, API_STREAM_QUEUE_MAX, API_STREAM_TAKE_MAX};
use crate::records::{CallRecord, Progress};

const EVENT_STREAM: &str = "text/event-stream";

/// Where a call is on its road, as finely as its operator knows; the discriminant is part of the events' ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Queued = 1,
    Running = 2,
    Answered = 3,
    Settled = 4,
}

/// What a reader was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Told {
    /// The last state.
    stage: Option<Stage>,
    /// Number of the last event of its work.
    seq: u64,
}

/// Ids count events of the work by so much; what is left is the state.
const STAGES: u64 = 8;

impl Told {
    /// What was told up to the event with this id.
    pub(super) fn of_id(id: u64) -> Self {
        Self { stage: Stage::of_id(id % STAGES), seq: id / STAGES }
    }

    /// The id of the last event.
    const fn id(self) -> u64 {
        let stage = match self.stage {
            Some(stage) => stage as u64,
            None => 0,
        };
        self.seq.saturating_mul(STAGES).saturating_add(stage)
    }
}

/// One stream, and what it has told.
pub(super) struct Follower {
    pub(super) calls: Arc<Calls>,
    pub(super) want: Want,
    /// The token it was asked by; one that was asked for by a signature lasts as long as a stream may.
    pub(super) session: Option<Session>,
    pub(super) told: Told,
    pub(super) seat: Seat,
}

/// Why a stream ends before its answer.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("its reader does not take what it is sent, or has left")]
    Reader,
    #[error("its token opens nothing any more")]
    Session,
    #[error("the call cannot be shown any more")]
    Call(#[source] ApiError),
    #[error("an event cannot be written")]
    Event(#[source] axum::Error),
    #[error("the records are not watched any more")]
    Records,
}

/// Whether a stream is asked for.
pub(super) fn is_asked(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|kind| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case(EVENT_STREAM)
    })
}

impl Stage {
    const fn of(call: &CallRecord) -> Option<Self> {
        match &call.progress {
            Progress::Seen => Some(Self::Queued),
            Progress::Begun { .. } => Some(Self::Running),
            Progress::Answered(_) | Progress::Refused { .. } => Some(Self::Answered),
            Progress::Settled { .. } => Some(Self::Settled),
            Progress::Dropped { .. } => None,
        }
    }

    /// The state in an event's id.
    fn of_id(id: u64) -> Option<Self> {
        [Self::Queued, Self::Running, Self::Answered, Self::Settled].into_iter().find(|stage| *stage as u64 == id)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Answered => "answered",
            Self::Settled => "settled",
        }
    }
}

impl Follower {
    /// The stream, which goes on by itself.
    pub(super) fn start(self) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
        let (out, events) = mpsc::channel(API_STREAM_QUEUE_MAX);
        tokio::spawn(self.run(out));
        Sse::new(ReceiverStream::new(events).map(Ok)).keep_alive(KeepAlive::new().interval(API_STREAM_KEEP_ALIVE))
    }

    async fn run(mut self, out: mpsc::Sender<Event>) {
        let (key, stop) = (self.want.key, self.calls.stop.clone());
        let ended = tokio::select! {
            ended = self.tell(&out) => ended,
            () = out.closed() => Err(End::Reader),
            () = stop.cancelled() => Ok(()),
            () = sleep(API_STREAM_AGE_MAX) => Ok(()),
        };
        if let Err(error) = ended {
            tracing::debug!(call = %key, error = %crate::error_chain(&error), "a stream of a call ended");
        }
        drop(self.seat);
    }

    /// Sends each state that is new, up to the one that is waited for.
    async fn tell(&mut self, out: &mpsc::Sender<Event>) -> Result<(), End> {
        let mut changes = self.calls.records.watch(self.want.key);
        let mut work = self.calls.stories.changes();
        let mut look_after = interval(API_STREAM_KEEP_ALIVE);
        loop {
            if self.session.as_ref().is_some_and(|session| !session.is_open(&self.calls.records)) {
                return Err(End::Session);
            }
            let call = self.calls.look(self.want).await.map_err(End::Call)?.ok_or(End::Call(ApiError::NoCall))?;
            let stage = Stage::of(&call).ok_or(End::Call(ApiError::NoCall))?;
            work.mark_unchanged();
            // All that is told of its work comes before its answer.
            if stage < Stage::Answered {
                self.tell_stage(out, stage, &call).await?;
                self.tell_work(out).await?;
            } else {
                self.tell_work(out).await?;
                self.tell_stage(out, stage, &call).await?;
            }
            if is_last(&call, self.want.until) {
                return Ok(());
            }
            tokio::select! {
                changed = changes.changed() => changed.map_err(|_| End::Records)?,
                told = work.changed() => told.map_err(|_| End::Records)?,
                _ = look_after.tick() => {}
            }
        }
    }
}

impl Follower {
    async fn tell_stage(&mut self, out: &mpsc::Sender<Event>, stage: Stage, call: &CallRecord) -> Result<(), End> {
        if self.told.stage != Some(stage) {
            self.told.stage = Some(stage);
            send(out, stage.name(), self.told.id(), &body(call).map_err(End::Call)?).await?;
        }
        Ok(())
    }

    async fn tell_work(&mut self, out: &mpsc::Sender<Event>) -> Result<(), End> {
        for event in self.calls.stories.after(self.want.key, self.told.seq) {
            self.told.seq = event.seq;
            send(out, event.told.name(), self.told.id(), &event).await?;
        }
        Ok(())
    }
}

/// Whether the call is as far as it is waited for, or will come no further.
fn is_last(call: &CallRecord, until: CallStatus) -> bool {
    let is_refused = matches!(call.progress, Progress::Refused { .. });
    is_refused || status(call).is_some_and(|status| status >= until)
}

async fn send(out: &mpsc::Sender<Event>, name: &str, id: u64, data: &impl Serialize) -> Result<(), End> {
    let event = Event::default().event(name).id(id.to_string()).json_data(data).map_err(End::Event)?;
    let sent = timeout(API_STREAM_TAKE_MAX, out.send(event)).await;
    sent.map_err(|_| End::Reader)?.map_err(|_| End::Reader)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_stream_is_asked_for_by_its_kind_among_others() {
        let asked = |value: &'static str| is_asked(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))]));
        assert!(asked("text/event-stream") && asked("application/json, Text/Event-Stream;q=0.9"));
        assert!(!asked("application/json") && !asked("text/event-streams") && !asked("*/*"));
        assert!(!is_asked(&HeaderMap::new()));
    }

    #[test]
    fn ids_are_those_of_states() {
        assert_eq!((Stage::of_id(1), Stage::of_id(4)), (Some(Stage::Queued), Some(Stage::Settled)));
        assert_eq!((Stage::of_id(0), Stage::of_id(5)), (None, None));
        for id in [1, 4, STAGES + 2, 1_800_000_000_000 * STAGES + 3] {
            assert_eq!(Told::of_id(id).id(), id);
        }
    }
}
