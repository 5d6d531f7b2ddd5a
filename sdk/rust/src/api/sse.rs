//! A stream of server-sent events, frame by frame.

use std::time::Duration;

use reqwest::Response;
use tokio::time::timeout;

use super::{ApiError, unreachable};

/// One event as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Frame {
    /// Its name; empty for a sign of life.
    pub(crate) event: String,
    /// Its id, if it has one.
    pub(crate) id: Option<String>,
    /// Its data, lines joined.
    pub(crate) data: String,
}

/// What bounds a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes of one frame.
    pub(crate) frame_bytes_max: usize,
    /// Time without a byte after which the stream counts as broken.
    pub(crate) silence: Duration,
}

/// Frames as they come.
#[derive(Debug)]
pub(crate) struct Frames {
    url: String,
    response: Response,
    bounds: Bounds,
    unread: Vec<u8>,
    /// Up to where there is no end of a frame.
    looked_at: usize,
}

impl Frames {
    pub(crate) const fn new(url: String, response: Response, bounds: Bounds) -> Self {
        Self { url, response, bounds, unread: Vec::new(), looked_at: 0 }
    }

    /// The next frame; `None` at the stream's end.
    ///
    /// # Errors
    /// [`ApiError::Unreachable`], [`ApiError::Broken`], [`ApiError::Garbled`].
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>, ApiError> {
        loop {
            if let Some(frame) = self.taken() {
                let text = std::str::from_utf8(&frame).map_err(|error| self.garbled(&error))?;
                return Ok(Some(read(text)));
            }
            if self.unread.len() > self.bounds.frame_bytes_max {
                return Err(self.garbled(&"an event without end"));
            }
            let piece = match timeout(self.bounds.silence, self.response.chunk()).await {
                Ok(piece) => piece.map_err(|source| unreachable(&self.url, source))?,
                Err(late) => return Err(ApiError::Broken { url: self.url.clone(), source: late.into() }),
            };
            match piece {
                Some(piece) => self.unread.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }

    pub(crate) fn garbled(&self, why: &dyn std::fmt::Display) -> ApiError {
        ApiError::Garbled { url: self.url.clone(), why: why.to_string() }
    }

    /// The first whole frame, taken out.
    fn taken(&mut self) -> Option<Vec<u8>> {
        let Some(end) = end_of(&self.unread, self.looked_at) else {
            self.looked_at = self.unread.len().saturating_sub(1);
            return None;
        };
        self.looked_at = 0;
        Some(self.unread.drain(..end).collect())
    }
}

/// Where the first frame ends, its empty line with it. No end begins before `from`.
fn end_of(unread: &[u8], from: usize) -> Option<usize> {
    let found = unread.get(from..)?.windows(2).position(|pair| pair == b"\n\n")?;
    Some(from + found + 2)
}

fn read(text: &str) -> Frame {
    let mut frame = Frame::default();
    for line in text.lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut frame.event),
            "id" => frame.id = Some(value.to_owned()),
            "data" => {
                if !frame.data.is_empty() {
                    frame.data.push('\n');
                }
                frame.data.push_str(value);
            }
            _ => {}
        }
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_ends_with_an_empty_line_wherever_the_pieces_were_cut() {
        let whole = b":\n\nevent: gap\nid: 7\ndata: {}\n\nevent: sand";
        let first = end_of(whole, 0).unwrap();
        assert_eq!(first, 3);
        let second = first + end_of(&whole[first..], 0).unwrap();
        assert_eq!(end_of(&whole[second..], 0), None, "the rest has not come yet");
        for cut in 0..second - first {
            let seen = cut.saturating_sub(1);
            assert_eq!(end_of(&whole[first..second], seen), Some(second - first), "cut at {cut}");
        }
    }

    #[test]
    fn fields_are_read_and_all_others_passed_over() {
        assert_eq!(read(":\n\n"), Frame::default());
        let frame = read("event: gap\nid: 7\nretry: 1\ndata: a\ndata:b: c\n\n");
        assert_eq!(frame, Frame { event: "gap".into(), id: Some("7".into()), data: "a\nb: c".into() });
    }
}
