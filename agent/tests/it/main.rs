//! What the crate promises, through its public edge and with fakes behind its ports.

#![allow(clippy::unwrap_used)] // helpers of tests end a test as its own body would

mod search;
mod task;
