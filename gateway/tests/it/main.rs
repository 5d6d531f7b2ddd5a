//! The gateway before a real sidecar, as real clients see it.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests end a test as its own body would

mod admission;
mod audit;
mod channels;
mod clients;
mod files;
mod harness;
mod hostile;
mod speed;
mod tunnels;
