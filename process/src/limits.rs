//! The bounds of what is served here that are nobody else's to choose.

/// Bytes that wait for a WebSocket's other side at most, besides one message.
pub(crate) const WEBSOCKET_WRITE_BYTES_MAX: usize = 256 * 1024;
