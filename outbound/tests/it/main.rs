//! What outbound connections promise: real listeners, real clients, a resolver whose answers a test decides.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests end a test as its own body would
