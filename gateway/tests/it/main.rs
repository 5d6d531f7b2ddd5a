//! The gateway before a real sidecar, as real clients see it.

mod admission;
mod channels;
mod clients;
mod files;
mod harness;
mod tunnels;
