//! Makes archives of a sandbox's files and takes them in again.
//!
//! All of it runs in a process of its own that has become the agent (see [`crate::snapshot`]), so it can neither read
//! nor write what the agent may not. `write` and `export` make an archive, `read` and `extract` take one, `stage` puts
//! what was taken in the place of what was there. Not here: HTTP, users, time limits.

pub(crate) mod clear;
pub(crate) mod disk;
mod error;
mod export;
mod extension;
mod extract;
mod job;
mod place;
mod read;
mod sparse;
mod stage;
mod write;

pub use self::error::ArchiveError;
pub use self::job::{Failed, Job, Roots, Told};
pub use self::place::{Root, STAGING};
