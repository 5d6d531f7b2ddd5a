//! SSH into sandboxes: one port for all of them, the user name is the sandbox's id.
//!
//! A connection proves a key, and what is on record for that key decides ([`ports::Doors`]). What it opens then is served
//! by the sandbox's sidecar ([`sandbox_protocol::channel`]); nothing of a customer runs here. When access is withdrawn, or
//! the sandbox is no more, the connection ends.

mod algorithms;
mod backlog;
mod client;
mod guest;
pub mod hostkeys;
pub mod limits;
mod listening;
mod outlet;
pub mod ports;
mod program;
mod server;
mod sidecar;
mod strangers;
mod transport;
mod tunnel;
mod words;

pub use server::{Bounds, Gateway};
