//! The gateway before a real sidecar, as real clients see it.

mod admission;
mod audit;
mod channels;
mod clients;
mod files;
mod harness;
mod hostile;
mod speed;
mod tunnels;
