//! Promises to customers and operators, kept over the real Tangle core, the real engine and the shipped command line.

mod crash;
mod journey;
mod refusals;
mod start;
mod world;
