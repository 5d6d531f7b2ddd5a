//! The ground that tests, demo, devnet and benches stand on: a real chain, real operator processes, a real engine.
//!
//! Every part ends what it started when it is dropped, by its own process id and its own label, so nothing here touches
//! what somebody else runs on the machine. Ports and directories are chosen free.

pub mod actors;
pub mod all_jobs;
pub mod client;
pub mod clock;
pub mod engine;
pub mod faults;
pub mod faulty_rpc;
pub mod flows;
pub mod ground;
pub mod hooks;
pub mod liar;
pub mod models;
pub mod node;
pub mod parts;
pub mod programs;
pub mod purses;
pub mod requests;
pub mod stage;
pub mod tangle;
pub mod wait;
