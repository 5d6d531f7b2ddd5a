//! The process beside the sidecar that does a sandbox's language-model work.
//!
//! The sidecar starts it when it is first needed, hands requests on to it over a Unix socket, and serves it: whatever an agent
//! does in the sandbox it does as a client of the sidecar's own doors, so that nothing of it runs here. It is a process of its own so
//! that a sidecar stays small and what breaks here breaks nothing else.

pub mod backend;
pub mod backends;
pub mod config;
pub mod debates;
pub mod hands;
pub mod http;
pub mod limits;
pub mod native;
pub mod negotiator;
pub mod runs;
