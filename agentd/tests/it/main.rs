//! The agents' process over HTTP, with backends that do as they are told.

mod harness;
mod limits;
mod runs;
