//! A stream of server-sent events, read event by event.

use reqwest::Response;
use sandbox_protocol::holdings::{GapEvent, SandboxEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ApiError, unreachable};
use crate::limits::EVENT_BYTES_MAX;

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
pub struct Events {
    url: String,
    response: Response,
    unread: Vec<u8>,
}

impl Events {
    pub(super) const fn new(url: String, response: Response) -> Self {
        Self { url, response, unread: Vec::new() }
    }

    /// The next event; `None` at the end, which comes by itself from time to time: go on behind the last event.
    ///
    /// # Errors
    /// [`ApiError::Unreachable`], [`ApiError::Garbled`].
    pub async fn next(&mut self) -> Result<Option<Heard>, ApiError> {
        loop {
            while let Some(event) = taken(&mut self.unread) {
                let text = std::str::from_utf8(&event).map_err(|error| self.garbled(&error))?;
                if let Some(heard) = heard(text).map_err(|error| self.garbled(&error))? {
                    return Ok(Some(heard));
                }
            }
            match self.response.chunk().await.map_err(|source| unreachable(&self.url, source))? {
                Some(chunk) => self.unread.extend_from_slice(&chunk),
                None => return Ok(None),
            }
            if self.unread.len() > EVENT_BYTES_MAX {
                return Err(self.garbled(&"an event without end"));
            }
        }
    }

    fn garbled(&self, why: &dyn std::fmt::Display) -> ApiError {
        ApiError::Garbled { url: self.url.clone(), why: why.to_string() }
    }
}

/// The first whole event, taken out.
fn taken(unread: &mut Vec<u8>) -> Option<Vec<u8>> {
    let end = unread.windows(2).position(|pair| pair == b"\n\n")?;
    Some(unread.drain(..end + 2).collect())
}

/// What an event says; `None` for a sign of life, and for kinds of a later version.
fn heard(text: &str) -> Result<Option<Heard>, serde_json::Error> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
    let data = field("data:").unwrap_or_default();
    match field("event:") {
        Some("sandbox") => read(data).map(Heard::Sandbox).map(Some),
        Some("gap") => read(data).map(Heard::Gap).map(Some),
        Some(_) | None => Ok(None),
    }
}

fn read<T: DeserializeOwned>(data: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_whole_and_signs_of_life_passed_over() {
        let mut unread = b":\n\nevent: gap\nid: 7\ndata: {\"after\":1,\"until\":7}\n\nevent: sand".to_vec();
        let mut said = std::iter::from_fn(|| taken(&mut unread)).map(|event| String::from_utf8(event).unwrap());
        assert_eq!(heard(&said.next().unwrap()).unwrap(), None);
        let gap = heard(&said.next().unwrap()).unwrap();
        assert_eq!(gap, Some(Heard::Gap(GapEvent { after: 1, until: 7 })));
        assert_eq!(said.next(), None, "the rest has not come yet");
        assert!(heard("event: sandbox\ndata: {}\n\n").is_err());
        assert_eq!(heard("event: later\ndata: 1\n\n").unwrap(), None);
    }
}
