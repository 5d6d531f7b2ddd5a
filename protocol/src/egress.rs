//! The door through which a sandbox's commands reach the operator's proxy.

/// Port on the sandbox's own loopback address; connections to it end at the operator's proxy.
pub const EGRESS_PORT: u16 = 3128;
/// `code` of the answer where the proxy cannot be reached.
pub const EGRESS_UNAVAILABLE: &str = "egress_unavailable";
