//! Backends that are programs of others: `opencode` and `claude-agent`.
//!
//! Each run starts the program anew, as the sandbox's agent user and through the port [`Programs`]; it is told the prompt on
//! its stdin and tells what it does as lines of JSON on its stdout. A program keeps its conversations itself, in a directory
//! that only its session has; which of its conversations is which session of ours is kept by [`Sessions`].
//!
//! What runs here decides nothing about tools: it writes the profile's policies into the program's own configuration and, where
//! the program can ask, answers for the customer. Not here: how a program is started, and where orders come from.

mod access;
mod claude;
#[cfg(test)]
mod desk;
mod drive;
pub mod limits;
mod lines;
mod opencode;
mod place;
mod programs;
mod sessions;
mod tally;
mod tools;
mod turn;

pub use self::claude::ClaudeAgent;
pub use self::opencode::Opencode;
pub use self::place::Settings;
pub use self::programs::{
    Ended, FspPrograms, Heard, Launch, PROGRAM_EXTENSIONS, Program, ProgramError, Programs, run_to_end,
};
