//! Promises to customers and operators, kept over the real Tangle core, the real engine and the shipped command line.

mod alone;
mod chain_faults;
mod contract;
mod crash;
mod deploy;
mod journey;
mod quotes;
mod refusals;
mod start;
mod terms;
mod world;
