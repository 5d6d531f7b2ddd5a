//! Promises to customers and operators, kept over the real Tangle core, the real engine and the shipped command line.

mod alone;
mod api;
mod chain_faults;
mod contract;
mod crash;
mod deploy;
mod disk;
mod doctor;
mod engine;
mod image;
mod journey;
mod lifecycle;
mod operations;
mod packaging;
mod pool;
mod quotes;
mod refusals;
mod runtime;
mod sealed;
mod start;
mod sweep;
mod terms;
mod world;
