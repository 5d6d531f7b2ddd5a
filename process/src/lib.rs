//! How a process of ours starts and stops: where its configuration comes from, how it is told to end, how it logs,
//! how it serves and asks over HTTP/1, WebSockets and upgraded connections.
//!
//! Not here: what any process does. No knowledge of chains, containers or sandboxes.

pub mod link;
pub mod logging;
pub mod serve;
pub mod signals;
pub mod source;
pub mod upgrade;
pub mod websocket;
