//! The process beside the sidecar that does a sandbox's language-model work.

pub mod backend;
pub mod backends;
