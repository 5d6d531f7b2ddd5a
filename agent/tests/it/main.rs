//! What the crate promises, through its public edge: with fakes behind its ports, and before a real HTTP server.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests end a test as its own body would

mod provider;
mod search;
mod task;
