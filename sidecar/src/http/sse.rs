//! What streams of server-sent events have in common.

use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive};
use sandbox_protocol::exec::SidecarRefusal;
use sandbox_protocol::limits::EVENT_HEARTBEAT_S;
use serde::Serialize;

use super::error::ApiError;

/// The header by which a reader that comes back says what it has.
pub(in crate::http) const LAST_EVENT_ID: &str = "last-event-id";

/// Signs of life where nothing happens.
pub(in crate::http) fn heartbeat() -> KeepAlive {
    KeepAlive::new().interval(Duration::from_secs(EVENT_HEARTBEAT_S))
}

/// An event. Nothing that is told can fail to be written: all keys are text and all numbers finite.
pub(in crate::http) fn with_data(name: &str, data: &impl Serialize) -> Event {
    Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default())
}

/// Number of the last event that a reader has.
pub(in crate::http) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| text.parse().ok());
    id.map(Some).ok_or_else(|| ApiError::new(SidecarRefusal::BadRequest, "Last-Event-ID: give the id of an event"))
}
