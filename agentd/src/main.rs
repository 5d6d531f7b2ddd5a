//! The process beside the sidecar that does a sandbox's language-model work.

fn main() {}
