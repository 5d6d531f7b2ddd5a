//! What the sidecar promises to whoever holds its socket: the real router, real processes.
//!
//! As root the tests also exercise the change of user; as anyone else they say what they left out.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests end a test as its own body would

mod channel;
mod contained;
mod egress;
mod engine;
mod events;
mod files;
mod fsp;
mod groups;
mod harness;
mod isolation;
mod limits;
mod process;
mod program;
mod pty;
mod refusals;
mod scopes;
mod separation;
mod sftp;
mod snapshot;
mod survival;
mod tcp;
