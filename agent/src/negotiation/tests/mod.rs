//! Whole debates by a scripted model.

mod failures;
mod fakes;
mod flow;
mod injection;
mod overflow;
mod restart;
