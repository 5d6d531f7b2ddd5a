//! What an operator decides: how a sandbox lives and ends, what it may take, what a request means.
//!
//! Lower floors compute: [`sandbox::step`] is a pure function, [`admission`] plain arithmetic, [`request`] a parser,
//! [`selection`] and [`batch_plan`] say over again what the contract says. The [`driver`] alone acts, and only through
//! [`ports`]: nothing here knows a daemon, a path, a socket or a chain, and time, randomness and ids arrive as
//! arguments. So everything runs against [`fakes`] on a paused clock.

pub mod activity;
pub mod admission;
pub mod batch;
pub mod batch_plan;
pub mod children;
mod driver;
pub mod fakes;
mod guests;
mod handle;
mod keeper;
pub mod keys;
pub mod limits;
pub mod negotiation;
pub mod ports;
pub mod pricing;
pub mod request;
pub mod sandbox;
pub mod schedule;
pub mod selection;
pub mod workflow;

pub use driver::Rekeyed;
pub use guests::{Departure, Guest, NoGuest};
pub use handle::{Fleet, Stay, Unfinished, Visit};
pub use keeper::{Keeper, Ports};
