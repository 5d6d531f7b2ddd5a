//! What outbound connections promise: real listeners, real clients, a resolver whose answers a test decides.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests end a test as its own body would

mod addresses;
mod clients;
mod framing;
mod harness;
mod limits;
mod policy;
mod requests;
mod rules;
mod services;
mod tunnels;
