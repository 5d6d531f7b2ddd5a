//! What is merely a sign of life: a connection that says no more than that it is there does not keep a sandbox awake.

use crate::limits::API_COMMENT_BYTES_MAX;

/// What bytes are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Anything.
    Plain,
    /// A stream of server-sent events, whose comments are signs of life.
    Events,
    /// A WebSocket, whose pings and pongs are.
    WebSocket,
}

impl Kind {
    /// Whether there is more to these bytes, as they came at a time, than a sign of life.
    pub(super) fn is_use(self, bytes: &[u8]) -> bool {
        match self {
            Self::Plain => !bytes.is_empty(),
            Self::Events => !are_comments(bytes),
            Self::WebSocket => !are_pings(bytes),
        }
    }
}

fn are_comments(bytes: &[u8]) -> bool {
    let is_comment = |line: &[u8]| matches!(line, [] | b"\r" | [b':', ..]);
    bytes.len() <= API_COMMENT_BYTES_MAX && bytes.split(|byte| *byte == b'\n').all(is_comment)
}

/// Control frames are short, unfragmented and written at once, so they mostly come whole and alone.
fn are_pings(mut bytes: &[u8]) -> bool {
    const PING: u8 = 0x89;
    const PONG: u8 = 0x8a;
    const MASKED: u8 = 0x80;
    const LONGEST: u8 = 125;
    while let [PING | PONG, length, rest @ ..] = bytes {
        let mask = if length & MASKED == 0 { 0 } else { 4 };
        let length = length & !MASKED;
        let Some(next) = rest.get(mask + usize::from(length)..).filter(|_| length <= LONGEST) else { return false };
        bytes = next;
    }
    bytes.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_an_event_stream_are_signs_of_life_and_events_are_use() {
        for idle in ["", ":\n\n", ": keep-alive\r\n\r\n", ":a\n:b\n\n"] {
            assert!(!Kind::Events.is_use(idle.as_bytes()), "{idle:?}");
        }
        let long = format!(":{}", "x".repeat(API_COMMENT_BYTES_MAX));
        for used in ["data: 1\n\n", ":\n\nid: 1\n", "\n:\nx", &long] {
            assert!(Kind::Events.is_use(used.as_bytes()), "{used:?}");
        }
        assert!(!Kind::Events.is_use(&long.as_bytes()[..API_COMMENT_BYTES_MAX]));
    }

    #[test]
    fn pings_and_pongs_of_a_websocket_are_signs_of_life_and_messages_are_use() {
        let idle: [&[u8]; 5] = [b"", b"\x89\x00", b"\x8a\x02hi", b"\x8a\x81mask!", b"\x89\x00\x8a\x80mask\x89\x01x"];
        for bytes in idle {
            assert!(!Kind::WebSocket.is_use(bytes), "{bytes:?}");
        }
        let used: [&[u8]; 5] = [b"\x82\x00", b"\x89\x00\x81\x01x", b"\x89\x02x", b"\x89\x7e\x00\x00", b"x"];
        for bytes in used {
            assert!(Kind::WebSocket.is_use(bytes), "{bytes:?}");
        }
        assert!(Kind::Plain.is_use(b"\x89\x00") && !Kind::Plain.is_use(b""));
    }
}
