//! What the crate promises, through its public edge and with fakes behind its ports.

mod search;
mod task;
