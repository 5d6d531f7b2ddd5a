//! The client against a scripted sandbox, which speaks through real WebSockets: in memory where the clock is held, and
//! over sockets where that is what is tested.

#![allow(clippy::unwrap_used)] // helpers of tests end a test as its own body would

mod drops;
mod errors;
mod flow;
mod pool;
mod reconnect;
mod refresh;
mod sockets;
mod stage;
