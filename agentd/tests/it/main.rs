//! What the process beside the sidecar promises: real programs, real processes, a provider with a script.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests end a test as its own body would

mod backends;
