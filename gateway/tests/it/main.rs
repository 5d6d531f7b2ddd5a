//! The gateway before a real sidecar, as real clients see it.

mod admission;
mod channels;
mod harness;
mod speed;
mod tunnels;
