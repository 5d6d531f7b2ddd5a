//! What the process beside the sidecar promises: over its own door with backends that do as they are told; and with real
//! programs, real sidecars and a provider with a script.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests end a test as its own body would

mod backends;
mod harness;
mod inside;
mod limits;
mod runs;
