//! The engine of a negotiation: one move, a critic, three decision makers, rounds of argument, scores.
//!
//! A move of r rounds is 2r+1 stages, one after the other; the calls of a stage are made at the same time, 6r+1 in all. Round 1
//! opens with one call of the critic that all three conversations share; from round 2 on the critic answers each decision maker
//! by itself. [`negotiate`] always gives a report: of whatever was said and scored when something stopped it.
//!
//! Invariants: a call that [`Checkpoints`] know is not made again; the result of a call outlives the process before the next
//! stage begins, and is on disk before the next stage ends; the same answers give the same report, in however many lives; words of others are told to a model in quoted blocks only;
//! a score is 1 to 10 for each metric, whatever the model wrote.
//!
//! Not here: where a model is reached, who runs moves beside each other, and who writes the conversations to files.

mod brief;
mod call;
mod checkpoints;
mod clerk;
mod debate;
mod file;
mod log;
mod personas;
mod prompts;
mod provided;
mod quote;
mod score;

pub use self::brief::{Brief, Budget, Room};
pub use self::call::{Call, Completed, Maker, Outcome};
pub use self::checkpoints::{CheckpointError, Checkpoints};
pub use self::debate::negotiate;
pub use self::file::FileCheckpoints;
pub use self::log::format_transcript;
pub use self::personas::{DecisionMaker, Personas};
pub use self::provided::{Provided, negotiate_provided};

#[cfg(test)]
mod tests;
