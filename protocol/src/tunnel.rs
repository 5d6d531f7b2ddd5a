//! A connection to a port inside a sandbox: `GET /tcp/{port}` of a sidecar.
//!
//! By `Upgrade: tcp` the bytes after the answer 101 are the port's, in both directions, and either side may end its own.
//! As a WebSocket, bytes are binary messages, cut anywhere. WebSockets know no half-close, so there an empty message ends
//! the client's direction, and when the port ends its own the WebSocket ends. What a client sent before it closes arrives.

/// Path of the route, before `/{port}`.
pub const ROUTE: &str = "/tcp";
/// What an upgrade to bare bytes is called.
pub const PROTOCOL: &str = "tcp";

/// Why a sidecar ends a tunnel's WebSocket.
pub mod close {
    /// The port ended its direction, or the client did.
    pub const ENDED: u16 = 1000;
    /// The sidecar ends.
    pub const GOING_AWAY: u16 = 1001;
    /// A text message came.
    pub const NOT_BINARY: u16 = 1003;
    /// A message is longer than [`TUNNEL_MESSAGE_BYTES_MAX`](crate::limits::TUNNEL_MESSAGE_BYTES_MAX).
    pub const TOO_LONG: u16 = 1009;
    /// The connection to the port broke off.
    pub const PORT_BROKE: u16 = 4000;
}
