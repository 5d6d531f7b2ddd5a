//! When workflows fire. Nothing here knows a clock: time is an argument, in seconds since 1970.
//!
//! | module | what it is |
//! |---|---|
//! | `fields` | the text of an expression, and what is wrong with it |
//! | `pattern` | the wall-clock times that an expression names, sought ahead and back |
//! | `cron` | the instants that they are in a zone, its gaps and repeats included |
//! | `queue` | which workflows are due, and for which instants |
//! | [`overlap`] | what becomes of a firing while a run goes on |
//!
//! An instant is called a slot: it names a firing for good. Jitter, lateness and restarts put off when a slot is fired,
//! never which slot it is.

mod cron;
mod fields;
pub mod overlap;
mod pattern;
mod queue;

pub use cron::Cron;
pub use fields::{BadCron, Field};
pub use queue::{Due, DueQueue, Entry};
