//! What an agent does in the sandbox: programs and files, through the sidecar's own doors, so that all of it is done by the
//! unprivileged user that the sidecar runs everything as.

mod files;
mod programs;
mod sidecar;

pub use self::sidecar::{AskError, Sidecar};
