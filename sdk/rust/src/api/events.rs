//! A stream of server-sent events, read event by event.

use reqwest::Response;
use sandbox_protocol::holdings::{GapEvent, SandboxEvent};
use serde::Serialize;

use super::ApiError;
use super::sse::{Bounds, Frame, Frames};
use crate::limits::{EVENT_BYTES_MAX, EVENT_SILENCE};

/// Something that was heard of one's sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Heard {
    /// Something happened to one.
    Sandbox(SandboxEvent),
    /// The operator does not know any more what happened in between.
    Gap(GapEvent),
}

/// Events as they come.
#[derive(Debug)]
pub struct Events(Frames);

impl Events {
    pub(super) const fn new(url: String, response: Response) -> Self {
        let bounds = Bounds { frame_bytes_max: EVENT_BYTES_MAX, silence: EVENT_SILENCE };
        Self(Frames::new(url, response, bounds))
    }

    /// The next event; `None` at the end, which comes by itself from time to time: go on behind the last event.
    ///
    /// # Errors
    /// [`ApiError::Unreachable`], [`ApiError::Broken`], [`ApiError::Garbled`].
    pub async fn next(&mut self) -> Result<Option<Heard>, ApiError> {
        while let Some(frame) = self.0.next().await? {
            if let Some(heard) = heard(&frame).map_err(|error| self.0.garbled(&error))? {
                return Ok(Some(heard));
            }
        }
        Ok(None)
    }
}

/// What an event says; `None` for a sign of life, and for kinds of a later version.
fn heard(frame: &Frame) -> Result<Option<Heard>, serde_json::Error> {
    match frame.event.as_str() {
        "sandbox" => serde_json::from_str(&frame.data).map(Heard::Sandbox).map(Some),
        "gap" => serde_json::from_str(&frame.data).map(Heard::Gap).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_apart_and_signs_of_life_passed_over() {
        let said = |event: &str, data: &str| {
            heard(&Frame { event: event.into(), id: None, data: data.into() }).map_err(|error| error.to_string())
        };
        assert_eq!(said("", ""), Ok(None));
        assert_eq!(said("gap", r#"{"after":1,"until":7}"#), Ok(Some(Heard::Gap(GapEvent { after: 1, until: 7 }))));
        assert!(said("sandbox", "{}").is_err());
        assert_eq!(said("later", "1"), Ok(None));
    }
}
