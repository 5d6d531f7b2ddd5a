//! Every word that crosses a process border: job ids, ABI structs, receipts, HTTP and sidecar bodies, sign-in messages, limits.
//!
//! Not here: input and output, tasks, clocks, chains. What two sides must agree on stands here once; how either side
//! obtains or uses it stands with that side.

// The fuzz targets name the crate as others do, and are tests here as well.
#[cfg(test)]
extern crate self as sandbox_protocol;

pub mod abi;
pub mod agent;
pub mod batch;
pub mod channel;
pub mod egress;
pub mod events;
pub mod exec;
pub mod failure;
pub mod files;
pub mod fsp;
pub mod holdings;
pub mod http;
pub mod jobs;
pub mod limits;
pub mod pty;
pub mod receipt;
pub mod sandbox_id;
pub mod sealed;
pub mod session;
pub mod siwe;
pub mod snapshot;
pub mod ssh;
pub mod ticket;
pub mod tunnel;
pub mod users;
pub mod workflow;

pub use failure::{Failure, FailureCode};
pub use jobs::Job;
pub use receipt::Outcome;
pub use sandbox_id::{CallKey, SandboxId};
