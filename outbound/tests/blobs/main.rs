//! What the places of snapshots promise: against real S3, a real IPFS node, real web servers over TLS and real
//! directories, over a resolver whose answers a test decides.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests end a test as its own body would

mod file;
mod harness;
mod ipfs;
mod s3;
mod web;
