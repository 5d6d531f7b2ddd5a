//! The client against the real Tangle core on a local chain: needs `npm ci` and `forge build`, no Docker.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test ends where something is not as it should be

mod agents;
mod answers;
mod batches;
mod chain;
mod command_line;
mod deploy;
mod desk;
mod fake_agent;
mod fake_operator;
mod fake_workflows;
mod workflows;
mod world;
